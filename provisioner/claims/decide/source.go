package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// Reasons of claims that are to be copies.
const (
	sourceNotBound  = "SourceNotBound"
	sourceElsewhere = "SourceElsewhere"
	sourceIgnored   = "SourceIgnored"
	otherDriver     = "SourceOfAnotherDriver"
)

// Obstacle is why a claim cannot be made from its source on a route.
type Obstacle struct {
	// Refusal is set if another cluster, or the same one later, may take the claim.
	Refusal *steps.Refusal
	// Tell is set otherwise: nothing can be done until something changes.
	Tell *steps.Message
}

func wait(text string, details ...any) *Obstacle {
	return &Obstacle{Tell: steps.Note(sourceNotBound, fmt.Sprintf(text, details...))}
}

func invalid(text string, details ...any) *Obstacle {
	return &Obstacle{Tell: steps.Warn("InvalidClaim", fmt.Sprintf(text, details...))}
}

// CopyFrom returns the backing claim or snapshot from which the backing claim of a claim is
// created on a route, or the obstacle. An empty name without an obstacle means that the
// claim has no source.
func CopyFrom(claim *corev1.PersistentVolumeClaim, s *steps.Source, to route.Route) (types.NamespacedName, *Obstacle) {
	if s == nil {
		return types.NamespacedName{}, nil
	}
	switch {
	case s.Snapshot != nil:
		return fromSnapshot(claim, s.Snapshot, to)
	case s.Version != nil:
		return fromVersion(claim, s.Version, to)
	}
	name, _ := route.CopyOf(claim)
	switch {
	case s.Claim == nil:
		return types.NamespacedName{}, wait("waiting for claim %q, which this one is to be a copy of: create it, or delete this claim", name)
	case s.Foreign:
		return types.NamespacedName{}, invalid("claim %q, which this one is to be a copy of, has no virtual volume: give the copy the storage "+
			"class of its source, or create this claim without a data source and copy the data", name)
	case s.Claim.DeletionTimestamp != nil:
		return types.NamespacedName{}, wait("claim %q, which this one is to be a copy of, is being deleted: delete this claim too, or create "+
			"the other one anew", name)
	case s.Volume == nil:
		return types.NamespacedName{}, wait("waiting until claim %q, which this one is to be a copy of, has a volume: let a pod use it", name)
	case s.Claim.Annotations[keys.Move] != "":
		return types.NamespacedName{}, wait("waiting while the volume of claim %q, which this one is to be a copy of, is being moved", name)
	}
	ref, err := backing.RefOf(s.Volume)
	if err != nil {
		return types.NamespacedName{},
			&Obstacle{Tell: steps.Warn("InvalidVolume", fmt.Sprintf("volume %q of claim %q, which this one is to be a copy of, is not one that "+
				"Lodestone made: %v; restore its annotation %s", s.Volume.Name, name, err, keys.Backing))}
	}
	if ref.Cluster != to.Cluster {
		return types.NamespacedName{}, &Obstacle{Refusal: &steps.Refusal{Cluster: to.Cluster, Reason: sourceElsewhere, Message: fmt.Sprintf(
			"the data of claim %q is in %s, and a copy is made where its source is: let the pod run there", name, steps.Where(ref.Cluster))}}
	}
	return ref.Key(), unfitSource(claim, name, s.BackingOf(ref), ref, to)
}

// unfitSource says why the backing claim of a source, in the right cluster, cannot be
// copied. A real provisioner would refuse the same, but report it only on the backing
// claim, and one that cannot copy would create an empty volume.
func unfitSource(claim *corev1.PersistentVolumeClaim, name string, b *steps.Backing, ref backing.Ref, to route.Route) *Obstacle {
	switch {
	case b == nil:
		return wait("waiting until real claim %s in %s, behind claim %q, is seen: this one is to be a copy of it", ref.Key(),
			steps.Where(ref.Cluster),
			name)
	case b.Claim.DeletionTimestamp != nil:
		return wait("real claim %s in %s, behind claim %q, is being deleted and cannot be copied: copy the data with a pod", ref.Key(),
			steps.Where(ref.Cluster), name)
	case b.Claim.Status.Phase != corev1.ClaimBound || b.Volume == nil:
		return wait("waiting until real claim %s in %s, behind claim %q, is bound: this one is to be a copy of it", ref.Key(),
			steps.Where(ref.Cluster),
			name)
	}
	if have, want := mode(b.Claim), mode(claim); have != want {
		return invalid("the claim has volumeMode %s, but claim %q, which it is to be a copy of, has %s: create it anew with the same", want, name,
			have)
	}
	have, want := b.Claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if want.Cmp(have) < 0 {
		return invalid("the claim asks for %s, less than the %s of claim %q, which it is to be a copy of: create it anew with at least as much",
			want.String(), have.String(), name)
	}
	driver := ""
	if b.Volume.Spec.CSI != nil {
		driver = b.Volume.Spec.CSI.Driver
	}
	// Kubernetes itself refuses what a class without a known driver cannot do.
	switch maker := to.Driver(); {
	case driver == "":
		return &Obstacle{Refusal: &steps.Refusal{Cluster: to.Cluster, Reason: otherDriver, Message: fmt.Sprintf(
			"the volume of claim %q in %s has no CSI driver, and only those copy volumes: create this claim without a data source and copy the data",
			name, steps.Where(to.Cluster))}}
	case to.Class.Static:
		return &Obstacle{Refusal: &steps.Refusal{Cluster: to.Cluster, Reason: otherDriver, Message: fmt.Sprintf(
			"real storage class %q in %s has hand-made volumes, which are copies of nothing: use a class of driver %.100q, which made the "+
				"volume of claim %q", to.Class.Name, steps.Where(to.Cluster), driver, name)}}
	case maker != "" && maker != driver:
		return &Obstacle{Refusal: &steps.Refusal{Cluster: to.Cluster, Reason: otherDriver, Message: fmt.Sprintf(
			"the volume of claim %q has driver %.100q, but real storage class %q in %s has %q, and a driver copies only its own: use a class of "+
				"the same driver", name, driver, to.Class.Name, steps.Where(to.Cluster), maker)}}
	}
	return nil
}

func mode(claim *corev1.PersistentVolumeClaim) corev1.PersistentVolumeMode {
	return ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

// sourceDropped is the refusal of a cluster that created a backing claim without the
// requested data source: its volume would not have the user's data. Nil if the source is
// there.
func sourceDropped(o steps.Observation, to route.Route) *steps.Refusal {
	b := o.BackingIn(to.Cluster)
	if b == nil || !backing.Unpublished(b.Claim) {
		return nil
	}
	refuse := func(reason, text string, details ...any) *steps.Refusal {
		return &steps.Refusal{Cluster: to.Cluster, Reason: reason, Message: fmt.Sprintf(text, details...)}
	}
	switch {
	case o.Source != nil && backing.CopyOf(b.Claim) == "":
		return refuse(sourceIgnored, "%s drops the data source of real claims, so the volume would be empty: let its administrator allow it, "+
			"or create this claim without a data source and copy the data", steps.Where(to.Cluster))
	case o.Source != nil && b.Volume != nil && b.Volume.Spec.CSI == nil && !handMade(b):
		return refuse(sourceIgnored, "real storage class %q in %s makes empty volumes where a copy is asked for: use a class of a CSI driver, "+
			"or create this claim without a data source and copy the data", to.Class.Name, steps.Where(to.Cluster))
	case backing.Attributes(o.Claim) != "" && backing.Attributes(b.Claim) == "":
		return refuse("AttributesIgnored", "%s drops the volumeAttributesClassName of real claims: create this claim without it, or use a "+
			"cluster with Kubernetes 1.34 or later", steps.Where(to.Cluster))
	}
	return nil
}

// handMade says whether a backing claim was bound to a volume that existed before: that is
// no copy, and deleting the claim might delete that volume.
func handMade(b *steps.Backing) bool {
	return b != nil && b.Volume != nil && b.Volume.Annotations[provisionedBy] == ""
}

func notACopy(b steps.Backing) *steps.Message {
	return steps.Warn(sourceIgnored, fmt.Sprintf(
		"real claim %s/%s in %s was bound to volume %q, which was there before and is no copy: delete this claim once the administrator there "+
			"has made sure that nobody needs that volume",
		b.Claim.Namespace, b.Claim.Name, steps.Where(b.Cluster), b.Volume.Name))
}

// provisionedBy is the annotation of a volume with the provisioner that created it for its
// claim.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// complete says whether a backing claim no longer needs its source: it has a volume, and
// volumes are created with their data.
func complete(b *steps.Backing) bool {
	return b != nil && b.Claim.DeletionTimestamp == nil && b.Claim.Status.Phase == corev1.ClaimBound
}

// otherSource says whether an incomplete backing claim was created as a copy of another
// source, for example of one that was deleted and recreated.
func otherSource(b steps.Backing, to route.Route) bool {
	return to.Source.Name != "" && !complete(&b) && backing.CopyOf(b.Claim) != to.Source.Name
}

// Reasons of claims that are to be made from a snapshot.
const (
	snapshotNotReady = "SnapshotNotReady"
	invalidSnapshot  = "InvalidSnapshot"
)

// Origin says where the data of a snapshot is.
type Origin struct {
	// Cluster is the cluster with the data.
	Cluster string
	// Ref is the snapshot in that cluster if it is a remote one.
	Ref backing.Ref
}

func notReady(text string, details ...any) *Obstacle {
	return &Obstacle{Tell: steps.Note(snapshotNotReady, fmt.Sprintf(text, details...))}
}

// originOf returns where the data of a snapshot is, or why no claim can be made from it,
// wherever its pod runs. It reads the content only: a tenant may be able to write the
// status of a snapshot.
func originOf(claim *corev1.PersistentVolumeClaim, s *steps.Snapshot) (Origin, *Obstacle) {
	name := route.SnapshotOf(claim)
	switch {
	case s.Unknown:
		return Origin{}, &Obstacle{}
	case s.Absent:
		return Origin{},
			&Obstacle{Tell: steps.Warn(snapshotNotReady, fmt.Sprintf("the claim is to be made from VolumeSnapshot %q, but the home cluster has no "+
				"VolumeSnapshots: install their custom resources (%s) and the snapshot controller, or create this claim without a data source", name,
				volumesnapshot.GroupVersion))}
	case s.Object == nil:
		return Origin{}, notReady("waiting for VolumeSnapshot %q, which this claim is to be made from: create it, or delete this claim", name)
	case s.Object.DeletionTimestamp != nil:
		return Origin{}, notReady("VolumeSnapshot %q, which this claim is to be made from, is being deleted: delete this claim too, or create "+
			"the snapshot anew", name)
	case s.Content == nil:
		return Origin{}, notReady("waiting until VolumeSnapshot %q, which this claim is to be made from, has been taken%s", name,
			snapshotError(s.Object.Status.Error))
	case !volumesnapshot.BelongTo(s.Object, s.Content):
		return Origin{},
			&Obstacle{Tell: steps.Warn(invalidSnapshot, fmt.Sprintf("VolumeSnapshot %q says that its content is %q, which belongs to another "+
				"snapshot: create a snapshot anew, and name it in a new claim", name, s.Content.Name))}
	case s.Content.DeletionTimestamp != nil:
		return Origin{}, notReady("what VolumeSnapshot %q has is being deleted: delete this claim, or create the snapshot anew", name)
	case ptr.Deref(s.Content.Status.SnapshotHandle, "") == "" || !ptr.Deref(s.Content.Status.ReadyToUse, false):
		return Origin{}, notReady("waiting until VolumeSnapshot %q, which this claim is to be made from, is ready%s", name,
			snapshotError(s.Content.Status.Error))
	}
	origin := Origin{Cluster: keys.Home}
	if s.Content.Spec.Driver == keys.Driver {
		ref, err := backing.ParseRef(*s.Content.Status.SnapshotHandle)
		if err != nil || ref.Cluster == keys.Home {
			return Origin{},
				&Obstacle{Tell: steps.Warn(invalidSnapshot, fmt.Sprintf("VolumeSnapshotContent %q of VolumeSnapshot %q names no snapshot of a remote "+
					"cluster: its handle must be cluster/namespace/name/uid", s.Content.Name, name))}
		}
		origin = Origin{Cluster: ref.Cluster, Ref: ref}
	}
	return origin, unfitSnapshot(claim, name, s.Content, origin)
}

// unfitSnapshot says why a claim does not fit the snapshot.
func unfitSnapshot(claim *corev1.PersistentVolumeClaim, name string, c *volumesnapshot.Content, origin Origin) *Obstacle {
	want := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if size := ptr.Deref(c.Status.RestoreSize, 0); want.CmpInt64(size) < 0 {
		return invalid("the claim asks for %s, less than the %s of VolumeSnapshot %q, which it is to be made from: create it anew with at "+
			"least as much", want.String(), resource.NewQuantity(size, resource.BinarySI), name)
	}
	// A remote cluster does not know what is allowed at home.
	allowed := origin.Cluster == keys.Home && c.Annotations[volumesnapshot.AllowModeChange] == "true"
	if have := ptr.Deref(c.Spec.SourceMode, mode(claim)); have != mode(claim) && !allowed {
		return invalid("the claim has volumeMode %s, but VolumeSnapshot %q, which it is to be made from, is of a volume with %s: create it "+
			"anew with the same", mode(claim), name, have)
	}
	return nil
}

func snapshotError(failure *volumesnapshot.Failure) string {
	if failure == nil || ptr.Deref(failure.Message, "") == "" {
		return ""
	}
	return ": " + sentence.Cut(*failure.Message, maxMessage)
}

// fromSnapshot returns what the backing claim of a claim is created from on a route, or the
// obstacle.
func fromSnapshot(claim *corev1.PersistentVolumeClaim, s *steps.Snapshot, to route.Route) (types.NamespacedName, *Obstacle) {
	origin, obstacle := originOf(claim, s)
	if obstacle != nil {
		return types.NamespacedName{}, obstacle
	}
	name := route.SnapshotOf(claim)
	if origin.Cluster != to.Cluster {
		return types.NamespacedName{}, &Obstacle{Refusal: &steps.Refusal{Cluster: to.Cluster, Reason: sourceElsewhere, Message: fmt.Sprintf(
			"the data of VolumeSnapshot %q is in %s, and volumes are made from it there: let the pod run there", name, steps.Where(origin.Cluster))}}
	}
	at, driver := s.At, s.Content.Spec.Driver
	if origin.Cluster != keys.Home {
		switch {
		case s.There == nil:
			return types.NamespacedName{}, notReady("waiting until VolumeSnapshot %s in %s, behind VolumeSnapshot %q, is seen: this claim is to "+
				"be made from it", origin.Ref.Key(), steps.Where(origin.Cluster), name)
		case s.There.UID != origin.Ref.UID:
			return types.NamespacedName{},
				&Obstacle{Tell: steps.Warn(invalidSnapshot, fmt.Sprintf("VolumeSnapshot %s in %s is another than that behind VolumeSnapshot %q, "+
					"which is gone: create a snapshot anew, and name it in a new claim", origin.Ref.Key(), steps.Where(origin.Cluster), name))}
		case s.There.DeletionTimestamp != nil:
			return types.NamespacedName{}, notReady("VolumeSnapshot %s in %s, behind VolumeSnapshot %q, is being deleted: create a snapshot anew, "+
				"and name it in a new claim", origin.Ref.Key(), steps.Where(origin.Cluster), name)
		}
		if s.Driver == "" && s.Content.Annotations[volumesnapshot.MemberOf] != "" {
			return types.NamespacedName{}, notReady("waiting until the VolumeGroupSnapshot in %s is seen that VolumeSnapshot %q is a part of: if "+
				"it is gone there, delete this claim", steps.Where(origin.Cluster), name)
		}
		at, driver = origin.Ref.Key(), s.Driver
	}
	return at, unfitDriver(name, driver, to)
}

// unfitDriver refuses a class that would create an empty volume instead of one from the
// snapshot.
func unfitDriver(name, driver string, to route.Route) *Obstacle {
	refuse := func(text string, details ...any) *Obstacle {
		return &Obstacle{Refusal: &steps.Refusal{Cluster: to.Cluster, Reason: otherDriver, Message: fmt.Sprintf(text, details...)}}
	}
	switch maker := to.Driver(); {
	case to.Class.Static:
		return refuse("real storage class %q in %s has hand-made volumes, which are made from no snapshot: use a class of driver %.100q, which "+
			"took VolumeSnapshot %q", to.Class.Name, steps.Where(to.Cluster), driver, name)
	case maker != driver:
		return refuse("VolumeSnapshot %q was taken by driver %.100q, but real storage class %q in %s has %q, and a driver makes volumes from "+
			"its own snapshots only: use a class of the same driver", name, driver, to.Class.Name, steps.Where(to.Cluster), maker)
	}
	return nil
}

// standInOutdated says whether a stand-in names other data than the snapshot does now, for
// example because the snapshot was recreated.
func standInOutdated(o steps.Observation) bool {
	return o.StandIn.Content != nil && o.Source != nil && o.Source.Snapshot != nil && o.Source.Snapshot.Content != nil &&
		!volumesnapshot.StandsFor(o.StandIn.Content, o.Source.Snapshot.Content)
}

// standInStep is the step that a backing claim at home needs before it can be created from
// a snapshot; false if it needs none.
func standInStep(o steps.Observation, to route.Route) (steps.Step, bool) {
	if to.Cluster != keys.Home || o.Source == nil || o.Source.Snapshot == nil || complete(o.BackingIn(keys.Home)) {
		return steps.Step{}, false
	}
	in := o.StandIn
	switch {
	case in.Object != nil && in.Object.DeletionTimestamp != nil || in.Content != nil && in.Content.DeletionTimestamp != nil:
		return steps.Step{After: steps.Slow}, true
	case standInOutdated(o):
		return steps.Step{Action: steps.RemoveStandIn{StandIn: in}}, true
	case in.Object == nil || in.Content == nil:
		return steps.Step{Action: steps.MakeStandIn{StandIn: in}}, true
	case !volumesnapshot.BelongTo(in.Object, in.Content) || !ptr.Deref(in.Object.Status.ReadyToUse, false):
		step := steps.Step{After: steps.Slow}
		if o.Now.Sub(in.Object.CreationTimestamp.Time) >= steps.Slow {
			step.Tell = steps.Note(snapshotNotReady, fmt.Sprintf(
				"waiting until VolumeSnapshot %s/%s, which stands in for %q, is ready: see its events%s", in.Object.Namespace, in.Object.Name,
				route.SnapshotOf(o.Claim), snapshotError(in.Object.Status.Error)))
		}
		return step, true
	}
	return steps.Step{}, false
}

// removeUnusedStandIn replaces an idle step by the deletion of a stand-in that is no longer
// needed: its backing claim has its data, or will never be created.
func removeUnusedStandIn(o steps.Observation, step steps.Step) steps.Step {
	in := o.StandIn
	there := in.Object != nil && in.Object.DeletionTimestamp == nil || in.Object == nil && in.Content != nil &&
		in.Content.DeletionTimestamp == nil
	if step.Action != nil || !there || standInNeeded(o) {
		return step
	}
	step.Action = steps.RemoveStandIn{StandIn: in}
	return step
}

func standInNeeded(o steps.Observation) bool {
	twin := o.BackingIn(keys.Home)
	switch {
	case complete(twin):
		return false
	case twin != nil && twin.Claim.DeletionTimestamp == nil:
		return true
	}
	return o.Volume == nil && !o.HandedOut && o.Claim != nil && o.Claim.DeletionTimestamp == nil && o.Claim.Spec.VolumeName == "" &&
		o.Source != nil && o.Source.Snapshot != nil && o.Node != nil && locality.OfNode(o.Node.Labels) == keys.Home
}

// recordSource is the step that writes on a claim in which cluster it can be made from its
// snapshot or version, so that its pods go there; idle if it is written.
func recordSource(o steps.Observation) steps.Step {
	var origin Origin
	var obstacle *Obstacle
	step, at, version := steps.Step{}, "", ""
	switch {
	case o.Source == nil:
		return step
	case o.Source.Snapshot != nil:
		origin, obstacle = originOf(o.Claim, o.Source.Snapshot)
	case o.Source.Version != nil:
		if origin, obstacle = originOfVersion(o.Claim, o.Source.Version); obstacle == nil && unnamed(o) {
			version = o.Source.Version.Sealed.Name
		}
	default:
		return step
	}
	switch {
	case obstacle == nil:
		at = origin.Cluster
	case obstacle.Tell == nil:
		return step
	default:
		step.Tell = obstacle.Tell
	}
	if o.Claim.Annotations[keys.SourceCluster] != at || version != "" {
		step.Action = steps.RecordSource{In: at, Version: version}
	} else if o.Source.Version != nil {
		step.After = lookAgain(o)
	}
	return step
}
