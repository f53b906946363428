package moves

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
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
	why, err := refusalOf(err)
	if why == "" {
		return err
	}
	if w.refused == nil {
		w.refused = map[int]string{}
	}
	w.refused[i] = why
	return nil
}

// refusalOf returns why an API server refuses a request that it would refuse again; other errors are
// returned, except that the object is there already.
func refusalOf(err error) (why string, other error) {
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return "", nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err):
		return plain(err.Error()), nil
	}
	return "", err
}

// snapshotLabels are the labels of a snapshot and of the claim created from it.
func (c *Controller) snapshotLabels(r *record.Record) map[string]string {
	return map[string]string{keys.MoveOf: string(r.UID), keys.HomeID: c.Place.HomeID}
}

// makeSnapshot creates the snapshot of the source of a claim.
func (c *Controller) makeSnapshot(ctx context.Context, r *record.Record, i int) error {
	known := &r.Claims[i]
	ref := known.Snapshot.Ref
	at, err := c.sites.At(known.Source.Ref.Cluster)
	if err != nil {
		return err
	}
	// The VolumeSnapshot names its claim without a UID, so check now that the claim is the
	// move's source.
	b, err := at.Claim(ctx, known.Source.Ref.Namespace, known.Source.Ref.Name)
	if err != nil {
		return err
	}
	if b == nil || b.UID != known.Source.Ref.UID {
		return fmt.Errorf("real claim %s is gone, or another", known.Source.Ref.Key())
	}
	encoded, err := volumesnapshot.Write(&volumesnapshot.Snapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: volumesnapshot.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, Labels: c.snapshotLabels(r)},
		Spec: volumesnapshot.SnapshotSpec{Source: volumesnapshot.SnapshotSource{ClaimName: &known.Source.Ref.Name},
			ClassName: &known.Snapshot.By},
	})
	if err != nil {
		return err
	}
	if _, err = at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(ref.Namespace).Create(ctx, encoded,
		metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("take snapshot %s: %w", ref.Key(), err)
	}
	return nil
}

// makeClone creates a claim from the snapshot, for the mover only.
func (c *Controller) makeClone(ctx context.Context, r *record.Record, i int, seen steps.Claim) error {
	known := &r.Claims[i]
	ref, from, source := known.Snapshot.Ref, known.Snapshot.Key(), seen.Source.Backing
	at, err := c.sites.At(known.Source.Ref.Cluster)
	if err != nil {
		return err
	}
	if source == nil {
		return fmt.Errorf("real claim %s is gone", known.Source.Ref.Key())
	}
	taken, problem, _, err := c.getSnapshot(ctx, at, r, i)
	if err != nil {
		return err
	}
	if taken == nil || problem != "" || !ptr.Deref(taken.Status.ReadyToUse, false) {
		return fmt.Errorf("snapshot %s is not ready any more: %s", from, problem)
	}
	size := source.Status.Capacity[corev1.ResourceStorage]
	if asked := source.Spec.Resources.Requests[corev1.ResourceStorage]; asked.Cmp(size) > 0 {
		size = asked
	}
	if needed := taken.Status.RestoreSize; needed != nil && needed.Cmp(size) > 0 {
		size = *needed
	}
	clone := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ref.Namespace, Name: ref.Name, Labels: c.snapshotLabels(r),
			// It never gets a virtual volume.
			Annotations: map[string]string{keys.Unpublished: "true"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: source.Spec.AccessModes, VolumeMode: source.Spec.VolumeMode, StorageClassName: &known.Source.Class,
			Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			DataSource: fromSnapshot(from.Name),
		},
	}
	if _, err := at.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Create(ctx, clone, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a claim of snapshot %s: %w", from, err)
	}
	return nil
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

// fromSnapshot is the data source of a claim that is created from a snapshot in its
// namespace.
func fromSnapshot(name string) *corev1.TypedLocalObjectReference {
	return &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: name}
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
	if refused := w.refused[i]; refused != "" && !found.Refused {
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
		if seen.Backing = clone; !equality.Semantic.DeepEqual(clone.Spec.DataSource, fromSnapshot(known.Snapshot.Key().Name)) {
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
	ref := r.Claims[i].Snapshot.Key()
	object, err := at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", false, nil
	}
	if err != nil {
		return nil, "", false, fmt.Errorf("look at snapshot %s: %w", ref, err)
	}
	if s, err = volumesnapshot.Read[volumesnapshot.Snapshot](object); err != nil {
		return nil, "", false, err
	}
	if !at.Home {
		remote.TrustedSnapshot(s)
	}
	if taken := r.Claims[i].Snapshot.Taken != ""; taken && !isMember(s, r.Group.UID) || !taken && !c.isOurs(s, r) {
		return nil, fmt.Sprintf("a VolumeSnapshot %s is there already and is not this move's: remove it there", ref), true, nil
	}
	if name := ptr.Deref(s.Status.ContentName, ""); name != "" {
		content, problem, wrong, err := getContent(ctx, at, name)
		if err != nil || problem != "" {
			return s, problem, wrong, err
		}
		if why := whyForeign(&r.Claims[i], s, content); why != "" {
			return s, why, true, nil
		}
	}
	if failed := s.Status.Error; failed != nil && !ptr.Deref(s.Status.ReadyToUse, false) {
		problem = plain(ptr.Deref(failed.Message, "it failed"))
	}
	return s, problem, false, nil
}

// getContent returns a VolumeSnapshotContent. problem says why it cannot be read, and wrong that it
// never can.
func getContent(ctx context.Context, at site.Site, name string) (content *volumesnapshot.Content, problem string, wrong bool, err error) {
	object, err := at.Dynamic.Resource(volumesnapshot.Contents).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "its VolumeSnapshotContent is gone", false, nil
	case apierrors.IsForbidden(err):
		return nil, "home may not look at VolumeSnapshotContents there: apply deploy/remote of this version in it", true, nil
	case err != nil:
		return nil, "", false, fmt.Errorf("look at content %s: %w", name, err)
	}
	content, err = volumesnapshot.Read[volumesnapshot.Content](object)
	return content, "", false, err
}

// isOfVolume says whether a content is a snapshot of the volume that is moved.
func isOfVolume(known *record.Snapshot, content *volumesnapshot.Content) bool {
	return content.Spec.Driver == known.Driver && ptr.Deref(content.Spec.Source.VolumeHandle, "") == known.Handle
}

// whyForeign says why a snapshot is not of the claim's source, or cannot be deleted again;
// empty if it is and can.
func whyForeign(known *record.Claim, s *volumesnapshot.Snapshot, content *volumesnapshot.Content) string {
	switch {
	case known.Snapshot.Taken == "" && ptr.Deref(s.Spec.Source.ClaimName, "") != known.Source.Ref.Name:
		return "it is of another claim than " + known.Source.Ref.Name + ": see who made it"
	case !volumesnapshot.BelongTo(s, content):
		return fmt.Sprintf("VolumeSnapshotContent %s is not its own: see who made it", plain(content.Name))
	case !isOfVolume(known.Snapshot, content):
		return fmt.Sprintf("VolumeSnapshotContent %s is of another volume: see who made it", plain(content.Name))
	case content.Spec.DeletionPolicy != volumesnapshot.Delete:
		return fmt.Sprintf("VolumeSnapshotContent %s stays when its snapshot is deleted (deletionPolicy %s): remove it by hand",
			plain(content.Name), plain(content.Spec.DeletionPolicy))
	}
	return ""
}
