package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
)

// release lets a content go, if need be once its cluster itself says that the
// snapshot is gone.
func (m *Mirror) release(ctx context.Context, o Observation, step Step) error {
	if step.Gone {
		cluster := m.Clusters.Get(o.Ref.Cluster)
		if cluster == nil {
			return errNoClient
		}
		typed, client := cluster.Clients()
		if typed == nil || client == nil {
			return errNoClient
		}
		if err := proveGone(ctx, typed, client, m.Clusters.Object(o.Ref.Cluster), o, m.at(o)); err != nil {
			return err
		}
	}
	finalizers := slices.DeleteFunc(slices.Clone(o.Content.Finalizers), func(f string) bool { return f == volumesnapshot.ContentFinalizer })
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.Content.UID, "resourceVersion": o.Content.ResourceVersion, "finalizers": finalizers}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := m.contents().Patch(ctx, o.Content.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("let content %s go: %w", o.Content.Name, err)
	}
	return nil
}

// proveGone asks a cluster itself whether the snapshot of a content, by its name, is
// gone. First it asks which cluster it is: any other than the one that has the data
// would say so too.
func proveGone(ctx context.Context, typed kubernetes.Interface, client dynamic.Interface, remote *v1alpha1.RemoteCluster, o Observation, at types.NamespacedName) error {
	same, err := clusters.Same(ctx, typed, remote)
	switch {
	case err != nil:
		return fmt.Errorf("ask which cluster %s is: %w", o.Ref.Cluster, err)
	case !same:
		return fmt.Errorf("the kubeconfig of cluster %s leads to another cluster: %w", o.Ref.Cluster, errChanged)
	}
	found, err := client.Resource(volumesnapshot.Snapshots).Namespace(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for snapshot %s in %s: %w", at, o.Ref.Cluster, err)
	case given(o.Content) && found.GetUID() == o.Ref.UID, !given(o.Content) && found.GetLabels()[keys.ContentUID] == string(o.Content.UID):
		return fmt.Errorf("snapshot %s in %s is there: %w", at, o.Ref.Cluster, errChanged)
	}
	return nil
}
