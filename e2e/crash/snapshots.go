package crash

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
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
	for cluster, storage := range map[*testbed.Cluster]*instant.Provisioner{w.Bed.Home: w.Bed.HomeStorage, w.Bed.West: w.Bed.WestStorage} {
		if _, err := cluster.Kubectl(ctx, definitions, "apply", "-f", "-"); err != nil {
			return fmt.Errorf("make the custom resources of snapshots in %s: %w", cluster.Name(), err)
		}
		for _, resource := range []schema.GroupVersionResource{volumesnapshot.Snapshots, volumesnapshot.Contents, volumesnapshot.Classes} {
			if _, err := cluster.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/"+resource.GroupResource().String(), "--timeout=30s"); err != nil {
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
func look[T any](ctx context.Context, w *World, cluster *testbed.Cluster, resource schema.GroupVersionResource, namespace, name string) (*T, error) {
	found, err := w.dynamic[cluster].Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", resource.Resource, name, err)
	}
	return volumesnapshot.Read[T](found)
}

// snapshotsOf returns the snapshots in a namespace.
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
func (w *World) makeOf(ctx context.Context, cluster *testbed.Cluster, resource schema.GroupVersionResource, namespace string, object any) error {
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
func (w *World) change(ctx context.Context, cluster *testbed.Cluster, resource schema.GroupVersionResource, of metav1.Object, change map[string]any, status ...string) error {
	data, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = w.dynamic[cluster].Resource(resource).Namespace(of.GetNamespace()).Patch(ctx, of.GetName(), types.MergePatchType, data, metav1.PatchOptions{}, status...)
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", resource.Resource, of.GetName(), err)
	}
	return nil
}

// ready is the status of a snapshot that is taken.
func ready(content string) map[string]any {
	return map[string]any{"status": map[string]any{
		"boundVolumeSnapshotContentName": content, "readyToUse": true, "restoreSize": "1Gi", "creationTime": time.Now().UTC().Format(time.RFC3339)}}
}
