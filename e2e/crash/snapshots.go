package crash

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// The custom resources of snapshots, as far as they matter here.
//
//go:embed snapshots.yaml
var definitions string

// taken begins the handles of played snapshots; the rest is that of the volume.
const taken = "of/"

// defineSnapshots makes the custom resources of snapshots in both clusters, and has
// the real storages make volumes from them.
func (w *World) defineSnapshots(ctx context.Context) (err error) {
	w.dynamic = map[*testbed.Cluster]dynamic.Interface{}
	for cluster, storage := range map[*testbed.Cluster]*fakeprovisioner.Provisioner{w.Bed.Home: w.Bed.HomeStorage,
		w.Bed.West: w.Bed.WestStorage} {
		if _, err := cluster.Kubectl(ctx, definitions, "apply", "-f", "-"); err != nil {
			return fmt.Errorf("make the custom resources of snapshots in %s: %w", cluster.Name(), err)
		}
		for _, resource := range []schema.GroupVersionResource{volumesnapshot.Snapshots, volumesnapshot.Contents, volumesnapshot.Classes} {
			if _, err := cluster.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/"+resource.GroupResource().String(),
				"--timeout=30s"); err != nil {
				return fmt.Errorf("wait for the custom resources of snapshots in %s: %w", cluster.Name(), err)
			}
		}
		if w.dynamic[cluster], err = dynamic.NewForConfig(cluster.AdminConfig()); err != nil {
			return fmt.Errorf("make the dynamic client of %s: %w", cluster.Name(), err)
		}
		storage.SetSnapshots(func(ctx context.Context, namespace, name string) (string, error) {
			return w.source(ctx, cluster, namespace, name)
		})
	}
	return nil
}

// source returns the handle of the volume that a snapshot was taken of, by its
// content, or, in west, by its claim.
func (w *World) source(ctx context.Context, cluster *testbed.Cluster, namespace, name string) (string, error) {
	snapshot, err := look[volumesnapshot.Snapshot](ctx, w, cluster, volumesnapshot.Snapshots, namespace, name)
	if err != nil {
		return "", err
	}
	if snapshot == nil || !ptr.Deref(snapshot.Status.ReadyToUse, false) {
		return "", fmt.Errorf("VolumeSnapshot %s/%s is not ready", namespace, name)
	}
	if claim := ptr.Deref(snapshot.Spec.Source.ClaimName, ""); claim != "" {
		return w.handleOf(ctx, cluster, namespace, claim)
	}
	content, err := look[volumesnapshot.Content](ctx, w, cluster, volumesnapshot.Contents, "", ptr.Deref(snapshot.Spec.Source.ContentName, ""))
	if err != nil || content == nil {
		return "", errors.Join(err, fmt.Errorf("VolumeSnapshot %s/%s has no content", namespace, name))
	}
	handle, ok := strings.CutPrefix(ptr.Deref(content.Spec.Source.SnapshotHandle, ""), taken)
	if !ok {
		return "", fmt.Errorf("content %s names no snapshot", content.Name)
	}
	return handle, nil
}

// handleOf returns the handle of a claim's volume.
func (w *World) handleOf(ctx context.Context, cluster *testbed.Cluster, namespace, name string) (string, error) {
	claim, err := cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get claim %s/%s: %w", namespace, name, err)
	}
	volume, err := cluster.Client().CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get the volume of claim %s/%s: %w", namespace, name, err)
	}
	return volume.Spec.CSI.VolumeHandle, nil
}

// look returns an object of the snapshot API, nil if there is none.
func look[T any](ctx context.Context, w *World, cluster *testbed.Cluster, resource schema.GroupVersionResource, namespace, name string) (*T,
	error) {
	found, err := w.dynamic[cluster].Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", resource.Resource, name, err)
	}
	return volumesnapshot.Read[T](found)
}

func (w *World) snapshotsOf(ctx context.Context, cluster *testbed.Cluster, namespace string) ([]*volumesnapshot.Snapshot, error) {
	list, err := w.dynamic[cluster].Resource(volumesnapshot.Snapshots).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the snapshots in %s: %w", namespace, err)
	}
	var all []*volumesnapshot.Snapshot
	for i := range list.Items {
		snapshot, err := volumesnapshot.Read[volumesnapshot.Snapshot](&list.Items[i])
		if err != nil {
			return nil, err
		}
		all = append(all, snapshot)
	}
	return all, nil
}

// makeOf makes an object of the snapshot API.
func (w *World) makeOf(ctx context.Context, cluster *testbed.Cluster, resource schema.GroupVersionResource, namespace string,
	object any) error {
	encoded, err := volumesnapshot.Write(object)
	if err != nil {
		return err
	}
	_, err = w.dynamic[cluster].Resource(resource).Namespace(namespace).Create(ctx, encoded, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make %s %s: %w", resource.Resource, encoded.GetName(), err)
	}
	return nil
}

// change merges a change into an object of the snapshot API, or into its status.
func (w *World) change(ctx context.Context, cluster *testbed.Cluster, resource schema.GroupVersionResource, of metav1.Object,
	change map[string]any, status ...string) error {
	data, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = w.dynamic[cluster].Resource(resource).Namespace(of.GetNamespace()).Patch(ctx, of.GetName(), types.MergePatchType, data,
		metav1.PatchOptions{}, status...)
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", resource.Resource, of.GetName(), err)
	}
	return nil
}

// ready is the status of a snapshot that is taken.
func ready(content string) map[string]any {
	return map[string]any{"status": map[string]any{
		"boundVolumeSnapshotContentName": content, "readyToUse": true, "restoreSize": "1Gi",
		"creationTime": time.Now().UTC().Format(time.RFC3339)}}
}

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
					claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind,
						Name: kept}
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
	if err != nil || content == nil || !ptr.Deref(content.Status.ReadyToUse, false) || content.Status.Error != nil ||
		content.DeletionTimestamp != nil {
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
	content, err := look[volumesnapshot.Content](context.Background(), w, w.Bed.Home, volumesnapshot.Contents, "",
		volumesnapshot.StandInContent(twin))
	if err != nil || content != nil {
		return errors.Join(err, fmt.Errorf("the content of snapshot %s, which stood in for one at home, is left", twin))
	}
	return nil
}
