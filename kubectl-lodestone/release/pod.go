// Package release gives up pods that nobody can end any more.
package release

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Judge returns why a pod must not be released; node is the node that it is on,
// nil if that does not exist. It is pure.
func Judge(pod *corev1.Pod, node *corev1.Node) error {
	name := pod.Namespace + "/" + pod.Name
	switch {
	case !slices.Contains(pod.Finalizers, keys.RemotePodFinalizer):
		return outcome.Refuse("pod %s is not held for a copy in a remote cluster (it has no finalizer %s): there is nothing to release; delete it with kubectl delete pod if it is to go", name, keys.RemotePodFinalizer)
	case pod.DeletionTimestamp != nil, node == nil, !ready(node):
		return nil
	}
	return outcome.Refuse("pod %s runs on node %q, which is Ready: delete the pod with kubectl delete pod, and it ends properly in the remote cluster", name, pod.Spec.NodeName)
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Pod deletes just this pod at home without waiting for anybody, and says so in
// an event. Another pod of its name is left alone.
func Pod(ctx context.Context, home *access.Cluster, pod *corev1.Pod) error {
	name, pods := pod.Namespace+"/"+pod.Name, home.Client.CoreV1().Pods(pod.Namespace)
	record(ctx, home, pod)
	// First the deletion: a finalizer that is taken off a pod that is not being
	// deleted may be put on again.
	err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another one has its name
	}
	if err != nil {
		return home.Explain("delete pod "+name, err)
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID {
			return nil
		}
		if err != nil {
			return home.Explain("get pod "+name, err)
		}
		kept := slices.DeleteFunc(now.Finalizers, func(f string) bool { return f == keys.RemotePodFinalizer })
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": pod.UID, "resourceVersion": now.ResourceVersion, "finalizers": kept,
		}})
		if err != nil {
			return fmt.Errorf("write the change of pod %s: %w", name, err)
		}
		_, err = pods.Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-lodestone"})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return home.Explain("release pod "+name, err)
	})
}

// record writes the event, before the pod is gone. Without it the pod is
// released all the same.
func record(ctx context.Context, home *access.Cluster, pod *corev1.Pod) {
	now := metav1.NewTime(time.Now())
	_, _ = home.Client.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "lodestone-release-", Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		},
		Reason: "Released", Type: corev1.EventTypeWarning,
		Message:        "released by a user: if the remote cluster comes back, a copy of this pod may have run there in the meantime",
		Source:         corev1.EventSource{Component: "kubectl-lodestone"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
}
