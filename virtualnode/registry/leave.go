package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/node"
)

const (
	// writeTimeout bounds what one step asks of the home cluster.
	writeTimeout = 10 * time.Second
	// drainInterval is how soon a node that is being emptied is looked at again.
	drainInterval = 2 * time.Second
)

// leave takes the virtual node away: it is cordoned, its pods are evicted, and
// once the last one is gone, proven ended in the remote cluster, the Node is
// deleted and the RemoteCluster let go. Meanwhile the session goes on, for it is
// what ends the pods.
func (t *tenure) leave(ctx context.Context, remote *v1alpha1.RemoteCluster) (time.Duration, error) {
	if t.left && !slices.Contains(remote.Finalizers, keys.VirtualNodeFinalizer) {
		return 0, t.reportDisabled(ctx, remote)
	}
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	ours, err := t.ownNode(bounded)
	if err != nil {
		return 0, err
	}
	pods, err := t.pods(bounded, ours)
	if err != nil {
		return 0, err
	}
	var problem error
	if ours != nil || len(pods) > 0 {
		if err := t.serve(ctx); err != nil {
			return 0, err
		}
		t.manager.Retire(true)
		if _, problem = t.keepSession(ctx, remote); problem != nil {
			klog.FromContext(ctx).V(2).Info("Pods cannot be ended in the cluster", "err", problem)
		}
	}
	if ours != nil && !ours.Spec.Unschedulable {
		if err := t.cordon(bounded, ours); err != nil {
			return 0, err
		}
	}
	if len(pods) > 0 {
		blocked, err := t.evict(bounded, pods)
		return drainInterval, errors.Join(err, t.report(ctx, remote, leaving(t.id, len(pods), blocked, problem)))
	}
	if ours != nil {
		err := t.config.Home.CoreV1().Nodes().Delete(bounded, ours.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ours.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("delete node %s: %w", ours.Name, err)
		}
		klog.FromContext(ctx).Info("Node deleted", "node", klog.KObj(ours))
	}
	t.endSession()
	if t.serving {
		t.config.Endpoints.Close(t.id)
		t.serving, t.manager = false, nil
	}
	t.left = true
	return 0, t.release(ctx, remote)
}

// reportDisabled says that there is no node because none is wanted.
func (t *tenure) reportDisabled(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	if remote.DeletionTimestamp != nil {
		return nil
	}
	return t.report(ctx, remote, node.State{Reason: "Disabled", Message: "spec.virtualNode is Disabled: Lodestone registers no node for this cluster"})
}

// leaving is the state of a node whose pods have to go. problem is why there is no
// session that ends them in the remote cluster, nil if there is one.
func leaving(cluster string, pods, blocked int, problem error) node.State {
	message := fmt.Sprintf("node %s is being emptied, pods left: %d; each goes once its end in cluster %s is known (kubectl lodestone release pod gives one up)", cluster, pods, cluster)
	if blocked > 0 {
		message += fmt.Sprintf("; held by a PodDisruptionBudget: %d", blocked)
	}
	if problem != nil {
		return node.State{Reason: badKubeconfig, Message: message + "; " + problem.Error()}
	}
	return node.State{Reason: "Leaving", Message: message}
}

// ownNode returns the cluster's virtual node as it is now, nil if there is none.
func (t *tenure) ownNode(ctx context.Context) (*corev1.Node, error) {
	found, err := t.config.Home.CoreV1().Nodes().Get(ctx, t.id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", t.id, err)
	}
	if !node.Ours(found, t.id) {
		return nil, nil
	}
	return found, nil
}

// pods returns the pods that keep the cluster's virtual node, as they are now.
func (t *tenure) pods(ctx context.Context, own *corev1.Node) ([]corev1.Pod, error) {
	list, err := t.config.Home.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", t.id).String()})
	if err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", t.id, err)
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !holds(&pod, own != nil) }), nil
}

// holds reports whether a pod must have ended before the cluster is let go. Those
// that may run in the cluster must. The others only have their node taken from
// them: they are evicted where there is a node, but not those of a DaemonSet that
// tolerates everything, for it would make them anew for as long as the node is
// there. They go with the node, as those of every node do.
func holds(pod *corev1.Pod, node bool) bool {
	if slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return node && (owner == nil || owner.Kind != "DaemonSet")
}

func (t *tenure) cordon(ctx context.Context, own *corev1.Node) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": own.UID, "annotations": map[string]string{keys.Retired: "true"}},
		"spec":     map[string]any{"unschedulable": true},
	})
	if err != nil {
		return fmt.Errorf("encode patch of node %s: %w", own.Name, err)
	}
	if _, err := t.config.Home.CoreV1().Nodes().Patch(ctx, own.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cordon node %s: %w", own.Name, err)
	}
	return nil
}

// evict asks for the graceful end of the pods that are not ending yet, and returns
// how many a PodDisruptionBudget holds.
func (t *tenure) evict(ctx context.Context, pods []corev1.Pod) (blocked int, _ error) {
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := t.config.Home.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
		})
		switch {
		case apierrors.IsTooManyRequests(err):
			blocked++
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			return blocked, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return blocked, nil
}
