// Package backing holds what a backing claim is: its name, how it is made from
// its virtual claim, whose it is, and how a virtual volume refers to it. It is
// pure.
package backing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// Place says where backing claims are: the namespace of twins, and the mapping
// of namespaces in each remote cluster.
type Place struct {
	// HomeID is the ID of the home cluster.
	HomeID string
	// StorageNamespace is the home namespace of all twins.
	StorageNamespace string
}

// Of returns where the backing claim of a virtual claim is in a cluster.
func (p Place) Of(cluster string, strategy v1alpha1.NamespaceStrategy, claim types.NamespacedName, uid types.UID) types.NamespacedName {
	if cluster == keys.Home {
		return types.NamespacedName{Namespace: p.StorageNamespace, Name: "pvc-" + string(uid)}
	}
	return types.NamespacedName{Namespace: namespaces.Remote(strategy, claim.Namespace, p.HomeID), Name: claim.Name}
}

// At returns where the backing claim of a virtual claim is in a cluster. volume is its
// virtual volume, nil if it has none: one that a move made may have another name than
// Of tells, and the volume names it.
func (p Place) At(cluster string, strategy v1alpha1.NamespaceStrategy, claim types.NamespacedName, uid types.UID, volume *corev1.PersistentVolume) types.NamespacedName {
	at := p.Of(cluster, strategy, claim, uid)
	if volume == nil {
		return at
	}
	if ref, err := RefOf(volume); err == nil && ref.Cluster == cluster && ref.Namespace == at.Namespace && WasMoved(ref.Name) && madeFor(ref.Name) == uid {
		return ref.Key()
	}
	return at
}

// Twin returns where the twin of a virtual claim is, as At does.
func (p Place) Twin(uid types.UID, volume *corev1.PersistentVolume) types.NamespacedName {
	return p.At(keys.Home, "", types.NamespacedName{}, uid, volume)
}

// Moved returns the n-th of the names, from 1 on, that the backing claim of a virtual
// claim may get from a move. None is ever that of another claim's.
func Moved(uid types.UID, n int) string { return fmt.Sprintf("pvc-%s-%d", uid, n) }

// uidLength is how long the UIDs are that API servers make.
const uidLength = 36

// madeFor returns the UID of the virtual claim that a name is made of, as that of a
// twin is, or one that a move gave; empty if it is made of none.
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

// WasMoved says whether a name is one of those that backing claims get from moves.
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

// Spare says whether b is a copy of a move that no virtual volume stands for, or no
// longer: it is the move's business alone. The label can be written by users of a remote
// namespace, so it counts for nothing on what volume names.
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

// New returns the backing claim of a virtual claim for a route. It is marked as
// unpublished and carries the finalizer that protects it.
func New(claim *corev1.PersistentVolumeClaim, r route.Route, at types.NamespacedName, homeID string) *corev1.PersistentVolumeClaim {
	b := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: at.Namespace,
			Name:      at.Name,
			Labels: map[string]string{
				keys.ClaimUID: string(claim.UID),
				keys.HomeID:   homeID,
			},
			Annotations: map[string]string{
				keys.Claim:       claim.Namespace + "/" + claim.Name,
				keys.Unpublished: "true",
			},
			Finalizers: []string{keys.BackingFinalizer},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      slices.Clone(claim.Spec.AccessModes),
			VolumeMode:       claim.Spec.VolumeMode,
			Resources:        *claim.Spec.Resources.DeepCopy(),
			StorageClassName: &r.Class.Name,
		},
	}
	if name := Attributes(claim); name != "" {
		b.Spec.VolumeAttributesClassName = &name
	}
	if r.Source.Name != "" {
		b.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: r.Source.Name}
		if r.FromSnapshot {
			b.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: r.Source.Name}
		}
	}
	if r.Cluster == keys.Home && r.Deferred() {
		b.Annotations[keys.SelectedNode] = r.Node
	}
	if provisioner := r.Driver(); (r.Cluster == keys.Home || !r.Deferred()) && provisioner != "" {
		// The claim may be provisioned at once, so this is what
		// kube-controller-manager would write next, at its 20 requests a second,
		// and what the real provisioner would wait for.
		b.Annotations[keys.StorageProvisioner] = provisioner
		b.Annotations[keys.BetaStorageProvisioner] = provisioner
	}
	return b
}

// Again returns the twin that takes the place of one that somebody deleted: the
// claim of the virtual volume, bound to the real one.
func Again(virtual, real *corev1.PersistentVolume, at types.NamespacedName, homeID string) *corev1.PersistentVolumeClaim {
	return backings.Twin(virtual.Spec.ClaimRef, real, at, homeID)
}

// IsOf says whether b is the backing claim that this home made for the virtual
// claim with the given UID.
func IsOf(b *corev1.PersistentVolumeClaim, uid types.UID, homeID string) bool {
	return backings.IsOf(b, uid, homeID)
}

// Attributes returns the name of the VolumeAttributesClass that a claim asks
// for; empty for none.
func Attributes(claim *corev1.PersistentVolumeClaim) string {
	return backings.Attributes(claim)
}

// CopyOf returns the name of the claim or snapshot beside b that b was made from;
// empty for none.
func CopyOf(b *corev1.PersistentVolumeClaim) string {
	if b.Spec.DataSource != nil {
		return b.Spec.DataSource.Name
	}
	return ""
}

// Unpublished says whether no virtual volume has ever stood for b: it holds no
// user's data.
func Unpublished(b *corev1.PersistentVolumeClaim) bool {
	return backings.Unpublished(b)
}

// Protected says whether b carries the finalizer of backing claims.
func Protected(b *corev1.PersistentVolumeClaim) bool {
	return backings.Protected(b)
}

// Owner returns the namespace and name of b's virtual claim as recorded when b
// was made.
func Owner(b *corev1.PersistentVolumeClaim) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(b.Annotations[keys.Claim], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}

// OwnerOf returns the virtual claim of b as b says, if b is where a backing
// claim of that virtual claim is. Labels and annotations in a remote namespace
// can be written by its users: they must not speak for other namespaces.
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

// Ref names one backing claim.
type Ref = backings.Ref

// RefTo returns the reference to b in a cluster.
func RefTo(cluster string, b *corev1.PersistentVolumeClaim) Ref { return backings.RefTo(cluster, b) }

// ParseRef reads what the String of a Ref wrote.
func ParseRef(s string) (Ref, error) { return backings.ParseRef(s) }

// RefOf returns the reference that a virtual volume carries.
func RefOf(volume *corev1.PersistentVolume) (Ref, error) { return backings.RefOf(volume) }
