package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// VirtualNodes writes down which nodes stand for remote clusters, in two annotations of the namespace
// where Lodestone runs: the admission policy on the virtual node program reads there which pods that
// program may touch, so somebody else has to write it. A policy cannot look up a RemoteCluster itself,
// and it needs an object that every API server has at hand.
type VirtualNodes struct {
	client    kubernetes.Interface
	namespace string
	objects   cache.SharedIndexInformer
}

// NewVirtualNodes returns VirtualNodes that write into a namespace what the informer of RemoteClusters
// shows. They do nothing before Run; the caller runs the informer.
func NewVirtualNodes(client kubernetes.Interface, namespace string, objects cache.SharedIndexInformer) *VirtualNodes {
	return &VirtualNodes{client: client, namespace: namespace, objects: objects}
}

// relisted is how often the annotations are compared without an event, in case somebody changed them.
const relisted = time.Minute

// Run writes the annotations whenever they change, until ctx ends.
func (v *VirtualNodes) Run(ctx context.Context) error {
	queue := controller.NewQueue[string](controller.QueueConfig{
		Name: "virtualnodes", FirstRetry: 200 * time.Millisecond, LastRetry: 10 * time.Second, Timeout: 10 * time.Second,
	})
	defer queue.ShutDown()
	unwatch, err := controller.Watch(v.objects, func(was, now *v1alpha1.RemoteCluster) {
		if was == nil || now == nil || standing(was) != standing(now) {
			queue.Add(v.namespace)
		}
	})
	if err != nil {
		return fmt.Errorf("watch RemoteClusters: %w", err)
	}
	defer func() { _ = unwatch() }()
	if !cache.WaitForCacheSync(ctx.Done(), v.objects.HasSynced) {
		return nil
	}
	queue.Add(v.namespace)
	queue.Run(ctx, 1, func(ctx context.Context, _ string) (time.Duration, error) { return relisted, v.write(ctx) })
	return nil
}

// write writes the annotations if they differ.
func (v *VirtualNodes) write(ctx context.Context) error {
	namespace, err := v.client.CoreV1().Namespaces().Get(ctx, v.namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get namespace %s: %w", v.namespace, err)
	}
	changes := listChanges(namespace, controller.All[v1alpha1.RemoteCluster](v.objects))
	if len(changes) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": namespace.UID, "annotations": changes}})
	if err != nil {
		return fmt.Errorf("encode the list of virtual nodes: %w", err)
	}
	if _, err := v.client.CoreV1().Namespaces().Patch(ctx, v.namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write the list of virtual nodes into namespace %s: %w", v.namespace, err)
	}
	return nil
}

// stands says how a RemoteCluster's virtual node is.
type stands int

const (
	none stands = iota
	serving
	leaving
)

// standing returns how the virtual node of a RemoteCluster is. While one leaves, its pods are evicted.
func standing(remote *v1alpha1.RemoteCluster) stands {
	switch {
	case remote.DeletionTimestamp == nil && remote.Spec.VirtualNode != v1alpha1.VirtualNodeDisabled:
		return serving
	case slices.Contains(remote.Finalizers, keys.VirtualNodeFinalizer):
		return leaving
	}
	return none
}

// listChanges returns the annotations of the namespace that are to change, for a merge patch.
func listChanges(namespace *corev1.Namespace, remotes []*v1alpha1.RemoteCluster) map[string]any {
	var all, gone []string
	for _, remote := range remotes {
		switch standing(remote) {
		case leaving:
			all, gone = append(all, remote.Name), append(gone, remote.Name)
		case serving:
			all = append(all, remote.Name)
		case none:
		}
	}
	changes := map[string]any{}
	for key, names := range map[string][]string{keys.VirtualNodes: all, keys.LeavingNodes: gone} {
		slices.Sort(names)
		have, exists := namespace.Annotations[key]
		switch want := strings.Join(names, ","); {
		case want == "" && exists:
			changes[key] = nil
		case want != have:
			changes[key] = want
		}
	}
	return changes
}
