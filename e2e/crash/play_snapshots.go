package crash

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// contentOf is the name of the content of a case's snapshot.
func contentOf(c *Case) string { return "content-" + c.Namespace }

// playSnapshots plays, for a case, the snapshot controllers of both clusters and the
// snapshotters of the real drivers. With driver lodestone.dev it is the provisioner
// that takes the snapshot.
func playSnapshots(ctx context.Context, w *World, c *Case, v *View) error {
	errs := []error{w.playHere(ctx, c, v), w.playThere(ctx, c)}
	for _, claim := range v.Claims {
		errs = append(errs, w.playStandIn(ctx, "pvc-"+string(claim.UID)))
	}
	return errors.Join(errs...)
}

// playHere takes the case's snapshot at home, or has it go.
func (w *World) playHere(ctx context.Context, c *Case, v *View) error {
	snapshot, err := look[volumesnapshot.Snapshot](ctx, w, w.Bed.Home, volumesnapshot.Snapshots, c.Namespace, kept)
	if err != nil {
		return err
	}
	content, err := look[volumesnapshot.Content](ctx, w, w.Bed.Home, volumesnapshot.Contents, "", contentOf(c))
	switch {
	case err != nil:
		return err
	case snapshot == nil && content != nil && content.DeletionTimestamp == nil:
		if err := w.change(ctx, w.Bed.Home, volumesnapshot.Contents, content, map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{volumesnapshot.BeingDeleted: "yes"}}}); err != nil {
			return err
		}
		return w.dynamic[w.Bed.Home].Resource(volumesnapshot.Contents).Delete(ctx, content.Name, metav1.DeleteOptions{})
	case snapshot == nil:
		return nil
	case content == nil:
		return w.makeContent(ctx, c, v, snapshot)
	case content.Spec.Driver != keys.Driver && content.Status.ReadyToUse == nil:
		return w.change(ctx, w.Bed.Home, volumesnapshot.Contents, content, map[string]any{"status": map[string]any{
			"snapshotHandle": taken + ptr.Deref(content.Spec.Source.VolumeHandle, ""), "readyToUse": true, "restoreSize": 1 << 30}}, "status")
	case ptr.Deref(content.Status.ReadyToUse, false) && !ptr.Deref(snapshot.Status.ReadyToUse, false):
		return w.change(ctx, w.Bed.Home, volumesnapshot.Snapshots, snapshot, ready(content.Name), "status")
	}
	return nil
}

func (w *World) makeContent(ctx context.Context, c *Case, v *View, snapshot *volumesnapshot.Snapshot) error {
	_, volumes, _ := v.of(c.uid(data))
	if len(volumes) != 1 {
		return errIncomplete
	}
	err := w.makeOf(ctx, w.Bed.Home, volumesnapshot.Contents, "", &volumesnapshot.Content{
		TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: "VolumeSnapshotContent"},
		ObjectMeta: metav1.ObjectMeta{Name: contentOf(c), Finalizers: []string{volumesnapshot.ContentFinalizer}},
		Spec: volumesnapshot.ContentSpec{
			Snapshot:       corev1.ObjectReference{Namespace: c.Namespace, Name: snapshot.Name, UID: snapshot.UID},
			DeletionPolicy: volumesnapshot.Delete, Driver: volumes[0].Spec.CSI.Driver, ClassName: snapshot.Spec.ClassName,
			Source: volumesnapshot.ContentSource{VolumeHandle: &volumes[0].Spec.CSI.VolumeHandle},
		},
	})
	return err
}

// playThere takes in west what is asked for there.
func (w *World) playThere(ctx context.Context, c *Case) error {
	there, err := w.snapshotsOf(ctx, w.Bed.West, c.Namespace)
	if err != nil {
		return err
	}
	for _, snapshot := range there {
		if snapshot.Status.ReadyToUse == nil {
			err = errors.Join(err, w.change(ctx, w.Bed.West, volumesnapshot.Snapshots, snapshot, ready("taken"), "status"))
		}
	}
	return err
}

// playStandIn binds the stand-in of a snapshot for a twin to its content.
func (w *World) playStandIn(ctx context.Context, twin string) error {
	snapshot, err := look[volumesnapshot.Snapshot](ctx, w, w.Bed.Home, volumesnapshot.Snapshots, fabric.Storage, twin)
	if err != nil || snapshot == nil || snapshot.Status.ReadyToUse != nil {
		return err
	}
	content, err := look[volumesnapshot.Content](ctx, w, w.Bed.Home, volumesnapshot.Contents, "", volumesnapshot.StandInContent(twin))
	if err != nil || content == nil {
		return err
	}
	if err := w.change(ctx, w.Bed.Home, volumesnapshot.Contents, content, map[string]any{
		"spec": map[string]any{"volumeSnapshotRef": map[string]any{"uid": snapshot.UID}}}); err != nil {
		return err
	}
	if err := w.change(ctx, w.Bed.Home, volumesnapshot.Contents, content, map[string]any{"status": map[string]any{
		"snapshotHandle": content.Spec.Source.SnapshotHandle, "readyToUse": true}}, "status"); err != nil {
		return err
	}
	return w.change(ctx, w.Bed.Home, volumesnapshot.Snapshots, snapshot, ready(content.Name), "status")
}

// alone says which stand-in is left.
func (w *World) alone(c *Case) error {
	twin := "pvc-" + string(c.uid("copy"))
	snapshot, err := look[volumesnapshot.Snapshot](context.Background(), w, w.Bed.Home, volumesnapshot.Snapshots, fabric.Storage, twin)
	if err != nil || snapshot != nil {
		return errors.Join(err, fmt.Errorf("snapshot %s stands in for one at home still", twin))
	}
	content, err := look[volumesnapshot.Content](context.Background(), w, w.Bed.Home, volumesnapshot.Contents, "", volumesnapshot.StandInContent(twin))
	if err != nil || content != nil {
		return errors.Join(err, fmt.Errorf("the content of snapshot %s, which stood in for one at home, is left", twin))
	}
	return nil
}
