// Package backing describes backing claims: the claims, at home or in a remote cluster, that hold
// the data of virtual claims. It names them (Place.At), makes twins (Twin), checks whom they belong
// to (Place.OwnerOf, IsOf), reads and writes the reference from a virtual volume to its backing
// claim (Ref), makes that volume (NewVolume), and decides which labels and annotations of the virtual
// claim the backing claim gets (Carry, CarryPatch). Read Place and Ref first. The package is pure: it calls no API server.
package backing

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Place says where backing claims are: the home namespace of twins, and which namespace of a remote
// cluster belongs to a namespace of home.
type Place struct {
	// HomeID is the ID of the home cluster.
	HomeID string
	// StorageNamespace is the home namespace of all twins.
	StorageNamespace string
}

// Of returns the namespace and the name that the backing claim of a virtual claim gets in a cluster
// when it is first created.
func (p Place) Of(cluster string, strategy v1alpha1.NamespaceStrategy, claim types.NamespacedName, uid types.UID) types.NamespacedName {
	if cluster == keys.Home {
		return types.NamespacedName{Namespace: p.StorageNamespace, Name: "pvc-" + string(uid)}
	}
	return types.NamespacedName{Namespace: remotecluster.Namespace(strategy, claim.Namespace, p.HomeID), Name: claim.Name}
}

// At returns the namespace and the name of the backing claim of a virtual claim in a cluster.
// volume is the virtual volume of the claim, nil if it has none. A backing claim that a move made, or
// that was made for a claim before this one, has another name than Of returns; the volume's reference
// has it.
func (p Place) At(cluster string, strategy v1alpha1.NamespaceStrategy, claim types.NamespacedName, uid types.UID,
	volume *corev1.PersistentVolume) types.NamespacedName {
	at := p.Of(cluster, strategy, claim, uid)
	if volume == nil {
		return at
	}
	if ref, err := RefOf(volume); err == nil && ref.Cluster == cluster && ref.Namespace == at.Namespace &&
		(WasMoved(ref.Name) && madeFor(ref.Name) == uid || WasRestored(volume, uid)) {
		return ref.Key()
	}
	return at
}

// VirtualName is the name of the virtual volume that is made for the claim with this UID.
func VirtualName(uid types.UID) string { return "pvc-" + string(uid) }

// WasRestored reports whether the virtual volume of the claim with this UID was made for another one:
// claim and volume were restored from a backup, which gave the claim another UID. The backing claim
// may carry the UID of the earlier one.
func WasRestored(volume *corev1.PersistentVolume, uid types.UID) bool {
	return volume.Name != VirtualName(uid)
}

// Twin returns the namespace and the name of the twin of a virtual claim. As in At, the reference
// of volume decides if it has one.
func (p Place) Twin(uid types.UID, volume *corev1.PersistentVolume) types.NamespacedName {
	return p.At(keys.Home, "", types.NamespacedName{}, uid, volume)
}

// Moved returns the n-th name, counted from 1, that a move may give to the backing claim of a
// virtual claim. The name contains the UID of the virtual claim, so it is never that of another
// claim.
func Moved(uid types.UID, n int) string { return fmt.Sprintf("pvc-%s-%d", uid, n) }

// uidLength is the length of the UIDs that API servers make.
const uidLength = 36

// madeFor returns the UID of the virtual claim that the name of a twin, or a name that a move gave,
// contains; empty if the name is neither.
func madeFor(name string) types.UID {
	uid, ok := strings.CutPrefix(name, "pvc-")
	if !ok {
		return ""
	}
	if len(uid) > uidLength && uid[uidLength] == '-' {
		if n, err := strconv.Atoi(uid[uidLength+1:]); err == nil && Moved(types.UID(uid[:uidLength]), n) == name && n > 0 {
			uid = uid[:uidLength]
		}
	}
	return types.UID(uid)
}

// WasMoved reports whether a name is one that Moved returns.
func WasMoved(name string) bool {
	uid := madeFor(name)
	return uid != "" && name != "pvc-"+string(uid)
}

// TwinOf returns the UID of the virtual claim that the twin of a name is of; false
// if that is not the name of a twin.
func TwinOf(name string) (types.UID, bool) {
	uid := madeFor(name)
	return uid, uid != ""
}

// Spare reports whether b is a copy of a move that no virtual volume refers to, or no longer: only
// the controller of moves may change it. Users of a remote namespace can write the label that marks
// a copy, so the label does not count for the claim that volume refers to.
func Spare(b *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) bool {
	if b.Labels[keys.MoveOf] == "" {
		return false
	}
	if volume == nil {
		return true
	}
	ref, err := RefOf(volume)
	return err != nil || ref.UID != b.UID
}

// Again returns the twin that replaces one that somebody deleted: for the claim of the virtual
// volume, and bound to the real volume.
func Again(virtual, real *corev1.PersistentVolume, at types.NamespacedName, homeID string) *corev1.PersistentVolumeClaim {
	return Twin(virtual.Spec.ClaimRef, real, at, homeID)
}

// CopyOf returns the name of the claim or snapshot beside b that b was made from;
// empty for none.
func CopyOf(b *corev1.PersistentVolumeClaim) string {
	if b.Spec.DataSource != nil {
		return b.Spec.DataSource.Name
	}
	return ""
}

// Owner returns the namespace and name of b's virtual claim as its annotation says. Users of a
// remote cluster can write that annotation: see OwnerOf.
func Owner(b *corev1.PersistentVolumeClaim) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(b.Annotations[keys.Claim], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}

// OwnerOf returns the virtual claim that b says it belongs to; false unless b has the namespace and
// name that the backing claim of that virtual claim has. Users of a remote namespace can write
// labels and annotations there: they must not name a claim of another namespace.
func (p Place) OwnerOf(b *corev1.PersistentVolumeClaim) (types.NamespacedName, bool) {
	owner, ok := Owner(b)
	uid := types.UID(b.Labels[keys.ClaimUID])
	at := types.NamespacedName{Namespace: b.Namespace, Name: b.Name}
	if !ok || uid == "" {
		return owner, false
	}
	ours := madeFor(at.Name) == uid
	if at.Namespace == p.StorageNamespace && ours {
		return owner, true
	}
	ours = ours && WasMoved(at.Name)
	for _, strategy := range []v1alpha1.NamespaceStrategy{v1alpha1.SameName, v1alpha1.Suffixed} {
		if may := p.Of("", strategy, owner, uid); at == may || at.Namespace == may.Namespace && ours {
			return owner, true
		}
	}
	return owner, false
}

// Twin returns the twin claim of a virtual claim for a real volume that exists:
// owner is the virtual claim, with its UID.
func Twin(owner *corev1.ObjectReference, real *corev1.PersistentVolume, at types.NamespacedName,
	homeID string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   at.Namespace,
			Name:        at.Name,
			Labels:      map[string]string{keys.ClaimUID: string(owner.UID), keys.HomeID: homeID},
			Annotations: map[string]string{keys.Claim: owner.Namespace + "/" + owner.Name},
			Finalizers:  []string{keys.BackingFinalizer},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: slices.Clone(real.Spec.AccessModes),
			VolumeMode:  real.Spec.VolumeMode,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: real.Spec.Capacity[corev1.ResourceStorage]},
			},
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

// Unpublished reports whether no virtual volume has ever referred to b, so that b has no user's
// data.
func Unpublished(b *corev1.PersistentVolumeClaim) bool {
	return b.Annotations[keys.Unpublished] != ""
}

// Misbound reports whether b, the twin that volume stands for, is bound to another real volume than the
// one that volume was made of: volume can be made before b is bound, and b is marked as unpublished until then.
func Misbound(volume *corev1.PersistentVolume, b *corev1.PersistentVolumeClaim) bool {
	made := volume.Annotations[keys.BackingVolume]
	return Unpublished(b) && made != "" && b.Spec.VolumeName != "" && b.Spec.VolumeName != made
}

// Protected reports whether b has the finalizer of backing claims.
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

// String returns the reference in the form of the annotation of virtual volumes:
// "cluster/namespace/name/uid".
func (r Ref) String() string {
	return strings.Join([]string{r.Cluster, r.Namespace, r.Name, string(r.UID)}, "/")
}

// ParseRef reads a reference in the form that String returns.
func ParseRef(s string) (Ref, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 || slices.Contains(parts, "") {
		return Ref{}, fmt.Errorf("read backing claim reference %q: want cluster/namespace/name/uid", s)
	}
	return Ref{Cluster: parts[0], Namespace: parts[1], Name: parts[2], UID: types.UID(parts[3])}, nil
}

// RefOf returns the reference in the annotation of a virtual volume.
func RefOf(volume *corev1.PersistentVolume) (Ref, error) {
	return ParseRef(volume.Annotations[keys.Backing])
}

// Limits for the labels and annotations that are copied from one claim, so that its user cannot
// make the objects of other namespaces and clusters large: how many keys of each kind, and how many
// bytes in one value.
const (
	maxCarriedKeys  = 32
	maxCarriedBytes = 1024
)

// carried is the content of the annotation keys.Carried: the keys that were last copied to a
// backing claim.
type carried struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// Carry copies to a new backing claim the labels and annotations of its virtual claim that the
// class names.
func Carry(b, claim *corev1.PersistentVolumeClaim, class virtualclass.Class) {
	labels, annotations := chosen(claim.Labels, class), chosen(claim.Annotations, class)
	if len(labels)+len(annotations) == 0 {
		return
	}
	maps.Copy(b.Labels, labels)
	maps.Copy(b.Annotations, annotations)
	b.Annotations[keys.Carried] = record(labels, annotations)
}

// CarryPatch returns the labels and annotations to set on a backing claim, and with the value nil
// those to remove: afterwards it has what its virtual claim has of the keys that the class names,
// and nothing else that was copied earlier. Both maps are empty if nothing is to be changed.
func CarryPatch(b, claim *corev1.PersistentVolumeClaim, class virtualclass.Class) (labels, annotations map[string]any) {
	text, recorded := b.Annotations[keys.Carried]
	if !class.CarriesAny() && !recorded {
		return nil, nil
	}
	var was carried
	// Lodestone did not write what cannot be read here: nothing is removed then.
	_ = json.Unmarshal([]byte(text), &was)
	wantLabels, wantAnnotations := chosen(claim.Labels, class), chosen(claim.Annotations, class)
	labels = difference(wantLabels, b.Labels, was.Labels)
	annotations = difference(wantAnnotations, b.Annotations, was.Annotations)
	switch want := record(wantLabels, wantAnnotations); {
	case len(wantLabels)+len(wantAnnotations) == 0 && recorded:
		annotations[keys.Carried] = nil
	case len(wantLabels)+len(wantAnnotations) > 0 && text != want:
		annotations[keys.Carried] = want
	}
	return labels, annotations
}

// chosen returns the entries that the class has copied, without those that are too long; if there
// are too many, the first by key.
func chosen(have map[string]string, class virtualclass.Class) map[string]string {
	result := map[string]string{}
	if !class.CarriesAny() {
		return result
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if len(result) < maxCarriedKeys && class.Carries(key) && len(have[key]) <= maxCarriedBytes {
			result[key] = have[key]
		}
	}
	return result
}

// difference returns what to set and what to remove so that have gets the entries of want and loses
// the other keys that were copied earlier. In a remote cluster others may write the list of those
// keys, so it never removes a key that could not have been copied.
func difference(want, have map[string]string, was []string) map[string]any {
	changes := map[string]any{}
	for key, value := range want {
		if now, ok := have[key]; !ok || now != value {
			changes[key] = value
		}
	}
	for _, key := range was {
		_, wanted := want[key]
		if _, ok := have[key]; ok && !wanted && virtualclass.Carriable(key) {
			changes[key] = nil
		}
	}
	return changes
}

func record(labels, annotations map[string]string) string {
	// Strings, sorted, cannot fail to encode.
	text, _ := json.Marshal(carried{Labels: slices.Sorted(maps.Keys(labels)), Annotations: slices.Sorted(maps.Keys(annotations))})
	return string(text)
}
