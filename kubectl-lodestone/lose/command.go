package lose

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
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
)

// Options are the flags of lose.
type Options struct {
	Yes, Undo bool
	Away      time.Duration
}

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Away: time.Hour}
	parent := &cobra.Command{
		Use:   "lose",
		Short: "Declare a volume lost whose remote cluster is gone for ever",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return outcome.Misuse("say what is lost: kubectl lodestone lose pvc NAME, or pv NAME")
		},
	}
	for _, kind := range []string{"pvc", "pv"} {
		parent.AddCommand(o.command(kind, flags, streams))
	}
	return parent
}

func (o *Options) command(kind string, flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	what := map[string]string{"pvc": "the volume of a claim", "pv": "a volume"}[kind]
	command := &cobra.Command{
		Use:   kind + " NAME",
		Short: "Declare " + what + " lost whose remote cluster is gone for ever",
		Long: `Lose declares that the data of one volume is lost, because the remote cluster that
holds it is gone for ever. It deletes nothing. From then on the claim can be deleted
without that cluster, and a RemoteCluster without other volumes can be removed.

It shows what is lost and asks for the name of the volume. It is refused (exit code
3) while the cluster answers, was seen within --away, or was never looked at.

If the cluster comes back after all, nothing there is touched: the real claim stays
with its data, is counted in the metric lodestone_provisioner_backings_left, and
kubectl lodestone import gives it a claim again. While the claim at home is there,
--undo takes the declaration back.`,
		Example: fmt.Sprintf(`  # Cluster west burnt down: give up %s
  kubectl lodestone lose %s

  # It did not: take that back
  kubectl lodestone lose %s --undo`, what, example(kind), example(kind)),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Away < 0 {
				return outcome.Misuse("--away cannot be negative: give a time such as 1h")
			}
			home, err := access.Home(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			name := args[0]
			if kind == "pvc" {
				namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
				if err != nil {
					return outcome.Misuse("the namespace cannot be found: %w; give -n", err)
				}
				if name, err = volumeOfClaim(ctx, home, namespace, args[0]); err != nil {
					return err
				}
			}
			return o.lose(ctx, home, streams, name)
		},
	}
	command.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	command.Flags().BoolVar(&o.Undo, "undo", false, "take the declaration back")
	command.Flags().DurationVar(&o.Away, "away", o.Away, "how long the cluster must not have answered")
	return command
}

func example(kind string) string {
	if kind == "pvc" {
		return "pvc data-web-0 -n shop"
	}
	return "pv pvc-46f90104-d142-43f7-a4a1-c899fafff07f"
}

// volumeOfClaim returns the name of the volume of a claim.
func volumeOfClaim(ctx context.Context, home *access.Cluster, namespace, name string) (string, error) {
	claim, err := home.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no claim %q in namespace %q: kubectl get pvc -n %s lists them; of a claim that is gone, name the volume: kubectl lodestone lose pv", name, namespace, namespace)
	case err != nil:
		return "", home.Explain("get claim "+namespace+"/"+name, err)
	case claim.Spec.VolumeName == "":
		return "", outcome.Refuse("claim %s/%s has no volume, so nothing of it is lost: delete the claim if it is to go", namespace, name)
	}
	return claim.Spec.VolumeName, nil
}

// podsOf returns the pods at home that use the claim of a volume.
func podsOf(ctx context.Context, home *access.Cluster, volume *corev1.PersistentVolume) ([]corev1.Pod, error) {
	ref := volume.Spec.ClaimRef
	if ref == nil {
		return nil, nil
	}
	pods, err := home.Client.CoreV1().Pods(ref.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, home.Explain("list pods", err)
	}
	var users []corev1.Pod
	for _, pod := range pods.Items {
		if access.Uses(&pod, ref.Name) {
			users = append(users, pod)
		}
	}
	return users, nil
}
