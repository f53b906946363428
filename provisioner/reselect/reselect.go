// Package reselect has kube-scheduler choose again where it chose, for a claim that is neither virtual nor marked as usable
// there, a node that stands for a remote cluster. Nothing makes a volume there, and kube-scheduler would wait for one for up to
// ten minutes. It does not come to that where it asks the extender, which refuses such nodes.
package reselect

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// Reason is the reason of the event on the claim. The extender and the virtual nodes give the same one.
const Reason = "ClaimStaysHome"

// Config is what a Controller needs. The caller runs the informers, which must be synced before Run.
type Config struct {
	Client                 kubernetes.Interface
	Claims, Classes, Nodes cache.SharedIndexInformer
	Recorder               record.EventRecorder
}

// Controller takes back the choice of such nodes. kube-scheduler may choose the same node again, so for each claim the time
// between two of its writes doubles.
type Controller struct {
	Config
	turns map[types.NamespacedName]turn // of claims that have no volume; the only worker uses it
}

// turn is when the choice for a claim may be taken back next, and how often that was done.
type turn struct {
	next  time.Time
	times int
}

// New returns a Controller that does nothing until Run.
func New(config Config) *Controller {
	return &Controller{Config: config, turns: map[types.NamespacedName]turn{}}
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	queue := controller.NewQueue[types.NamespacedName](controller.QueueConfig{
		Name: "reselect", FirstRetry: 200 * time.Millisecond, LastRetry: 20 * time.Second, Timeout: 10 * time.Second,
	})
	unwatch, err := controller.Watch(c.Claims, func(was, now *corev1.PersistentVolumeClaim) {
		if now == nil || (now.Spec.VolumeName == "" && now.Annotations[keys.SelectedNode] != "") || (was != nil && was.Spec.VolumeName == "") {
			claim := controller.Either(was, now)
			queue.Add(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
		}
	})
	if err != nil {
		queue.ShutDown()
		return fmt.Errorf("watch claims of all classes: %w", err)
	}
	defer func() { _ = unwatch() }()
	queue.Run(ctx, 1, c.sync)
	return nil
}

// pause returns the time until the choice for a claim may be taken back again.
func pause(times int) time.Duration { return min(time.Second<<min(times, 6), time.Minute) }

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	claim := controller.Get[corev1.PersistentVolumeClaim](c.Claims, key.String())
	if claim == nil || claim.Spec.VolumeName != "" {
		delete(c.turns, key)
		return 0, nil
	}
	cluster := Lost(claim, controller.Get[storagev1.StorageClass](c.Classes, ptr.Deref(claim.Spec.StorageClassName, "")),
		controller.Get[corev1.Node](c.Nodes, claim.Annotations[keys.SelectedNode]))
	if cluster == "" {
		return 0, nil
	}
	now, due := time.Now(), c.turns[key]
	if now.Before(due.next) {
		return due.next.Sub(now), nil
	}
	if err := c.takeBack(ctx, claim); err != nil {
		return 0, err
	}
	c.turns[key] = turn{next: now.Add(pause(due.times)), times: due.times + 1}
	c.Recorder.Event(claim, corev1.EventTypeWarning, Reason, text(claim, cluster))
	return 0, nil
}

// Lost returns the remote cluster for which the node stands that was chosen for a claim, if the claim cannot get a volume there;
// else nothing. class and node are nil if they are not known; without its class a claim is left alone.
func Lost(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node) string {
	if node == nil || class == nil || claim.DeletionTimestamp != nil {
		return ""
	}
	cluster := node.Labels[keys.Cluster]
	if cluster == "" || cluster == keys.Home || locality.UsableIn(cluster, claim, nil, class) {
		return ""
	}
	return cluster
}

func text(claim *corev1.PersistentVolumeClaim, cluster string) string {
	return fmt.Sprintf("another node is to be chosen than %s, which stands for cluster %s, where storage class %s makes no volumes: have "+
		"kube-scheduler ask Lodestone's extender, which keeps such pods at home, or keep the pod off nodes with label %s; if that "+
		"cluster has a claim of this name, annotate this one with %s=%s", claim.Annotations[keys.SelectedNode], cluster,
		ptr.Deref(claim.Spec.StorageClassName, ""), keys.Cluster, keys.UsableIn, cluster)
}

// takeBack removes the selected node from a claim unless the claim is another one or has another node by now.
func (c *Controller) takeBack(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	path := "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(keys.SelectedNode)
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": claim.UID},
		{"op": "test", "path": path, "value": claim.Annotations[keys.SelectedNode]},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return fmt.Errorf("write patch: %w", err)
	}
	claims := c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	_, err = claims.Patch(ctx, claim.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("take the selected node from claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}
