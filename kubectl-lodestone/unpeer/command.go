// Package unpeer ends a peering without loss of data.
package unpeer

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
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/holdings"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/progress"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Options are the flags of unpeer.
type Options struct {
	RemoteContext, RemoteKubeconfig string
	Namespace                       string
	Forget, Yes                     bool
	// Volumes are those that --forget gives up although they were not declared lost.
	Volumes []string
	Timeout time.Duration
}

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Namespace: "lodestone-system", Timeout: 2 * time.Minute}
	command := &cobra.Command{
		Use:   "unpeer NAME",
		Short: "End a peering; refused while volumes or pods are there",
		Long: `Unpeer removes what peer made: the RemoteCluster and the Secret at home and, with
--remote-context, the HomeCluster in the remote cluster, which takes home's rights
back there.

It is refused (exit code 3) while volumes have their data there or pods run there,
and lists them. The ways out: delete the pods and the claims; let policy Retain
keep the data there, then delete the volumes; or --forget, which takes the remote
cluster out of home and leaves everything there untouched, for somebody else to
keep or remove. Volumes are given up one by one: --forget is refused unless each was
declared lost before (kubectl lodestone lose) or is named with --volume. It may be
stopped and run again at any time.`,
		Example: `  # End the peering, in both clusters
  kubectl lodestone unpeer west --remote-context west

  # The remote cluster is gone for ever, and each of its volumes was declared lost
  kubectl lodestone unpeer west --forget

  # The data of one volume is to be kept there without home
  kubectl lodestone unpeer west --forget --volume pvc-46f90104-d142-43f7-a4a1-c899fafff07f`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == keys.Home {
				return outcome.Misuse("%q is the home cluster itself: name a remote cluster, as kubectl lodestone status lists them", keys.Home)
			}
			home, err := access.Home(flags)
			if err != nil {
				return err
			}
			u := &unpeering{Options: *o, home: home, name: args[0], Reporter: progress.Reporter{Out: streams.ErrOut}, streams: streams}
			if o.RemoteContext != "" || o.RemoteKubeconfig != "" {
				if u.remote, err = access.Remote(flags, o.RemoteKubeconfig, o.RemoteContext); err != nil {
					return err
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), o.Timeout)
			defer cancel()
			return u.run(ctx)
		},
	}
	command.Flags().StringVar(&o.RemoteContext, "remote-context", o.RemoteContext, "kubeconfig context of the remote cluster; without it home's rights there stay until its owner takes them back")
	command.Flags().StringVar(&o.RemoteKubeconfig, "remote-kubeconfig", o.RemoteKubeconfig, "kubeconfig file of the remote cluster; default: the one that kubectl uses")
	command.Flags().StringVar(&o.Namespace, "lodestone-namespace", o.Namespace, "namespace of home in which Lodestone runs")
	command.Flags().BoolVar(&o.Forget, "forget", o.Forget, "remove only home's own objects, even while volumes and pods are there, and leave the remote cluster untouched")
	command.Flags().StringArrayVar(&o.Volumes, "volume", nil, "name of a volume that --forget gives up although it was not declared lost; once for each")
	command.Flags().BoolVar(&o.Yes, "yes", o.Yes, "do not ask before --forget")
	command.Flags().DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait in all; what was begun goes on by itself or by the same command again")
	return command
}

// unpeering is one run of the command.
type unpeering struct {
	Options
	progress.Reporter
	name         string
	home, remote *access.Cluster
	streams      genericiooptions.IOStreams
	// foreign says that there is a Secret, but peer did not make it.
	foreign bool
}

func (u *unpeering) run(ctx context.Context) error {
	if len(u.Volumes) > 0 && !u.Forget {
		return outcome.Misuse("--volume names what --forget gives up: give --forget, too")
	}
	remote, secret, err := u.look(ctx)
	if err != nil {
		return err
	}
	if err := u.rightCluster(ctx, remote, secret); err != nil {
		return err
	}
	held, err := holdings.Find(ctx, u.home, u.name)
	if err != nil {
		return err
	}
	switch {
	case remote == nil && secret == nil && u.remote == nil && held.Empty():
		return fmt.Errorf("there is no RemoteCluster %q at home: kubectl lodestone status lists those that there are; to take home's rights back in the remote cluster, give --remote-context", u.name)
	case u.Forget:
		return u.forget(ctx, remote, secret, held)
	case !held.Empty():
		for _, line := range held.Lines() {
			u.Say("  %s", line)
		}
		return outcome.Refuse("%q holds %s (above), so nothing was changed: delete the pods and claims or let policy Retain keep the data there and delete the volumes, or give --forget to leave everything there and forget it at home, volume by volume", u.name, held)
	}
	if remote != nil {
		if err := u.removeRemoteCluster(ctx, remote); err != nil {
			return err
		}
	}
	if secret != nil {
		if err := u.removeSecret(ctx, secret); err != nil {
			return err
		}
	}
	if err := u.removeHomeCluster(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(u.streams.Out, "remotecluster.lodestone.dev/%s unpeered\n", u.name)
	return err
}

// look reads what home holds of the peering; each is nil if it is not there.
func (u *unpeering) look(ctx context.Context) (*v1alpha1.RemoteCluster, *corev1.Secret, error) {
	ref := v1alpha1.SecretKeyRef{Namespace: u.Namespace, Name: u.name}
	remote, err := u.home.Remotes.Get(ctx, u.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		remote = nil
	case err != nil:
		return nil, nil, u.home.Explain("get RemoteCluster "+u.name, err)
	default:
		ref = remote.Spec.KubeconfigSecretRef
	}
	secret, err := u.home.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		secret = nil
	case err != nil:
		return nil, nil, u.home.Explain("get Secret "+ref.Namespace+"/"+ref.Name, err)
	case secret.Annotations[keys.ClusterUID] == "":
		u.foreign = true
		if remote != nil && !u.Forget {
			u.Say("Secret %s/%s was not made by peer and is kept", secret.Namespace, secret.Name)
		}
		secret = nil
	}
	return remote, secret, nil
}

// rightCluster makes sure that --remote-context leads to the cluster of the
// peering.
func (u *unpeering) rightCluster(ctx context.Context, remote *v1alpha1.RemoteCluster, secret *corev1.Secret) error {
	if u.remote == nil {
		return nil
	}
	uid, err := u.remote.UID(ctx)
	if err != nil {
		return err
	}
	recorded := ""
	if secret != nil {
		recorded = secret.Annotations[keys.ClusterUID]
	}
	if remote != nil {
		recorded = remote.Annotations[keys.ClusterUID]
		if remote.Status.ClusterUID != "" {
			recorded = remote.Status.ClusterUID
		}
	}
	if recorded != "" && recorded != uid {
		return outcome.Refuse("context %q does not lead to the cluster that is peered as %q, so nothing was changed: correct --remote-context", u.remote.Context, u.name)
	}
	all, err := u.home.Remotes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return u.home.Explain("list RemoteClusters", err)
	}
	for _, other := range all.Items {
		if other.Name != u.name && (other.Status.ClusterUID == uid || other.Annotations[keys.ClusterUID] == uid) {
			return outcome.Refuse("the cluster of context %q is peered as %q, not as %q, so nothing was changed: correct the name or --remote-context", u.remote.Context, other.Name, u.name)
		}
	}
	return nil
}
