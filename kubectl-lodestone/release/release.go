// Package release is the command release: it gives up pods that nobody can end any more. Judge
// decides whether a pod may be released, Pod does it.
package release

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var yes bool
	command := &cobra.Command{
		Use:   "release pod/NAME",
		Short: "Give up a pod whose remote cluster is gone for ever",
		Long: `Release deletes a home pod although nobody can see whether its copy in the remote
cluster has ended. Its controller may then start another one, at home or elsewhere.

If the remote cluster still runs, two copies run at the same time, and both may
write to the same outside systems. Use it only if that cluster is gone for ever or
has certainly stopped the pod. It is refused for a pod that is not being deleted
while its node is Ready.`,
		Example: `  # Give up pod db-0, which hangs in Terminating because its cluster is gone
  kubectl lodestone release pod/db-0 -n shop`,
		Args:              cli.TakesOne(cli.Pod),
		ValidArgsFunction: cli.CompleteReferences(flags, true, []cli.Kind{cli.Pod}, cli.Pod),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := cli.OneReference(cmd, args, cli.Pod)
			if err != nil {
				return err
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			ctx, cancel := cli.Within(cmd.Context(), time.Minute)
			defer cancel()
			return release(ctx, home, streams, namespace, named.Name, yes)
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return command
}

func release(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, namespace, name string, yes bool) error {
	pod, err := home.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return home.Missing(ctx, cli.Pod, namespace, name)
	}
	if err != nil {
		return home.Explain("get pod "+namespace+"/"+name, err)
	}
	var node *corev1.Node
	if pod.Spec.NodeName != "" {
		node, err = home.Client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			node = nil
		case err != nil:
			return home.Explain("get node "+pod.Spec.NodeName, err)
		}
	}
	if err := Judge(pod, node); err != nil {
		return err
	}
	fmt.Fprintf(streams.ErrOut, "Pod %s/%s may still run in remote cluster %q. Once it is released, another pod may take its place while it "+
		"does:\ntwo copies may then run at the same time. Go on only if that cluster is gone for ever, or has certainly stopped the pod.\n",
		namespace, name, pod.Spec.NodeName)
	if err := cli.Ask(ctx, streams.In, streams.ErrOut, yes, name); err != nil {
		return err
	}
	if err := Pod(ctx, home, pod); err != nil {
		return err
	}
	_, err = fmt.Fprintf(streams.Out, "pod/%s released\n", name)
	return err
}

// Judge returns why a pod must not be released, nil if it may be; node is the node that it is on,
// nil if that does not exist. It is pure.
func Judge(pod *corev1.Pod, node *corev1.Node) error {
	name := pod.Namespace + "/" + pod.Name
	switch {
	case !slices.Contains(pod.Finalizers, keys.RemotePodFinalizer):
		return cli.Refuse("pod %s is not held for a copy in a remote cluster (it has no finalizer %s): there is nothing to release; delete it "+
			"with kubectl delete pod if it is to go", name, keys.RemotePodFinalizer)
	case pod.DeletionTimestamp != nil, node == nil, !ready(node):
		return nil
	}
	return cli.Refuse("pod %s runs on node %q, which is Ready: delete the pod with kubectl delete pod, and it ends properly in the "+
		"remote cluster", name, pod.Spec.NodeName)
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Pod deletes just this pod at home without waiting for anybody, and records that in an event.
// Another pod of its name is not deleted.
func Pod(ctx context.Context, home *cli.Cluster, pod *corev1.Pod) error {
	name, pods := pod.Namespace+"/"+pod.Name, home.Client.CoreV1().Pods(pod.Namespace)
	record(ctx, home, pod)
	// The deletion comes first: a finalizer that is removed from a pod that is not being deleted
	// may be added again.
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

// record writes the event before the pod is deleted. The pod is released even if the event cannot
// be written.
func record(ctx context.Context, home *cli.Cluster, pod *corev1.Pod) {
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
