package moves

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// observeSnapshot looks at the snapshot of the source of a claim, and what was made of it.
func (c *Controller) observeSnapshot(ctx context.Context, w *work, o *decide.Observation, i int, seen *decide.Claim) error {
	cluster := o.Record.Claims[i].Source.Ref.Cluster
	at, why := c.reach(cluster)
	if why != "" {
		o.Unusable[record.Source] = why
		return nil
	}
	found, err := c.snapshotAt(ctx, at, o.Record, i)
	switch {
	case err != nil && at.home:
		return err
	case err != nil:
		c.suspect(cluster)
		o.Unusable[record.Source] = fmt.Sprintf("cluster %s cannot be asked now: %v", cluster, err)
		return nil
	}
	if refused := w.refused[i]; refused != "" && !found.Refused {
		found.Problem, found.Refused = refused, true
	}
	seen.Snapshot = found
	return nil
}

func (c *Controller) snapshotAt(ctx context.Context, at site, r *record.Record, i int) (seen decide.Snapshot, err error) {
	ctx, cancel := at.patience(ctx)
	defer cancel()
	known := &r.Claims[i]
	ref := known.Snapshot.Ref
	taken, problem, wrong, err := c.taken(ctx, at, r, i)
	if err != nil {
		return seen, err
	}
	seen.Problem, seen.Refused = problem, wrong
	if taken != nil {
		seen.Exists, seen.UID, seen.Leaving = true, taken.UID, taken.DeletionTimestamp != nil
		seen.Ready = problem == "" && ptr.Deref(taken.Status.ReadyToUse, false)
	}
	if err := behind(ctx, at, &known.Snapshot.Copy, &seen.Side); err != nil {
		return seen, err
	}
	clone := seen.Backing
	seen.Backing = nil
	switch {
	case clone == nil:
	case !c.isOurs(clone, r):
		seen.Problem, seen.Refused = fmt.Sprintf("a claim %s is there already and is not this move's: remove it there", ref.Key()), true
	default:
		if seen.Backing = clone; !equality.Semantic.DeepEqual(clone.Spec.DataSource, fromSnapshot(ref.Name)) {
			seen.Problem, seen.Refused = fmt.Sprintf("claim %s is not made of this move's snapshot: see who made it", ref.Key()), true
		}
	}
	seen.Mover, _, err = c.moverAt(ctx, at, r, i, record.Snapped)
	return seen, err
}

// isOurs says whether a snapshot, or a claim made of one, says that it is a move's. Users
// of a remote namespace can write that too; what they gain is in docs/security.md.
func (c *Controller) isOurs(object metav1.Object, r *record.Record) bool {
	labels := object.GetLabels()
	return labels[keys.MoveOf] == string(r.UID) && labels[keys.HomeID] == c.Place.HomeID
}

// taken returns the snapshot of the source of a claim, nil if there is none of this move.
// problem says why it cannot be used, or not yet, and wrong that it never can.
func (c *Controller) taken(ctx context.Context, at site, r *record.Record, i int) (s *volumesnapshot.Snapshot, problem string, wrong bool, err error) {
	ref := r.Claims[i].Snapshot.Ref
	object, err := at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", false, nil
	}
	if err != nil {
		return nil, "", false, fmt.Errorf("look at snapshot %s: %w", ref.Key(), err)
	}
	if s, err = volumesnapshot.Read[volumesnapshot.Snapshot](object); err != nil {
		return nil, "", false, err
	}
	if !at.home {
		clusters.TrustedSnapshot(s)
	}
	if !c.isOurs(s, r) {
		return nil, fmt.Sprintf("a VolumeSnapshot %s is there already and is not this move's: remove it there", ref.Key()), true, nil
	}
	if name := ptr.Deref(s.Status.ContentName, ""); name != "" {
		object, err := at.Dynamic.Resource(volumesnapshot.Contents).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return s, "its VolumeSnapshotContent is gone", false, nil
		case apierrors.IsForbidden(err):
			return s, "home may not look at VolumeSnapshotContents there: apply deploy/remote of this version in it", true, nil
		case err != nil:
			return s, "", false, fmt.Errorf("look at content %s: %w", name, err)
		}
		content, err := volumesnapshot.Read[volumesnapshot.Content](object)
		if err != nil {
			return s, "", false, err
		}
		if why := notOf(&r.Claims[i], s, content); why != "" {
			return s, why, true, nil
		}
	}
	if failed := s.Status.Error; failed != nil && !ptr.Deref(s.Status.ReadyToUse, false) {
		problem = sentence(ptr.Deref(failed.Message, "it failed"))
	}
	return s, problem, false, nil
}

// notOf says why a snapshot is not one of the source of a claim that can be removed again;
// empty if it is.
func notOf(known *record.Claim, s *volumesnapshot.Snapshot, content *volumesnapshot.Content) string {
	switch {
	case ptr.Deref(s.Spec.Source.ClaimName, "") != known.Source.Ref.Name:
		return "it is of another claim than " + known.Source.Ref.Name + ": see who made it"
	case !volumesnapshot.BelongTo(s, content):
		return fmt.Sprintf("VolumeSnapshotContent %s is not its own: see who made it", sentence(content.Name))
	case content.Spec.Driver != known.Snapshot.Driver || ptr.Deref(content.Spec.Source.VolumeHandle, "") != known.Snapshot.Handle:
		return fmt.Sprintf("VolumeSnapshotContent %s is of another volume: see who made it", sentence(content.Name))
	case content.Spec.DeletionPolicy != volumesnapshot.Delete:
		return fmt.Sprintf("VolumeSnapshotContent %s stays when its snapshot is deleted (deletionPolicy %s): remove it by hand", sentence(content.Name), sentence(content.Spec.DeletionPolicy))
	}
	return ""
}
