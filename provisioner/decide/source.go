package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// Reasons of claims that are to be copies.
const (
	sourceNotBound  = "SourceNotBound"
	sourceElsewhere = "SourceElsewhere"
	sourceIgnored   = "SourceIgnored"
	otherDriver     = "SourceOfAnotherDriver"
)

// Source is what is known of the claim that a claim is to be a copy of, or of the
// snapshot that it is to be made from.
type Source struct {
	// Snapshot is nil for a copy of a claim. With it the rest is empty.
	Snapshot *Snapshot
	// Claim is nil when there is no claim of that name.
	Claim *corev1.PersistentVolumeClaim
	// Volume is its virtual volume, nil when there is none.
	Volume *corev1.PersistentVolume
	// Foreign is true when it is known to have, or to get, a volume that is not
	// virtual.
	Foreign bool
	// Backings are the backing claims that are known of it.
	Backings []Backing
}

// Obstacle is why a claim cannot be made a copy of its source on a route.
type Obstacle struct {
	// Refusal is set where another place, or the same one later, may take it.
	Refusal *Refusal
	// Tell is set otherwise: nothing can be done until something changes.
	Tell *Message
}

func wait(text string, details ...any) *Obstacle {
	return &Obstacle{Tell: note(sourceNotBound, fmt.Sprintf(text, details...))}
}

func invalid(text string, details ...any) *Obstacle {
	return &Obstacle{Tell: warn("InvalidClaim", fmt.Sprintf(text, details...))}
}

// CopyFrom returns the backing claim, or the snapshot, that the backing claim of a
// claim is to be made from on a route, or what is in the way. The zero name without
// an obstacle means that the claim is to be empty.
func CopyFrom(claim *corev1.PersistentVolumeClaim, s *Source, to route.Route) (types.NamespacedName, *Obstacle) {
	if s == nil {
		return types.NamespacedName{}, nil
	}
	if s.Snapshot != nil {
		return fromSnapshot(claim, s.Snapshot, to)
	}
	name, _ := route.CopyOf(claim)
	switch {
	case s.Claim == nil:
		return types.NamespacedName{}, wait("waiting for claim %q, which this one is to be a copy of: create it, or delete this claim", name)
	case s.Foreign:
		return types.NamespacedName{}, invalid("claim %q, which this one is to be a copy of, has no virtual volume: give the copy the storage class of its source, or create this claim without a data source and copy the data", name)
	case s.Claim.DeletionTimestamp != nil:
		return types.NamespacedName{}, wait("claim %q, which this one is to be a copy of, is being deleted: delete this claim too, or create the other one anew", name)
	case s.Volume == nil:
		return types.NamespacedName{}, wait("waiting until claim %q, which this one is to be a copy of, has a volume: let a pod use it", name)
	case s.Claim.Annotations[keys.Move] != "":
		return types.NamespacedName{}, wait("waiting while the volume of claim %q, which this one is to be a copy of, is being moved", name)
	}
	ref, err := backing.RefOf(s.Volume)
	if err != nil {
		return types.NamespacedName{}, &Obstacle{Tell: warn("InvalidVolume", fmt.Sprintf("volume %q of claim %q, which this one is to be a copy of, is not one that Lodestone made: %v; restore its annotation %s", s.Volume.Name, name, err, keys.Backing))}
	}
	if ref.Cluster != to.Cluster {
		return types.NamespacedName{}, &Obstacle{Refusal: &Refusal{Cluster: to.Cluster, Reason: sourceElsewhere, Message: fmt.Sprintf(
			"the data of claim %q is in %s, and a copy is made where its source is: let the pod run there", name, where(ref.Cluster))}}
	}
	return ref.Key(), unfit(claim, name, findIn(s.Backings, ref), ref, to)
}

// unfit says what about the backing claim of a source, in the right cluster, is
// in the way of a copy. A real provisioner would refuse the same, but only on the
// backing claim, and one that knows nothing of copies would make an empty volume.
func unfit(claim *corev1.PersistentVolumeClaim, name string, b *Backing, ref backing.Ref, to route.Route) *Obstacle {
	switch {
	case b == nil:
		return wait("waiting until real claim %s in %s, behind claim %q, is seen: this one is to be a copy of it", ref.Key(), where(ref.Cluster), name)
	case b.Claim.DeletionTimestamp != nil:
		return wait("real claim %s in %s, behind claim %q, is being deleted and cannot be copied: copy the data with a pod", ref.Key(), where(ref.Cluster), name)
	case b.Claim.Status.Phase != corev1.ClaimBound || b.Volume == nil:
		return wait("waiting until real claim %s in %s, behind claim %q, is bound: this one is to be a copy of it", ref.Key(), where(ref.Cluster), name)
	}
	if have, want := mode(b.Claim), mode(claim); have != want {
		return invalid("the claim has volumeMode %s, but claim %q, which it is to be a copy of, has %s: create it anew with the same", want, name, have)
	}
	have, want := b.Claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if want.Cmp(have) < 0 {
		return invalid("the claim asks for %s, less than the %s of claim %q, which it is to be a copy of: create it anew with at least as much", want.String(), have.String(), name)
	}
	driver := ""
	if b.Volume.Spec.CSI != nil {
		driver = b.Volume.Spec.CSI.Driver
	}
	// Kubernetes itself refuses what a class without a known driver cannot do.
	switch maker := to.Driver(); {
	case driver == "":
		return &Obstacle{Refusal: &Refusal{Cluster: to.Cluster, Reason: otherDriver, Message: fmt.Sprintf(
			"the volume of claim %q in %s has no CSI driver, and only those copy volumes: create this claim without a data source and copy the data", name, where(to.Cluster))}}
	case to.Class.Static:
		return &Obstacle{Refusal: &Refusal{Cluster: to.Cluster, Reason: otherDriver, Message: fmt.Sprintf(
			"real storage class %q in %s has hand-made volumes, which are copies of nothing: use a class of driver %.100q, which made the volume of claim %q", to.Class.Name, where(to.Cluster), driver, name)}}
	case maker != "" && maker != driver:
		return &Obstacle{Refusal: &Refusal{Cluster: to.Cluster, Reason: otherDriver, Message: fmt.Sprintf(
			"the volume of claim %q has driver %.100q, but real storage class %q in %s has %q, and a driver copies only its own: use a class of the same driver", name, driver, to.Class.Name, where(to.Cluster), maker)}}
	}
	return nil
}

func mode(claim *corev1.PersistentVolumeClaim) corev1.PersistentVolumeMode {
	return ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

// ignored is the refusal of a cluster that made a backing claim without what it
// was asked for: its volume would not be what the user wants. Nil if all is well.
func ignored(o Observation, to route.Route) *Refusal {
	b := find(o, to.Cluster)
	if b == nil || !backing.Unpublished(b.Claim) {
		return nil
	}
	refuse := func(reason, text string, details ...any) *Refusal {
		return &Refusal{Cluster: to.Cluster, Reason: reason, Message: fmt.Sprintf(text, details...)}
	}
	switch {
	case o.Source != nil && backing.CopyOf(b.Claim) == "":
		return refuse(sourceIgnored, "%s drops the data source of real claims, so the volume would be empty: let its administrator allow it, or create this claim without a data source and copy the data", where(to.Cluster))
	case o.Source != nil && b.Volume != nil && b.Volume.Spec.CSI == nil && !handMade(b):
		return refuse(sourceIgnored, "real storage class %q in %s makes empty volumes where a copy is asked for: use a class of a CSI driver, or create this claim without a data source and copy the data", to.Class.Name, where(to.Cluster))
	case backing.Attributes(o.Claim) != "" && backing.Attributes(b.Claim) == "":
		return refuse("AttributesIgnored", "%s drops the volumeAttributesClassName of real claims: create this claim without it, or use a cluster with Kubernetes 1.34 or later", where(to.Cluster))
	}
	return nil
}

// handMade says whether a backing claim was given a volume that was there before:
// that is no copy, and removing the claim might delete it.
func handMade(b *Backing) bool {
	return b != nil && b.Volume != nil && b.Volume.Annotations[provisionedBy] == ""
}

func notACopy(b Backing) *Message {
	return warn(sourceIgnored, fmt.Sprintf(
		"real claim %s/%s in %s was bound to volume %q, which was there before and is no copy: delete this claim once the administrator there has made sure that nobody needs that volume",
		b.Claim.Namespace, b.Claim.Name, where(b.Cluster), b.Volume.Name))
}

// provisionedBy is, on a volume, who made it for its claim.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// complete says whether a backing claim needs nothing of its source any more: it
// has its volume, and a volume is made with its data.
func complete(b *Backing) bool {
	return b != nil && b.Claim.DeletionTimestamp == nil && b.Claim.Status.Phase == corev1.ClaimBound
}

// otherSource says whether a backing claim that is not complete was made as a
// copy of another source, such as one that is gone and was created anew.
func otherSource(b Backing, to route.Route) bool {
	return to.Source.Name != "" && !complete(&b) && backing.CopyOf(b.Claim) != to.Source.Name
}
