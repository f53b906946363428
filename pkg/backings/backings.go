// Package backings holds what programs must agree on about backing claims: how a
// virtual volume refers to one, and what a claim is that is bound to a real
// volume which exists. It is pure.
package backings

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Twin returns the twin claim of a virtual claim for a real volume that exists:
// owner is the virtual claim, with its UID.
func Twin(owner *corev1.ObjectReference, real *corev1.PersistentVolume, at types.NamespacedName, homeID string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   at.Namespace,
			Name:        at.Name,
			Labels:      map[string]string{keys.ClaimUID: string(owner.UID), keys.HomeID: homeID},
			Annotations: map[string]string{keys.Claim: owner.Namespace + "/" + owner.Name},
			Finalizers:  []string{keys.BackingFinalizer},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:               slices.Clone(real.Spec.AccessModes),
			VolumeMode:                real.Spec.VolumeMode,
			Resources:                 corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: real.Spec.Capacity[corev1.ResourceStorage]}},
			StorageClassName:          &real.Spec.StorageClassName,
			VolumeAttributesClassName: real.Spec.VolumeAttributesClassName,
			VolumeName:                real.Name,
		},
	}
}

// IsOf says whether b is the backing claim that a home made for the virtual claim
// with the given UID.
func IsOf(b *corev1.PersistentVolumeClaim, uid types.UID, homeID string) bool {
	return b.Labels[keys.ClaimUID] == string(uid) && b.Labels[keys.HomeID] == homeID
}

// Attributes returns the name of the VolumeAttributesClass that a claim asks
// for; empty for none.
func Attributes(claim *corev1.PersistentVolumeClaim) string {
	return ptr.Deref(claim.Spec.VolumeAttributesClassName, "")
}

// Unpublished says whether no virtual volume has ever stood for b: it holds no
// user's data.
func Unpublished(b *corev1.PersistentVolumeClaim) bool {
	return b.Annotations[keys.Unpublished] != ""
}

// Protected says whether b carries the finalizer of backing claims.
func Protected(b *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(b.Finalizers, keys.BackingFinalizer)
}

// Ref names one backing claim.
type Ref struct {
	Cluster   string
	Namespace string
	Name      string
	UID       types.UID
}

// RefTo returns the reference to b in a cluster.
func RefTo(cluster string, b *corev1.PersistentVolumeClaim) Ref {
	return Ref{Cluster: cluster, Namespace: b.Namespace, Name: b.Name, UID: b.UID}
}

// Key is the namespace and name of the claim.
func (r Ref) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// String writes the reference as virtual volumes carry it.
func (r Ref) String() string {
	return strings.Join([]string{r.Cluster, r.Namespace, r.Name, string(r.UID)}, "/")
}

// ParseRef reads what String wrote.
func ParseRef(s string) (Ref, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 || slices.Contains(parts, "") {
		return Ref{}, fmt.Errorf("read backing claim reference %q: want cluster/namespace/name/uid", s)
	}
	return Ref{Cluster: parts[0], Namespace: parts[1], Name: parts[2], UID: types.UID(parts[3])}, nil
}

// RefOf returns the reference that a virtual volume carries.
func RefOf(volume *corev1.PersistentVolume) (Ref, error) {
	return ParseRef(volume.Annotations[keys.Backing])
}
