package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/store"
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
	class := fmt.Sprintf(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotClass, metadata: {name: %[1]s},
		driver: %[1]s, deletionPolicy: Delete}`, homeDriver)
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
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: homeDriver,
				VolumeHandle: handle}}}})
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
		return errors.New("no snapshot was taken")
	}
	return nil
}

// ofMoveSnapshot returns the snapshot of a case's move, and its content.
func (w *World) ofMoveSnapshot(ctx context.Context, c *Case) (*volumesnapshot.Snapshot, *volumesnapshot.Content, error) {
	snapshot, err := look[volumesnapshot.Snapshot](ctx, w, w.Bed.Home, volumesnapshot.Snapshots, fabric.Storage,
		fmt.Sprintf("move-%s-0-snapshot", c.moving.uids[0]))
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

// storeSecret is the Secret of home that says how the object store is reached.
const storeSecret = "object-store"

// through has the content of all moves to and from west travel through an object store, or
// through none.
func (w *World) through(ctx context.Context, stored bool) error {
	if w.moves == nil || stored == w.stored {
		return nil
	}
	value := "null"
	if stored {
		if err := w.startStore(ctx); err != nil {
			return err
		}
		value = fmt.Sprintf(`{"secretName":%q}`, storeSecret)
	}
	if _, err := w.Bed.Remotes.Patch(ctx, "west", types.MergePatchType, []byte(`{"spec":{"moveRepository":`+value+`}}`),
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("set the object store of west: %w", err)
	}
	w.stored = stored
	return nil
}

// startStore starts the object store, once.
func (w *World) startStore(ctx context.Context) error {
	if w.store != nil {
		return nil
	}
	programs, err := store.Build(ctx, os.Stderr)
	if err != nil {
		return err
	}
	// Movers that start from now on find this restic.
	if err := programs.First(); err != nil {
		return err
	}
	folder := filepath.Join(w.Bed.Disks.Root, "object-store")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make a folder for the object store: %w", err)
	}
	if w.store, err = store.Start(ctx, programs.Server, folder); err != nil {
		return err
	}
	_, err = w.Bed.Home.Client().CoreV1().Secrets(fabric.System).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: storeSecret},
		Data: w.store.Secret()}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the Secret of the object store: %w", err)
	}
	return nil
}

// emptied says what the object store keeps of a case. A mover that is killed while it ends
// leaves the key and the configuration of its repository.
func (w *World) emptied(c *Case) error {
	if w.store == nil {
		return nil
	}
	files, err := w.store.Files()
	if err != nil {
		return fmt.Errorf("look into the object store: %w", err)
	}
	for path := range files {
		if c.Fault == KillSource && (strings.HasSuffix(path, "/config") || strings.Contains(path, "/keys/")) {
			continue
		}
		for _, uid := range c.moving.uids {
			if strings.Contains(path, string(uid)) {
				return fmt.Errorf("%s is left in the object store", path)
			}
		}
	}
	return nil
}

// stored is a flow of moves whose content travels through the object store.
func (t trip) stored(name string) Flow {
	f := t.flow(name)
	f.Stored = true
	want := f.Want
	f.Want = func(w *World, c *Case, v *View) error {
		if err := want(w, c, v); err != nil {
			return err
		}
		if c.Fault == "" && c.moving.repository != "west" {
			return fmt.Errorf("the content went through the object store of %q", c.moving.repository)
		}
		return nil
	}
	return f
}
