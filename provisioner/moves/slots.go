// This file has failovers to versions that a replica keeps in slots: real claims that are written in turn, without snapshots.

package moves

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	replica "github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// inspectSlot inspects the slot of a version, which is to be the target of a claim.
func (c *Controller) inspectSlot(ctx context.Context, at site.Site, claim *corev1.PersistentVolumeClaim, copied *replica.Record, of int,
	version *replica.Version, to route.Route) (*record.Copy, error) {
	slot, ok := copied.SlotOf(of, version.At(of))
	if !ok {
		return nil, refuse("the version of claim %q is not there any more: fail over again, or name one that the status of VolumeReplica %q has",
			claim.Name, copied.Name)
	}
	key, err := c.placeOf(at, claim, slot.Cluster)
	if err != nil {
		return nil, err
	}
	if key.Namespace != slot.Namespace {
		return nil, refuse("the versions are in namespace %s of cluster %s, and claim %q belongs in %s there now: the ID or the namespaces of "+
			"home were changed since they were made", slot.Namespace, slot.Cluster, claim.Name, key.Namespace)
	}
	b, err := at.Claim(ctx, slot.Namespace, slot.Name)
	switch {
	case err != nil:
		return nil, err
	case b == nil || b.UID != slot.UID || b.DeletionTimestamp != nil || b.Labels[keys.ReplicaOf] != string(copied.UID):
		return nil, refuse("real claim %s, which has the version of claim %q, was deleted, or is the replica's no more: choose another version",
			slot.Key(), claim.Name)
	case !version.IsIn(of, b.Annotations[keys.Seal]):
		return nil, refuse("real claim %s does not say that it has the version of claim %q: it was written to since home knew that, as where "+
			"home was restored from a backup; choose another version, or wait until a newer one is sealed", slot.Key(), claim.Name)
	case b.Spec.VolumeName == "":
		return nil, refuse("real claim %s, which has the version of claim %q, has no volume: see its events in cluster %s", slot.Key(),
			claim.Name, slot.Cluster)
	}
	slot.UID = "" // it has it once the move has taken it
	return &record.Copy{Class: to.Class.Name, Ref: slot}, nil
}

// placeOf is where the backing claim of a new claim would be.
func (c *Controller) placeOf(at site.Site, claim *corev1.PersistentVolumeClaim, cluster string) (types.NamespacedName, error) {
	if at.Home {
		return c.Place.Of(cluster, "", types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, claim.UID), nil
	}
	return c.defaultName(at, claim, cluster)
}

// observeSlots finds out whether the replica still counts the versions whose slots a move is about to take.
func (c *Controller) observeSlots(o *steps.Observation) {
	r := o.Record
	if !r.TakesSlots() {
		return
	}
	copied := c.Replica(r.Namespace, r.Failover.Replica)
	for i := range r.Claims {
		o.Claims[i].Overwritten = copied == nil || copied.UID != r.Failover.Slots || !counts(copied, r.Failover.At(i))
	}
}

// counts says whether a replica has a version of which a slot has a part.
func counts(copied *replica.Record, has *record.Sealed) bool {
	for v := range copied.Sealed {
		for i := range copied.Len() {
			if version := &copied.Sealed[v]; version.At(i).UID == has.UID && version.At(i).Name == has.Version && !version.Going {
				return true
			}
		}
	}
	return false
}

// takeSlot marks the slot of a version as the target of a move, as if it had been made for it, if its resource version is unchanged. It
// keeps the mark of the replica until it is published.
func (c *Controller) takeSlot(ctx context.Context, o steps.Observation, a steps.TakeSlot) error {
	b, known, generation := o.Claims[a.Claim].Target.Backing, &o.Record.Claims[a.Claim], ""
	if n := known.Generation; n > 0 {
		generation = fmt.Sprintf(`,%q:%q`, keys.Generation, strconv.FormatInt(n, 10))
	}
	return c.patchBacking(ctx, &known.Target, b, types.StrategicMergePatchType,
		fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"labels":{%q:%q,%q:%q},"annotations":{%q:"true",%q:%q%s},"finalizers":[%q]}}`,
			b.UID, b.ResourceVersion, keys.MoveOf, o.Record.UID, keys.ClaimUID, known.UID, keys.Unpublished, keys.Claim,
			o.Record.Namespace+"/"+known.Name, generation, keys.BackingFinalizer))
}

// returnSlot gives a slot back to its replica, as it was, if no virtual volume stands for it.
func (c *Controller) returnSlot(ctx context.Context, o steps.Observation, a steps.ReturnSlot) error {
	b, known := o.Claims[a.Claim].Target.Backing, &o.Record.Claims[a.Claim]
	if err := c.requireUnused(ctx, o, b); err != nil {
		return err
	}
	without := ""
	if backing.Protected(b) {
		without = fmt.Sprintf(`,"$deleteFromPrimitiveList/finalizers":[%q]`, keys.BackingFinalizer)
	}
	return c.patchBacking(ctx, &known.Target, b, types.StrategicMergePatchType,
		fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"labels":{%q:null,%q:null,%q:%q},"annotations":{%q:"true",%q:null,%q:null}%s}}`,
			b.UID, b.ResourceVersion, keys.MoveOf, keys.ClaimUID, keys.ReplicaOf, o.Record.Failover.Slots, keys.Unpublished, keys.Claim,
			keys.Generation, without))
}
