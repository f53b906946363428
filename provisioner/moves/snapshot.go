package moves

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// snapshot makes or removes the snapshot of a source, or the claim made of it.
func (c *Controller) snapshot(ctx context.Context, w *work, o decide.Observation, step decide.Step) error {
	r, i := o.Record, step.Claim
	known, seen := &r.Claims[i], o.Claims[i]
	at, err := c.must(known.Source.Ref.Cluster)
	if err != nil {
		return err
	}
	ref := known.Snapshot.Ref
	switch step.Verb {
	case decide.MakeSnapshot:
		return w.asked(i, c.makeSnapshot(ctx, at, r, i))
	case decide.MakeClone:
		return w.asked(i, c.makeClone(ctx, at, r, i, seen))
	case decide.DropClone:
		err := at.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Delete(ctx, ref.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &seen.Snapshot.Backing.UID}})
		return ignoreGone(err, "delete the claim made of snapshot "+ref.Key().String())
	default: // DropSnapshot
		err := at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(ref.Namespace).Delete(ctx, ref.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &seen.Snapshot.UID}})
		return ignoreGone(err, "delete snapshot "+ref.Key().String())
	}
}

// asked keeps what an API server has against a snapshot, or a claim made of it: that is
// seen in the next turn, and the snapshot given up. Other errors it returns.
func (w *work) asked(i int, err error) error {
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err):
		if w.refused == nil {
			w.refused = map[int]string{}
		}
		w.refused[i] = sentence(err.Error())
		return nil
	}
	return err
}

// ofSnapshot are the labels of a snapshot and of the claim made of it.
func (c *Controller) ofSnapshot(r *record.Record) map[string]string {
	return map[string]string{keys.MoveOf: string(r.UID), keys.HomeID: c.Place.HomeID}
}

// makeSnapshot makes the snapshot of the source of a claim.
func (c *Controller) makeSnapshot(ctx context.Context, at site, r *record.Record, i int) error {
	known := &r.Claims[i]
	ref := known.Snapshot.Ref
	// The name alone goes into the snapshot, so whose it is now must be certain.
	b, err := claimAt(ctx, at, known.Source.Ref.Namespace, known.Source.Ref.Name)
	if err != nil {
		return err
	}
	if b == nil || b.UID != known.Source.Ref.UID {
		return fmt.Errorf("real claim %s is gone, or another", known.Source.Ref.Key())
	}
	encoded, err := volumesnapshot.Write(&volumesnapshot.Snapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: volumesnapshot.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, Labels: c.ofSnapshot(r)},
		Spec:       volumesnapshot.SnapshotSpec{Source: volumesnapshot.SnapshotSource{ClaimName: &known.Source.Ref.Name}, ClassName: &known.Snapshot.By},
	})
	if err != nil {
		return err
	}
	if _, err = at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(ref.Namespace).Create(ctx, encoded, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("take snapshot %s: %w", ref.Key(), err)
	}
	return nil
}

// makeClone makes a claim of the snapshot, for the mover alone.
func (c *Controller) makeClone(ctx context.Context, at site, r *record.Record, i int, seen decide.Claim) error {
	known := &r.Claims[i]
	ref, source := known.Snapshot.Ref, seen.Source.Backing
	if source == nil {
		return fmt.Errorf("real claim %s is gone", known.Source.Ref.Key())
	}
	taken, problem, _, err := c.taken(ctx, at, r, i)
	if err != nil {
		return err
	}
	if taken == nil || problem != "" || !ptr.Deref(taken.Status.ReadyToUse, false) {
		return fmt.Errorf("snapshot %s is not ready any more: %s", ref.Key(), problem)
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
			Namespace: ref.Namespace, Name: ref.Name, Labels: c.ofSnapshot(r),
			// No virtual volume ever stands for it.
			Annotations: map[string]string{keys.Unpublished: "true"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: source.Spec.AccessModes, VolumeMode: source.Spec.VolumeMode, StorageClassName: &known.Source.Class,
			Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			DataSource: fromSnapshot(ref.Name),
		},
	}
	if _, err := at.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Create(ctx, clone, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a claim of snapshot %s: %w", ref.Key(), err)
	}
	return nil
}

// fromSnapshot is the data source of a claim that is made of a snapshot beside it.
func fromSnapshot(name string) *corev1.TypedLocalObjectReference {
	return &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: name}
}
