package moves

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// dropClone deletes the claim that was created from the snapshot.
func (c *Controller) dropClone(ctx context.Context, r *record.Record, i int, seen steps.Snapshot) error {
	at, err := c.sites.At(r.Claims[i].Source.Ref.Cluster)
	if err != nil {
		return err
	}
	ref := r.Claims[i].Snapshot.Ref
	err = at.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Delete(ctx, ref.Name, only(seen.Backing.UID))
	return site.IgnoreGone(err, "delete the claim made of snapshot "+ref.Key().String())
}

// dropSnapshot deletes the snapshot of the source of a claim.
func (c *Controller) dropSnapshot(ctx context.Context, r *record.Record, i int, seen steps.Snapshot) error {
	at, err := c.sites.At(r.Claims[i].Source.Ref.Cluster)
	if err != nil {
		return err
	}
	ref := r.Claims[i].Snapshot.Ref
	err = at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(ref.Namespace).Delete(ctx, ref.Name, only(seen.UID))
	return site.IgnoreGone(err, "delete snapshot "+ref.Key().String())
}

// noteRefusal records why an API server refuses a snapshot, or a claim from it: after the
// next observation the snapshot is given up. Other errors are returned.
func (w *activeMove) noteRefusal(i int, err error) error {
	why, err := frozen.RefusalOf(err)
	if why == "" {
		return err
	}
	w.claim(i).refused = why
	return nil
}

// snapshotLabels are the labels of a snapshot and of the claim created from it.
func (c *Controller) snapshotLabels(r *record.Record) map[string]string {
	return map[string]string{keys.MoveOf: string(r.UID), keys.HomeID: c.Place.HomeID}
}

// makeSnapshot creates the snapshot of the source of a claim.
func (c *Controller) makeSnapshot(ctx context.Context, r *record.Record, i int) error {
	known := &r.Claims[i]
	at, err := c.sites.At(known.Source.Ref.Cluster)
	if err != nil {
		return err
	}
	return frozen.Take(ctx, at, known.Source.Ref, known.Snapshot.Ref.Name, known.Snapshot.By, c.snapshotLabels(r), nil)
}

// makeClone creates a claim from the snapshot, for the mover only.
func (c *Controller) makeClone(ctx context.Context, r *record.Record, i int, seen steps.Claim) error {
	known := &r.Claims[i]
	at, err := c.sites.At(known.Source.Ref.Cluster)
	if err != nil {
		return err
	}
	if seen.Source.Backing == nil {
		return fmt.Errorf("real claim %s is gone", known.Source.Ref.Key())
	}
	taken, problem, _, err := c.getSnapshot(ctx, at, r, i)
	if err != nil {
		return err
	}
	if taken == nil || problem != "" || !ptr.Deref(taken.Status.ReadyToUse, false) {
		return fmt.Errorf("snapshot %s is not ready any more: %s", known.Snapshot.Key(), problem)
	}
	return frozen.Clone(ctx, at, taken, seen.Source.Backing, known.Snapshot.Ref.Name, known.Source.Class, c.snapshotLabels(r))
}

// observeFallBacks finds out which snapshots can be taken of the copies at the source of a committed move before a later one
// writes to them.
func (c *Controller) observeFallBacks(ctx context.Context, o *steps.Observation) error {
	r := o.Record
	if r.Phase != v1alpha1.MoveRetain || o.Taker == "" || r.HandedTo != "" || o.Source.Unusable != "" {
		return nil
	}
	for i := range r.Claims {
		known := &r.Claims[i]
		if known.Snapshot != nil && known.Snapshot.Keeps {
			continue
		}
		ref := backing.Ref{Cluster: known.Source.Ref.Cluster, Namespace: known.Source.Ref.Namespace, Name: r.MoverName(i, record.Snapped)}
		taken, why, err := c.snapshotOf(ctx, ref.Name, &known.Source)
		switch {
		case err != nil && ref.Cluster == keys.Home:
			return err
		case err != nil:
			c.sites.Recheck(ref.Cluster)
			o.Source.Unusable = fmt.Sprintf("cluster %s cannot be asked now: %v", ref.Cluster, err)
			return nil
		case taken == nil:
			taken = &record.Snapshot{Copy: record.Copy{Ref: ref}, Gone: true, Why: why}
		}
		taken.Keeps = true
		o.Claims[i].FallBack = taken
	}
	return nil
}

// observeSnapshot reads the snapshot of the source of a claim, and what was created from
// it.
func (c *Controller) observeSnapshot(ctx context.Context, w *activeMove, o *steps.Observation, i int, seen *steps.Claim) error {
	cluster := o.Record.Claims[i].Source.Ref.Cluster
	at, why := c.sites.Reach(cluster)
	if why != "" {
		o.Source.Unusable = why
		return nil
	}
	found, err := c.readSnapshot(ctx, at, o.Record, i)
	switch {
	case err != nil && at.Home:
		return err
	case err != nil:
		c.sites.Recheck(cluster)
		o.Source.Unusable = fmt.Sprintf("cluster %s cannot be asked now: %v", cluster, err)
		return nil
	}
	if refused := w.claim(i).refused; refused != "" && !found.Refused {
		found.Problem, found.Refused = refused, true
	}
	seen.Snapshot = found
	return nil
}

func (c *Controller) readSnapshot(ctx context.Context, at site.Site, r *record.Record, i int) (seen steps.Snapshot, err error) {
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	known := &r.Claims[i]
	ref := known.Snapshot.Ref
	taken, problem, wrong, err := c.getSnapshot(ctx, at, r, i)
	if err != nil {
		return seen, err
	}
	seen.Problem, seen.Refused = problem, wrong
	if taken != nil {
		seen.Exists, seen.UID, seen.Leaving = true, taken.UID, taken.DeletionTimestamp != nil
		seen.Ready = problem == "" && ptr.Deref(taken.Status.ReadyToUse, false)
		seen.Untouched = ptr.Deref(taken.Status.ContentName, "") == "" && taken.Status.Error == nil
	}
	if err := observeBacking(ctx, at, &known.Snapshot.Copy, &seen.Side); err != nil {
		return seen, err
	}
	clone := seen.Backing
	seen.Backing = nil
	switch {
	case clone == nil:
	case !c.isOurs(clone, r):
		seen.Problem, seen.Refused = fmt.Sprintf("a claim %s is there already and is not this move's: remove it there", ref.Key()), true
	default:
		if seen.Backing = clone; !equality.Semantic.DeepEqual(clone.Spec.DataSource, frozen.From(known.Snapshot.Key().Name)) {
			seen.Problem, seen.Refused = fmt.Sprintf("claim %s is not made of this move's snapshot: see who made it", ref.Key()), true
		}
	}
	seen.Mover, err = c.moverAt(ctx, at, r, i, record.Snapped)
	return seen, err
}

// isOurs says whether the labels of a snapshot, or of a claim from one, name this move.
// Users of a remote namespace can write those, too; docs/security.md says what they gain by
// it.
func (c *Controller) isOurs(object metav1.Object, r *record.Record) bool {
	labels := object.GetLabels()
	return labels[keys.MoveOf] == string(r.UID) && labels[keys.HomeID] == c.Place.HomeID
}

// getSnapshot returns the snapshot of the source of a claim, nil if this move has none.
// problem says why it cannot be used, or not yet, and wrong that it never can.
func (c *Controller) getSnapshot(ctx context.Context, at site.Site, r *record.Record, i int) (s *volumesnapshot.Snapshot, problem string,
	wrong bool, err error) {
	known := &r.Claims[i]
	want := frozen.Wanted{NamespacedName: known.Snapshot.Key(), Claim: known.Source.Ref.Name, Volume: volumeOf(known.Snapshot),
		Ours: func(s *volumesnapshot.Snapshot) bool { return c.isOurs(s, r) }, Whose: "this move's"}
	if known.Snapshot.Taken != "" {
		want.Claim, want.Ours = "", func(s *volumesnapshot.Snapshot) bool { return frozen.IsMember(s, r.Group.UID) }
	}
	return frozen.Look(ctx, at, want)
}

// volumeOf is the volume that a snapshot must be of.
func volumeOf(known *record.Snapshot) volumesnapshot.Volume {
	return volumesnapshot.Volume{Driver: known.Driver, Handle: known.Handle}
}
