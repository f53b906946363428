package crash

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// kept is the name of the snapshots.
const kept = "kept"

// snapshotFlows take, use and delete snapshots. Those of a claim at home are taken by
// its real driver alone.
func snapshotFlows() []Flow {
	west := places[1]
	whole := func(w *World, c *Case, v *View) error {
		return all(w.bound(v, data, west.cluster), same(c, v), once(c, 1, 1))
	}
	flows := []Flow{
		served(Flow{
			Name: "snapshot-remote", Act: takeSnapshot, Play: playSnapshots,
			Want: func(w *World, c *Case, v *View) error { return all(whole(w, c, v), w.snapped(c)) },
		}, west),
		snapped(Flow{
			Name: "snapshot-delete-remote",
			Act: func(ctx context.Context, w *World, c *Case) error {
				err := w.dynamic[w.Bed.Home].Resource(volumesnapshot.Snapshots).Namespace(c.Namespace).Delete(ctx, kept, metav1.DeleteOptions{})
				if err != nil {
					return fmt.Errorf("delete the snapshot of %s: %w", c.Namespace, err)
				}
				return nil
			},
			Want: func(w *World, c *Case, v *View) error { return all(whole(w, c, v), w.unsnapped(c)) },
		}, west),
	}
	for _, p := range places {
		flows = append(flows, snapped(Flow{
			Name: "restore-" + p.name,
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.create(ctx, c, "copy", now, p.node, func(claim *corev1.PersistentVolumeClaim) {
					claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: kept}
				})
			},
			Want: func(w *World, c *Case, v *View) error {
				return all(w.bound(v, data, p.cluster), w.bound(v, "copy", p.cluster), w.copied(c, v), once(c, 2, 2), w.snapped(c), w.alone(c))
			},
		}, p))
	}
	return flows
}

// snapped is the set-up of a case whose claim has a snapshot.
func snapped(f Flow, p place) Flow {
	f = served(f, p)
	has := f.Ready
	f.Play = playSnapshots
	f.Early = true
	f.Ready = func(w *World, c *Case, v *View) error {
		if err := has(w, c, v); err != nil {
			return err
		}
		snapshot, err := look[volumesnapshot.Snapshot](context.Background(), w, w.Bed.Home, volumesnapshot.Snapshots, c.Namespace, kept)
		if err == nil && snapshot == nil {
			err = takeSnapshot(context.Background(), w, c)
		}
		return all(err, w.snapped(c))
	}
	return f
}

// takeSnapshot takes a snapshot as users do, with a class of the case's own.
func takeSnapshot(ctx context.Context, w *World, c *Case) error {
	meta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: kind}
	}
	if err := w.makeOf(ctx, w.Bed.Home, volumesnapshot.Classes, "", &volumesnapshot.Class{
		TypeMeta: meta("VolumeSnapshotClass"), ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}, Driver: keys.Driver,
	}); err != nil {
		return err
	}
	err := w.makeOf(ctx, w.Bed.Home, volumesnapshot.Snapshots, c.Namespace, &volumesnapshot.Snapshot{
		TypeMeta: meta(volumesnapshot.Kind), ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: kept},
		Spec: volumesnapshot.SnapshotSpec{Source: volumesnapshot.SnapshotSource{ClaimName: ptr.To(data)}, ClassName: ptr.To(c.Namespace)},
	})
	return err
}

// snapped says what is missing of the snapshot of a case. Of one whose data is in
// west there must be exactly one there, which is marked as known at home.
func (w *World) snapped(c *Case) error {
	ctx := context.Background()
	snapshot, err := look[volumesnapshot.Snapshot](ctx, w, w.Bed.Home, volumesnapshot.Snapshots, c.Namespace, kept)
	if err != nil || snapshot == nil || !ptr.Deref(snapshot.Status.ReadyToUse, false) {
		return errors.Join(err, errors.New("the snapshot is not ready"))
	}
	content, err := look[volumesnapshot.Content](ctx, w, w.Bed.Home, volumesnapshot.Contents, "", contentOf(c))
	if err != nil || content == nil || !ptr.Deref(content.Status.ReadyToUse, false) || content.Status.Error != nil || content.DeletionTimestamp != nil {
		return errors.Join(err, fmt.Errorf("the content of the snapshot is not ready: %+v", content))
	}
	there, err := w.snapshotsOf(ctx, w.Bed.West, c.Namespace)
	if err != nil || content.Spec.Driver != keys.Driver {
		return err
	}
	ref, err := backing.ParseRef(ptr.Deref(content.Status.SnapshotHandle, ""))
	switch {
	case err != nil:
		return err
	case len(there) != 1 || there[0].UID != ref.UID:
		return fmt.Errorf("there are %d snapshots in west, not just %s", len(there), ref)
	case there[0].Annotations[keys.Unpublished] != "":
		return errors.New("the snapshot in west is not marked as known at home")
	}
	return nil
}

// unsnapped says what is left of a snapshot that was deleted.
func (w *World) unsnapped(c *Case) error {
	content, err := look[volumesnapshot.Content](context.Background(), w, w.Bed.Home, volumesnapshot.Contents, "", contentOf(c))
	if err != nil || content != nil {
		return errors.Join(err, errors.New("the content of the snapshot is left"))
	}
	there, err := w.snapshotsOf(context.Background(), w.Bed.West, c.Namespace)
	if err != nil || len(there) > 0 {
		return errors.Join(err, fmt.Errorf("%d snapshots are left in west", len(there)))
	}
	return nil
}
