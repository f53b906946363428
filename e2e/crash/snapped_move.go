package crash

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// homeDriver is the CSI driver of the volumes at home.
const homeDriver = "disk.home.test"

// takeForMoves has the real storage of home take snapshots for moves, and make volumes of
// them with what is in their source then.
func (w *World) takeForMoves(ctx context.Context) error {
	if err := w.defineSnapshots(ctx); err != nil {
		return err
	}
	class := fmt.Sprintf(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotClass, metadata: {name: %[1]s}, driver: %[1]s, deletionPolicy: Delete}`, homeDriver)
	if _, err := w.Bed.Home.Kubectl(ctx, class, "apply", "-f", "-"); err != nil {
		return fmt.Errorf("make a class of snapshots: %w", err)
	}
	w.Bed.HomeStorage.SetSnapshots(w.clone)
	return nil
}

// clone fills the folder of the volume that is about to be made of a move's snapshot, whose
// claim has the snapshot's name.
func (w *World) clone(ctx context.Context, namespace, name string) (string, error) {
	handle, err := w.source(ctx, w.Bed.Home, namespace, name)
	if err != nil {
		return "", err
	}
	claim, err := w.Bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get the claim made of snapshot %s: %w", name, err)
	}
	folder := func(handle string) (string, error) {
		return w.Bed.Disks.Of(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: homeDriver, VolumeHandle: handle}}}})
	}
	from, wrong := folder(handle)
	to, err := folder(homeDriver + "-pvc-" + string(claim.UID))
	if err := errors.Join(wrong, err); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		return "", fmt.Errorf("copy what is in the snapshot: %w: %s", err, out)
	}
	return handle, nil
}

// snapshotted is a flow of moves of a ReadWriteOncePod claim, from a snapshot.
func (t trip) snapshotted(name string) Flow {
	t.single = true
	f := t.flow(name)
	f.Play = func(ctx context.Context, w *World, c *Case, v *View) error {
		return errors.Join(w.playMoveSnapshot(ctx, c, v), w.watchMove(ctx, c, v))
	}
	f.Want = func(w *World, c *Case, v *View) error {
		return all(w.movedTo(c, v, t), w.noSnapshot(context.Background(), c), snapshotSeen(c))
	}
	return f
}

// snapshotSeen says, without a fault, whether the move took no snapshot.
func snapshotSeen(c *Case) error {
	if c.Fault == "" && !c.moving.snapshot {
		return errors.New("the move has taken no snapshot")
	}
	return nil
}

// ofMoveSnapshot returns the snapshot of a case's move, and its content.
func (w *World) ofMoveSnapshot(ctx context.Context, c *Case) (*volumesnapshot.Snapshot, *volumesnapshot.Content, error) {
	snapshot, err := look[volumesnapshot.Snapshot](ctx, w, w.Bed.Home, volumesnapshot.Snapshots, fabric.Storage, fmt.Sprintf("move-%s-0-snapshot", c.moving.uids[0]))
	content, wrong := look[volumesnapshot.Content](ctx, w, w.Bed.Home, volumesnapshot.Contents, "", contentOf(c))
	return snapshot, content, errors.Join(err, wrong)
}

// noSnapshot says whether a snapshot of the move is left.
func (w *World) noSnapshot(ctx context.Context, c *Case) error {
	snapshot, content, err := w.ofMoveSnapshot(ctx, c)
	if err != nil || snapshot != nil || content != nil {
		return errors.Join(errors.New("the snapshot of the move is not gone"), err)
	}
	return nil
}

// playMoveSnapshot plays the snapshot controller of home and the snapshotter of its driver
// for the snapshot of a move.
func (w *World) playMoveSnapshot(ctx context.Context, c *Case, v *View) error {
	snapshot, content, err := w.ofMoveSnapshot(ctx, c)
	if err != nil {
		return err
	}
	switch {
	case snapshot == nil && content != nil:
		return w.dynamic[w.Bed.Home].Resource(volumesnapshot.Contents).Delete(ctx, content.Name, metav1.DeleteOptions{})
	case snapshot == nil || snapshot.DeletionTimestamp != nil || ptr.Deref(snapshot.Status.ReadyToUse, false):
		return nil
	case content != nil:
		return w.change(ctx, w.Bed.Home, volumesnapshot.Snapshots, snapshot, ready(content.Name), "status")
	}
	c.moving.snapshot = true
	_, _, reals := v.of(c.uid(data))
	for _, real := range reals {
		if csi := real.Spec.CSI; csi.Driver == homeDriver {
			return w.makeOf(ctx, w.Bed.Home, volumesnapshot.Contents, "", &volumesnapshot.Content{
				TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: "VolumeSnapshotContent"},
				ObjectMeta: metav1.ObjectMeta{Name: contentOf(c)},
				Spec: volumesnapshot.ContentSpec{
					Snapshot:       corev1.ObjectReference{Namespace: snapshot.Namespace, Name: snapshot.Name, UID: snapshot.UID},
					DeletionPolicy: volumesnapshot.Delete, Driver: csi.Driver, ClassName: snapshot.Spec.ClassName,
					Source: volumesnapshot.ContentSource{VolumeHandle: &csi.VolumeHandle},
				},
			})
		}
	}
	return errIncomplete
}
