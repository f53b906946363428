package instant

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
)

const mebibyte = 1 << 20

// roundUp rounds a size up to whole mebibytes, at least one, as storage does.
func roundUp(size resource.Quantity) resource.Quantity {
	whole := (size.Value() + mebibyte - 1) / mebibyte
	return *resource.NewQuantity(max(whole, 1)*mebibyte, resource.BinarySI)
}

// persistentVolume is the object that describes a volume.
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
