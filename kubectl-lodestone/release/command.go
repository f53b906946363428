package release

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/confirm"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
)

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	parent := &cobra.Command{
		Use:   "release",
		Short: "Give up a pod whose remote cluster is gone for ever",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return outcome.Misuse("say what to release: kubectl lodestone release pod NAME")
		},
	}
	var yes bool
	pod := &cobra.Command{
		Use:   "pod NAME",
		Short: "Give up a pod whose remote cluster is gone for ever",
		Long: `Release deletes a home pod although nobody can see whether its copy in the remote
cluster has ended. Its controller may then start another one, at home or elsewhere.

If the remote cluster still runs, two copies run at the same time, and both may
write to the same outside systems. Use it only if that cluster is gone for ever or
has certainly stopped the pod. It is refused for a pod that is not being deleted
while its node is Ready.`,
		Example: `  # Give up pod db-0, which hangs in Terminating because its cluster is gone
  kubectl lodestone release pod db-0 -n shop`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			home, err := access.Home(flags)
			if err != nil {
				return err
			}
			namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
			if err != nil {
				return outcome.Misuse("the namespace cannot be found: %w; give -n", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			return release(ctx, home, streams, namespace, args[0], yes)
		},
	}
	pod.Flags().BoolVar(&yes, "yes", false, "do not ask")
	parent.AddCommand(pod)
	return parent
}

func release(ctx context.Context, home *access.Cluster, streams genericiooptions.IOStreams, namespace, name string, yes bool) error {
	pod, err := home.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no pod %q in namespace %q: kubectl get pods -n %s lists them", name, namespace, namespace)
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
	fmt.Fprintf(streams.ErrOut, "Pod %s/%s may still run in remote cluster %q. Once it is released, another pod may take its place while it does:\ntwo copies may then run at the same time. Go on only if that cluster is gone for ever, or has certainly stopped the pod.\n", namespace, name, pod.Spec.NodeName)
	if err := confirm.Typed(streams.In, streams.ErrOut, yes, name); err != nil {
		return err
	}
	if err := Pod(ctx, home, pod); err != nil {
		return err
	}
	_, err = fmt.Fprintf(streams.Out, "pod/%s released\n", name)
	return err
}
