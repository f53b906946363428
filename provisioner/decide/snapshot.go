package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// Reasons of claims that are to be made from a snapshot.
const (
	snapshotNotReady = "SnapshotNotReady"
	invalidSnapshot  = "InvalidSnapshot"
)

// Snapshot is what is known of the VolumeSnapshot that a claim is to be made from.
type Snapshot struct {
	// Unknown is true until it is known whether the home cluster has snapshots;
	// Absent then says that it has none.
	Unknown, Absent bool
	// Object and Content are the snapshot and what it says is its content; nil
	// where there is none.
	Object  *volumesnapshot.Snapshot
	Content *volumesnapshot.Content
	// At is where the stand-in of the snapshot is, for a twin.
	At types.NamespacedName
	// There is the snapshot in the remote cluster that the content names, nil where
	// none is seen.
	There *volumesnapshot.Snapshot
}

// Origin is what the content of a snapshot says of its data.
type Origin struct {
	// Cluster has the data.
	Cluster string
	// Ref is the snapshot in that cluster if it is a remote one.
	Ref backing.Ref
}

func notReady(text string, details ...any) *Obstacle {
	return &Obstacle{Tell: note(snapshotNotReady, fmt.Sprintf(text, details...))}
}

// originOf returns where the data of a snapshot is, or why a claim cannot be made
// from it, wherever its pod runs. Only the content speaks: a tenant may be able to
// write the status of a snapshot.
func originOf(claim *corev1.PersistentVolumeClaim, s *Snapshot) (Origin, *Obstacle) {
	name := route.SnapshotOf(claim)
	switch {
	case s.Unknown:
		return Origin{}, &Obstacle{}
	case s.Absent:
		return Origin{}, &Obstacle{Tell: warn(snapshotNotReady, fmt.Sprintf("the claim is to be made from VolumeSnapshot %q, but the home cluster has no VolumeSnapshots: install their custom resources (%s) and the snapshot controller, or create this claim without a data source", name, volumesnapshot.GroupVersion))}
	case s.Object == nil:
		return Origin{}, notReady("waiting for VolumeSnapshot %q, which this claim is to be made from: create it, or delete this claim", name)
	case s.Object.DeletionTimestamp != nil:
		return Origin{}, notReady("VolumeSnapshot %q, which this claim is to be made from, is being deleted: delete this claim too, or create the snapshot anew", name)
	case s.Content == nil:
		return Origin{}, notReady("waiting until VolumeSnapshot %q, which this claim is to be made from, has been taken%s", name, because(s.Object.Status.Error))
	case !volumesnapshot.BelongTo(s.Object, s.Content):
		return Origin{}, &Obstacle{Tell: warn(invalidSnapshot, fmt.Sprintf("VolumeSnapshot %q says that its content is %q, which belongs to another snapshot: create a snapshot anew, and name it in a new claim", name, s.Content.Name))}
	case s.Content.DeletionTimestamp != nil:
		return Origin{}, notReady("what VolumeSnapshot %q has is being deleted: delete this claim, or create the snapshot anew", name)
	case ptr.Deref(s.Content.Status.SnapshotHandle, "") == "" || !ptr.Deref(s.Content.Status.ReadyToUse, false):
		return Origin{}, notReady("waiting until VolumeSnapshot %q, which this claim is to be made from, is ready%s", name, because(s.Content.Status.Error))
	}
	origin := Origin{Cluster: keys.Home}
	if s.Content.Spec.Driver == keys.Driver {
		ref, err := backing.ParseRef(*s.Content.Status.SnapshotHandle)
		if err != nil || ref.Cluster == keys.Home {
			return Origin{}, &Obstacle{Tell: warn(invalidSnapshot, fmt.Sprintf("VolumeSnapshotContent %q of VolumeSnapshot %q names no snapshot of a remote cluster: its handle must be cluster/namespace/name/uid", s.Content.Name, name))}
		}
		origin = Origin{Cluster: ref.Cluster, Ref: ref}
	}
	return origin, misshapen(claim, name, s.Content, origin)
}

// misshapen says what about a claim does not fit the snapshot.
func misshapen(claim *corev1.PersistentVolumeClaim, name string, c *volumesnapshot.Content, origin Origin) *Obstacle {
	want := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if size := ptr.Deref(c.Status.RestoreSize, 0); want.CmpInt64(size) < 0 {
		return invalid("the claim asks for %s, less than the %s of VolumeSnapshot %q, which it is to be made from: create it anew with at least as much", want.String(), resource.NewQuantity(size, resource.BinarySI), name)
	}
	// A remote cluster knows nothing of what is allowed here.
	allowed := origin.Cluster == keys.Home && c.Annotations[volumesnapshot.AllowModeChange] == "true"
	if have := ptr.Deref(c.Spec.SourceMode, mode(claim)); have != mode(claim) && !allowed {
		return invalid("the claim has volumeMode %s, but VolumeSnapshot %q, which it is to be made from, is of a volume with %s: create it anew with the same", mode(claim), name, have)
	}
	return nil
}

func because(failure *volumesnapshot.Failure) string {
	if failure == nil || ptr.Deref(failure.Message, "") == "" {
		return ""
	}
	return ": " + cut(*failure.Message, maxMessage)
}

// fromSnapshot returns what the backing claim of a claim is to be made from on a
// route, or what is in the way.
func fromSnapshot(claim *corev1.PersistentVolumeClaim, s *Snapshot, to route.Route) (types.NamespacedName, *Obstacle) {
	origin, obstacle := originOf(claim, s)
	if obstacle != nil {
		return types.NamespacedName{}, obstacle
	}
	name := route.SnapshotOf(claim)
	if origin.Cluster != to.Cluster {
		return types.NamespacedName{}, &Obstacle{Refusal: &Refusal{Cluster: to.Cluster, Reason: sourceElsewhere, Message: fmt.Sprintf(
			"the data of VolumeSnapshot %q is in %s, and volumes are made from it there: let the pod run there", name, where(origin.Cluster))}}
	}
	at, driver := s.At, s.Content.Spec.Driver
	if origin.Cluster != keys.Home {
		switch {
		case s.There == nil:
			return types.NamespacedName{}, notReady("waiting until VolumeSnapshot %s in %s, behind VolumeSnapshot %q, is seen: this claim is to be made from it", origin.Ref.Key(), where(origin.Cluster), name)
		case s.There.UID != origin.Ref.UID:
			return types.NamespacedName{}, &Obstacle{Tell: warn(invalidSnapshot, fmt.Sprintf("VolumeSnapshot %s in %s is another than that behind VolumeSnapshot %q, which is gone: create a snapshot anew, and name it in a new claim", origin.Ref.Key(), where(origin.Cluster), name))}
		case s.There.DeletionTimestamp != nil:
			return types.NamespacedName{}, notReady("VolumeSnapshot %s in %s, behind VolumeSnapshot %q, is being deleted: create a snapshot anew, and name it in a new claim", origin.Ref.Key(), where(origin.Cluster), name)
		}
		at, driver = origin.Ref.Key(), s.There.Annotations[keys.MadeBy]
	}
	return at, otherMaker(name, driver, to)
}

// otherMaker refuses a class that would make an empty volume of a snapshot.
func otherMaker(name, driver string, to route.Route) *Obstacle {
	refuse := func(text string, details ...any) *Obstacle {
		return &Obstacle{Refusal: &Refusal{Cluster: to.Cluster, Reason: otherDriver, Message: fmt.Sprintf(text, details...)}}
	}
	switch maker := to.Driver(); {
	case to.Class.Static:
		return refuse("real storage class %q in %s has hand-made volumes, which are made from no snapshot: use a class of driver %.100q, which took VolumeSnapshot %q", to.Class.Name, where(to.Cluster), driver, name)
	case maker != driver:
		return refuse("VolumeSnapshot %q was taken by driver %.100q, but real storage class %q in %s has %q, and a driver makes volumes from its own snapshots only: use a class of the same driver", name, driver, to.Class.Name, where(to.Cluster), maker)
	}
	return nil
}
