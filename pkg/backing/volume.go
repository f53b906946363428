package backing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// VolumeInput has what a virtual volume is made from.
type VolumeInput struct {
	Name    string
	Claim   *corev1.PersistentVolumeClaim
	Class   virtualclass.Class
	Cluster string
	// ClusterUID is the UID of the remote cluster that Backing was seen in; empty for home, and
	// where it is not known.
	ClusterUID string
	Backing    *corev1.PersistentVolumeClaim
	// Real is the real volume. At home it is needed; of a remote one only size
	// and access modes are taken, and it may be nil while the backing claim
	// waits for its first pod.
	Real *corev1.PersistentVolume
	// MayBeSmaller lets the real volume be smaller than the claim asks for, as for a claim that names its volume already: that binds to
	// it, and the volume is to grow then.
	MayBeSmaller bool
}

// NewVolume returns the virtual volume: the PersistentVolume at home that is bound to a virtual claim and refers to
// its backing claim. Its claimRef is left to the caller.
func NewVolume(in VolumeInput) (*corev1.PersistentVolume, error) {
	ref := RefTo(in.Cluster, in.Backing)
	size, err := capacity(in)
	if err != nil {
		return nil, err
	}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        in.Name,
			Labels:      map[string]string{keys.Cluster: in.Cluster},
			Annotations: map[string]string{keys.Backing: ref.String()},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: size},
			AccessModes:                   accessModes(in),
			VolumeMode:                    in.Claim.Spec.VolumeMode,
			VolumeAttributesClassName:     attributes(in.Claim),
			PersistentVolumeReclaimPolicy: in.Class.ReclaimPolicy,
			StorageClassName:              in.Class.Name,
			MountOptions:                  slices.Clone(in.Class.MountOptions),
		},
	}
	if in.Real != nil {
		pv.Annotations[keys.BackingVolume] = in.Real.Name
	}
	if n := GenerationOf(in.Backing); n > 0 {
		pv.Annotations[keys.Generation] = strconv.FormatInt(n, 10)
	}
	if in.Cluster != keys.Home {
		if in.ClusterUID != "" {
			pv.Annotations[keys.ClusterUID] = in.ClusterUID
		}
		// The volume source, node names and secrets of a remote cluster mean
		// nothing here, and must not be trusted here.
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: keys.Driver, VolumeHandle: ref.String()}
		pv.Spec.NodeAffinity = locality.Affinity(in.Cluster, nil)
		if in.Backing.Name != in.Claim.Name {
			// Other nodes would give a pod another claim, or none.
			pv.Spec.NodeAffinity = locality.OfVolumes(pv.Spec.NodeAffinity)
		}
		return pv, nil
	}
	if in.Real == nil {
		return nil, fmt.Errorf("build volume %s: the real volume of backing claim %s/%s is not known", in.Name, in.Backing.Namespace,
			in.Backing.Name)
	}
	pv.Spec.PersistentVolumeSource = *in.Real.Spec.PersistentVolumeSource.DeepCopy()
	pv.Spec.NodeAffinity = locality.Affinity(keys.Home, in.Real.Spec.NodeAffinity)
	for _, option := range in.Real.Spec.MountOptions {
		if !slices.Contains(pv.Spec.MountOptions, option) {
			pv.Spec.MountOptions = append(pv.Spec.MountOptions, option)
		}
	}
	return pv, nil
}

// attributes is the attributes class of the claim, which binds to no volume of
// another; an empty one is none.
func attributes(claim *corev1.PersistentVolumeClaim) *string {
	if name := Attributes(claim); name != "" {
		return &name
	}
	return nil
}

// capacity is the real volume's, or what the claim asks for while there is none.
// A claim that looks for a volume never binds to one that is smaller than it asks for.
func capacity(in VolumeInput) (resource.Quantity, error) {
	want := in.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if in.Real == nil {
		return want, nil
	}
	have := in.Real.Spec.Capacity[corev1.ResourceStorage]
	if have.Cmp(want) < 0 && (!in.MayBeSmaller || have.Sign() <= 0) {
		return have, fmt.Errorf("build volume %s: the real volume %s has %s, less than the %s that the claim asks for: its storage class broke "+
			"its promise, delete the claim and ask for less", in.Name, in.Real.Name, have.String(), want.String())
	}
	return have, nil
}

// accessModes are the real volume's where it supports all that the claim asks
// for, so that the claim can bind, else the claim's.
func accessModes(in VolumeInput) []corev1.PersistentVolumeAccessMode {
	if in.Real == nil {
		return slices.Clone(in.Claim.Spec.AccessModes)
	}
	for _, mode := range in.Claim.Spec.AccessModes {
		if !slices.Contains(in.Real.Spec.AccessModes, mode) {
			return slices.Clone(in.Claim.Spec.AccessModes)
		}
	}
	return slices.Clone(in.Real.Spec.AccessModes)
}

// MountOptionsIgnored is the reason of the event that says what IgnoredOptions does.
const MountOptionsIgnored = "MountOptionsIgnored"

// maxOptions bounds, in bytes, what is quoted of mount options.
const maxOptions = 512

// IgnoredOptions says in a sentence which mount options of a virtual volume change nothing,
// since its real volume in a remote cluster has not got them; empty for none. Kubelets there
// mount that one, and home may change no volumes there. class is that of the real volume.
func IgnoredOptions(virtual, real *corev1.PersistentVolume, cluster, class string) string {
	if ptr.Deref(virtual.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock {
		return ""
	}
	var ignored []string
	for _, option := range virtual.Spec.MountOptions {
		if !slices.Contains(real.Spec.MountOptions, option) {
			ignored = append(ignored, option)
		}
	}
	if len(ignored) == 0 {
		return ""
	}
	text := strings.Join(ignored, ",")
	return fmt.Sprintf(
		"mount options %s of storage class %q have no effect in cluster %s, where pods mount the real volume with options of its own: for new "+
			"volumes let its administrator set them in real storage class %q, or name another class of that cluster",
		strconv.Quote(sentence.Cut(text, maxOptions)), virtual.Spec.StorageClassName, cluster, class)
}
