package fakeprovisioner

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
)

// Volume is one volume that exists in the storage behind the provisioner, whatever
// Kubernetes objects say.
type Volume struct {
	Handle           string // the volumeHandle of its PersistentVolume
	Name             string // the name of the PersistentVolume it was made for
	Namespace, Claim string // the claim it was made for
	Class            string
	Node             string // the selected node, empty if its class binds at once
	Source           string // the handle of the volume it is a copy of
	Bytes            int64
}

// storage is the account of volumes.
type storage struct {
	mu      sync.Mutex
	volumes map[string]Volume // by handle
	made    int
}

// make adds a volume unless it exists: provisioning is idempotent by handle.
func (s *storage) make(volume Volume) Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	if existing, ok := s.volumes[volume.Handle]; ok {
		return existing
	}
	s.volumes[volume.Handle] = volume
	s.made++
	return volume
}

// grow makes a volume larger; it never makes one smaller.
func (s *storage) grow(handle string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if volume, ok := s.volumes[handle]; ok && volume.Bytes < bytes {
		volume.Bytes = bytes
		s.volumes[handle] = volume
	}
}

func (s *storage) remove(handle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.volumes, handle)
}

// Volumes returns the volumes that exist, ordered by handle.
func (p *Provisioner) Volumes() []Volume {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	var all []Volume
	for _, volume := range p.storage.volumes {
		all = append(all, volume)
	}
	slices.SortFunc(all, func(a, b Volume) int { return cmp.Compare(a.Handle, b.Handle) })
	return all
}

// VolumesOf returns the volumes that exist and were made for claims of a namespace.
func (p *Provisioner) VolumesOf(namespace string) []Volume {
	return slices.DeleteFunc(p.Volumes(), func(v Volume) bool { return v.Namespace != namespace })
}

// Exists reports whether the volume with this handle exists.
func (p *Provisioner) Exists(handle string) bool {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	_, ok := p.storage.volumes[handle]
	return ok
}

// Made returns how many volumes were ever made.
func (p *Provisioner) Made() int {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	return p.storage.made
}

const mebibyte = 1 << 20

// roundUp rounds a size up to whole mebibytes, at least one, as storage does.
func roundUp(size resource.Quantity) resource.Quantity {
	whole := (size.Value() + mebibyte - 1) / mebibyte
	return *resource.NewQuantity(max(whole, 1)*mebibyte, resource.BinarySI)
}

func (p *Provisioner) persistentVolume(options controller.ProvisionOptions, volume Volume) *corev1.PersistentVolume {
	claim, class := options.PVC, options.StorageClass
	mode := corev1.PersistentVolumeFilesystem
	if claim.Spec.VolumeMode != nil {
		mode = *claim.Spec.VolumeMode
	}
	source := &corev1.CSIPersistentVolumeSource{
		Driver:       p.name,
		VolumeHandle: volume.Handle,
		VolumeAttributes: map[string]string{
			"storage.kubernetes.io/csiProvisionerIdentity": p.name,
			"pool": class.Name,
		},
	}
	if mode == corev1.PersistentVolumeFilesystem {
		source.FSType = "ext4"
	}
	object := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:               claim.Spec.AccessModes,
			Capacity:                  corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(volume.Bytes, resource.BinarySI)},
			MountOptions:              class.MountOptions,
			NodeAffinity:              nodeAffinity(class, options.SelectedNode),
			PersistentVolumeSource:    corev1.PersistentVolumeSource{CSI: source},
			VolumeMode:                &mode,
			VolumeAttributesClassName: claim.Spec.VolumeAttributesClassName,
		},
	}
	if class.ReclaimPolicy != nil {
		object.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	return object
}

// nodeAffinity says where a volume can be reached: from the selected node alone, or,
// if there is none, where the class allows; from everywhere if it does not say.
func nodeAffinity(class *storagev1.StorageClass, selected *corev1.Node) *corev1.VolumeNodeAffinity {
	var terms []corev1.NodeSelectorTerm
	if selected != nil {
		terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{selected.Labels[corev1.LabelHostname]},
		}}})
	} else {
		for _, topology := range class.AllowedTopologies {
			var term corev1.NodeSelectorTerm
			for _, label := range topology.MatchLabelExpressions {
				term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
					Key: label.Key, Operator: corev1.NodeSelectorOpIn, Values: label.Values,
				})
			}
			terms = append(terms, term)
		}
	}
	if len(terms) == 0 {
		return nil
	}
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}
