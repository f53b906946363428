// Package clusterprofiles shows remote clusters to tools that know clusters by their ClusterProfiles
// (multicluster.x-k8s.io/v1alpha1, KEP-4322): each RemoteCluster has one of its name. Its custom resource definition
// comes from elsewhere.
package clusterprofiles

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
)

// Manager is the name of the cluster manager, and the field manager, of the ClusterProfiles.
const Manager = "lodestone.dev"

// Resource is that of ClusterProfiles.
var Resource = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "clusterprofiles"}

// Profiles keeps the ClusterProfiles in step with the RemoteClusters.
type Profiles struct {
	client   dynamic.ResourceInterface
	objects  cache.SharedIndexInformer
	recorder record.EventRecorder
}

// New returns Profiles that write into a namespace what the informer of RemoteClusters shows. They do nothing before
// Run; the caller runs the informer.
func New(client dynamic.Interface, namespace string, objects cache.SharedIndexInformer, recorder record.EventRecorder) *Profiles {
	return &Profiles{client: client.Resource(Resource).Namespace(namespace), objects: objects, recorder: recorder}
}

// rewritten is how often a ClusterProfile is written without an event, in case somebody changed it.
const rewritten = 10 * time.Minute

// Run writes a ClusterProfile whenever what it shows has changed, until ctx ends. The garbage collector removes those of RemoteClusters
// that are gone.
func (p *Profiles) Run(ctx context.Context) error {
	queue := controller.NewQueue[string](controller.QueueConfig{
		Name: "clusterprofiles", FirstRetry: time.Second, LastRetry: time.Minute, Timeout: 10 * time.Second,
	})
	defer queue.ShutDown()
	unwatch, err := controller.Watch(p.objects, func(was, now *v1alpha1.RemoteCluster) {
		if now != nil && (was == nil || !equality.Semantic.DeepEqual(status(was), status(now))) {
			queue.Add(now.Name)
		}
	})
	if err != nil {
		return fmt.Errorf("watch RemoteClusters: %w", err)
	}
	defer func() { _ = unwatch() }()
	queue.Run(ctx, 1, func(ctx context.Context, name string) (time.Duration, error) {
		remote := controller.Get[v1alpha1.RemoteCluster](p.objects, name)
		if remote == nil || remote.DeletionTimestamp != nil {
			return 0, nil
		}
		return rewritten, p.write(ctx, remote)
	})
	return nil
}

// write makes or updates the ClusterProfile of a RemoteCluster. One of another cluster manager stays as it is.
func (p *Profiles) write(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	options := metav1.ApplyOptions{FieldManager: Manager}
	_, err := p.client.Apply(ctx, remote.Name, Profile(remote), options)
	if err == nil {
		_, err = p.client.ApplyStatus(ctx, remote.Name, profileStatus(remote), options)
	}
	switch {
	case apierrors.IsConflict(err) || apierrors.IsInvalid(err):
		p.recorder.Eventf(about(remote), corev1.EventTypeWarning, "ClusterProfileNotWritten", "ClusterProfile %s is not Lodestone's: rename "+
			"one of the two, or delete the ClusterProfile", remote.Name)
	case apierrors.IsNotFound(err):
		p.recorder.Eventf(about(remote), corev1.EventTypeWarning, "ClusterProfileNotWritten", "ClusterProfiles cannot be written: their custom "+
			"resource definition or the namespace of --cluster-profiles-namespace is not there")
	}
	if err != nil {
		return fmt.Errorf("write ClusterProfile %s: %w", remote.Name, err)
	}
	return nil
}

func about(remote *v1alpha1.RemoteCluster) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RemoteCluster", Name: remote.Name, UID: remote.UID}
}

// Profile returns the ClusterProfile of a RemoteCluster, without its status.
func Profile(remote *v1alpha1.RemoteCluster) *unstructured.Unstructured {
	profile := empty(remote)
	profile.SetLabels(map[string]string{"x-k8s.io/cluster-manager": Manager})
	profile.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "RemoteCluster", Name: remote.Name, UID: remote.UID,
	}})
	profile.Object["spec"] = map[string]any{"displayName": remote.Name, "clusterManager": map[string]any{"name": Manager}}
	return profile
}

func profileStatus(remote *v1alpha1.RemoteCluster) *unstructured.Unstructured {
	profile := empty(remote)
	profile.Object["status"] = status(remote)
	return profile
}

func empty(remote *v1alpha1.RemoteCluster) *unstructured.Unstructured {
	profile := &unstructured.Unstructured{Object: map[string]any{}}
	profile.SetAPIVersion(Resource.GroupVersion().String())
	profile.SetKind("ClusterProfile")
	profile.SetName(remote.Name)
	return profile
}

// status is what a ClusterProfile tells: whether the API server answers, whether volumes can be made there, and which cluster it is. It
// has no credentials.
func status(remote *v1alpha1.RemoteCluster) map[string]any {
	var conditions []any
	for _, shown := range []struct{ name, of string }{{"ControlPlaneHealthy", v1alpha1.Reachable}, {v1alpha1.Ready, v1alpha1.Ready}} {
		if is := meta.FindStatusCondition(remote.Status.Conditions, shown.of); is != nil {
			conditions = append(conditions, map[string]any{
				"type": shown.name, "status": string(is.Status), "reason": is.Reason, "message": is.Message,
				"lastTransitionTime": is.LastTransitionTime.UTC().Format(time.RFC3339),
			})
		}
	}
	shown := map[string]any{"conditions": conditions}
	if version := remote.Status.KubernetesVersion; version != "" {
		shown["version"] = map[string]any{"kubernetes": version}
	}
	if uid := remote.Status.ClusterUID; uid != "" {
		shown["properties"] = []any{map[string]any{"name": "lodestone.dev/cluster-uid", "value": uid}}
	}
	return shown
}
