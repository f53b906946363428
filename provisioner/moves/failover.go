// This file inspects a move that gives a claim a sealed version of a replica, and reads that version.

package moves

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	replica "github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/swap/plan"
)

// fillFailover completes the record of a move that makes the targets of a sealed version, and returns the pods that it would stop now.
// The version is found by the record of the replica, which no tenant can write. All claims of that go together: those of several would
// be of different moments.
func (c *Controller) fillFailover(ctx context.Context, r *record.Record, move *v1alpha1.VolumeMove) (stops []string, err error) {
	wanted := move.Spec.Failover
	copied := c.Replica(r.Namespace, wanted.Replica)
	var all []*lost
	for _, name := range move.Spec.Claims {
		one, err := c.inspectLostClaim(ctx, r, name)
		if err != nil {
			return nil, err
		}
		if one.version, one.of, err = versionOf(copied, one.claim, move); err != nil {
			return nil, err
		}
		if all = append(all, one); all[0].from.Cluster != one.from.Cluster {
			return nil, refuse("the data of claim %q is in cluster %s and that of claim %q in cluster %s, and a failover is from one cluster: "+
				"bring them together first (kubectl lodestone move)", all[0].claim.Name, all[0].from.Cluster, name, one.from.Cluster)
		}
	}
	// The version has the name of what it has of the first one.
	slices.SortFunc(all, func(a, b *lost) int { return a.of - b.of })
	r.Passes = 0
	r.Failover = &record.Failover{Replica: wanted.Replica, Cut: all[0].version.Cut, Declared: wanted.Fence == v1alpha1.FenceDeclared,
		Lease:  wanted.Fence == v1alpha1.FenceLease,
		Others: slices.Repeat([]record.Sealed{{}}, len(all)-1)}
	for i, one := range all {
		has := one.version.At(one.of)
		if copied.Slots {
			r.Failover.Slots = copied.UID
		}
		*r.Failover.At(i) = record.Sealed{Version: has.Name, UID: has.UID, Volume: has.Volume}
		source, err := c.inspectLost(ctx, one.claim, one.from, r.Failover)
		if err != nil {
			return nil, err
		}
		target, err := c.inspectVersionTarget(ctx, r, i, one, copied)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			r.Target = v1alpha1.MovePlace{Cluster: target.Ref.Cluster, Class: target.Class}
		}
		known := record.Claim{Name: one.claim.Name, UID: one.claim.UID, Volume: plan.Remembered(one.volume), Source: *source, Target: *target}
		if err := c.requireNewest(ctx, one.claim, &known); err != nil {
			return nil, err
		}
		if known.Keys, err = moverapi.IssueKeys(r.KeysOf(i), r.Began[v1alpha1.MovePrepare], validity); err != nil {
			return nil, err
		}
		r.Claims = append(r.Claims, known)
	}
	return c.inspectPods(ctx, r)
}

// lost is a claim that is to fail over, its volume, and the real claim of that; of is which claim of the replica it is.
type lost struct {
	claim   *corev1.PersistentVolumeClaim
	volume  *corev1.PersistentVolume
	from    backing.Ref
	version *replica.Version
	of      int
}

// inspectLostClaim returns a claim that is to fail over.
func (c *Controller) inspectLostClaim(ctx context.Context, r *record.Record, name string) (*lost, error) {
	claim, err := c.sites.Home().Claim(ctx, r.Namespace, name)
	if err != nil {
		return nil, err
	}
	if claim == nil {
		return nil, refuse("there is no claim %q in namespace %s: name one that exists", name, r.Namespace)
	}
	volume, err := c.virtualVolume(ctx, claim)
	if err != nil {
		return nil, err
	}
	if err := requireMovable(claim, volume); err != nil {
		return nil, err
	}
	if other := c.Records.blocking(r.UID, claim.UID); other != nil {
		return nil, busyWith(claim, other)
	}
	from, err := backing.RefOf(volume)
	if err != nil {
		return nil, refuse("volume %s of claim %q is not one that Lodestone made: %v", volume.Name, claim.Name, err)
	}
	return &lost{claim: claim, volume: volume, from: from}, nil
}

func versionOf(copied *replica.Record, claim *corev1.PersistentVolumeClaim, move *v1alpha1.VolumeMove) (*replica.Version, int, error) {
	wanted := move.Spec.Failover
	if copied == nil {
		return nil, 0, refuse("there is no VolumeReplica %q in namespace %s that has begun: name one that kubectl get volumereplicas shows",
			wanted.Replica, move.Namespace)
	}
	of := copied.Index(claim.Name)
	switch {
	case of < 0 || copied.At(of).ClaimUID != claim.UID:
		return nil, 0, refuse("VolumeReplica %q is not of claim %q, or of an earlier one of that name: name another", wanted.Replica, claim.Name)
	case len(move.Spec.Claims) != copied.Len():
		return nil, 0, refuse("VolumeReplica %q has claims %s at one moment, and they fail over together: name all of them, and no other",
			wanted.Replica, strings.Join(copied.Claims(), ", "))
	case copied.Head.Cluster != move.Spec.Target.Cluster:
		return nil, 0, refuse("VolumeReplica %q has its versions in cluster %s: name that as the target", wanted.Replica, copied.Head.Cluster)
	}
	version := copied.Version(wanted.Version)
	switch {
	case version == nil && wanted.Version == "":
		return nil, 0, refuse("VolumeReplica %q has sealed nothing yet: there is no version that claim %q could get", wanted.Replica, claim.Name)
	case version == nil:
		return nil, 0, refuse("VolumeReplica %q has no version %q: name one of those in its status", wanted.Replica, wanted.Version)
	}
	return version, of, nil
}

// inspectLost inspects the source of a failover, which may be lost: nothing is read of it, but who uses it must be known, vouched
// for, or have been promised to end.
func (c *Controller) inspectLost(ctx context.Context, claim *corev1.PersistentVolumeClaim, from backing.Ref,
	failover *record.Failover) (*record.Copy, error) {
	source := &record.Copy{Ref: from}
	if err := c.requireStarted(from.Cluster); err != nil {
		return nil, err
	}
	at, why := c.sites.Reach(from.Cluster)
	if why != "" {
		if failover.Declared {
			return source, nil
		}
		silence, err := c.Clusters.Silence(ctx, from.Cluster)
		if err != nil {
			return nil, err
		}
		if failover.Lease && silence.IsPromised() {
			return source, nil
		}
		if failover.Lease {
			return nil, refuse("%s, and fence Lease proves nothing: %s; wait until it answers, or if nobody writes there any more, or what is "+
				"written there does not count, fail over with spec.failover.fence Declared (--fence Declared)", why, silence.Why)
		}
		if silence.IsPromised() {
			return nil, refuse("%s: the data of claim %q is there, and so may be pods that write to it; its remote agent has promised to end "+
				"these: fail over with spec.failover.fence Lease (--fence Lease), which waits for that", why, claim.Name)
		}
		return nil, refuse("%s: the data of claim %q is there, and so may be pods that write to it; wait until it answers, or if nobody writes "+
			"there any more, or what is written there does not count, fail over with spec.failover.fence Declared (--fence Declared)", why,
			claim.Name)
	}
	if err := requireAttachmentsReadable(ctx, at, from.Cluster); err != nil {
		return nil, err
	}
	b, err := at.Claim(ctx, from.Namespace, from.Name)
	if err != nil || b == nil || b.UID != from.UID {
		return source, err
	}
	real, err := at.Volume(ctx, b.Spec.VolumeName)
	if err != nil || real == nil {
		return source, err
	}
	source.Real, source.Class = real.Name, ptr.Deref(b.Spec.StorageClassName, "")
	if at.Home {
		source.Policy = real.Spec.PersistentVolumeReclaimPolicy
	}
	return source, nil
}

// inspectVersionTarget inspects where a claim goes: beside the versions, as a new claim of the class of these, or as the slot that has it.
func (c *Controller) inspectVersionTarget(ctx context.Context, r *record.Record, i int, one *lost,
	of *replica.Record) (*record.Copy, error) {
	claim, copied := one.claim, of.At(one.of)
	node, err := c.targetNode(v1alpha1.MoveTarget{Cluster: copied.Head.Cluster})
	if err != nil {
		return nil, err
	}
	if err := c.requireStarted(copied.Head.Cluster); err != nil {
		return nil, err
	}
	at, why := c.sites.Reach(copied.Head.Cluster)
	if why != "" {
		return nil, refuse("%s: the versions are there; wait until it is ready, and fail over again", why)
	}
	to, err := c.routeTo(claim, copied.Class, node)
	if err != nil {
		return nil, err
	}
	if of.Slots {
		return c.inspectSlot(ctx, at, claim, of, one.of, one.version, to)
	}
	version := r.Failover.At(i)
	version.Deferred = to.Deferred()
	if _, err := c.readVersion(ctx, at, version, copied.Head.Namespace); err != nil {
		return nil, err
	}
	key, err := c.freeName(ctx, at, claim, copied.Head.Cluster)
	if err != nil {
		return nil, err
	}
	if key.Namespace != copied.Head.Namespace {
		return nil, refuse("the versions are in namespace %s of cluster %s, and claim %q belongs in %s there now: the ID or the namespaces of "+
			"home were changed since they were made", copied.Head.Namespace, copied.Head.Cluster, claim.Name, key.Namespace)
	}
	return &record.Copy{Class: to.Class.Name, Ref: backing.Ref{Cluster: copied.Head.Cluster, Namespace: key.Namespace, Name: key.Name}}, nil
}

// readVersion returns the snapshot of a version, which must be as it was sealed.
func (c *Controller) readVersion(ctx context.Context, at site.Site, v *record.Sealed,
	namespace string) (*volumesnapshot.Snapshot, error) {
	s, why, err := c.seenVersion(ctx, at, v, namespace)
	if err == nil && why != "" {
		return nil, refuse("%s: choose another version, or mend that and fail over again", why)
	}
	return s, err
}

// seenVersion returns the snapshot of a version; why says why that cannot be used, or is not as it was sealed.
func (c *Controller) seenVersion(ctx context.Context, at site.Site, v *record.Sealed, namespace string) (s *volumesnapshot.Snapshot,
	why string, err error) {
	if at.Dynamic == nil {
		return nil, "the cluster of the versions serves no VolumeSnapshots now", nil
	}
	key := types.NamespacedName{Namespace: namespace, Name: v.Version}
	s, problem, _, err := frozen.Look(ctx, at, frozen.Wanted{
		NamespacedName: key, Volume: v.Volume, Whose: "a version of this replica",
		Ours: func(s *volumesnapshot.Snapshot) bool {
			return s.UID == v.UID && s.Labels[keys.HomeID] == c.Place.HomeID
		},
	})
	switch {
	case err != nil:
		return nil, "", err
	case s == nil && problem == "" || s != nil && s.DeletionTimestamp != nil:
		return nil, fmt.Sprintf("VolumeSnapshot %s, which has the version, was deleted", key), nil
	case problem != "" || !ptr.Deref(s.Status.ReadyToUse, false):
		return nil, fmt.Sprintf("VolumeSnapshot %s, which has the version, cannot be used%s", key, sentence.Prefixed(": ", problem)), nil
	}
	return s, "", nil
}
