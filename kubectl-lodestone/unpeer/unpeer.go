// Package unpeer is the command unpeer: it ends a peering without loss of data, or with --forget
// gives up a cluster that is gone. Read unpeer.go first; disconnect.go cuts the connections of
// home's programs, forget.go removes home's objects.
package unpeer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Options are the flags of unpeer.
type Options struct {
	RemoteContext, RemoteKubeconfig string
	Namespace                       string
	Forget, Yes                     bool
	// Volumes are the volumes that --forget gives up although they were not declared lost.
	Volumes []string
	Timeout time.Duration
}

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Namespace: "lodestone-system", Timeout: 2 * time.Minute}
	command := &cobra.Command{
		Use:   "unpeer REMOTECLUSTER",
		Short: "End a peering; refused while volumes or pods are there",
		Long: `Unpeer removes what peer made: the RemoteCluster and the Secret at home and, with
--remote-context, the HomeCluster in the remote cluster, which takes home's rights
back there.

It is refused (exit code 3) while volumes have their data there or pods run there,
and lists them. There are three ways out. Delete the pods and the claims, and the data
goes. To keep the data there, give the volumes the policy Retain, then delete pods,
claims and volumes. Or give --forget, which takes the remote cluster out of home and
leaves everything there untouched, for somebody else to keep or remove. Volumes are
given up one by one: --forget is refused unless each was declared lost before (kubectl
lodestone lose) or is named with --volume. It may be stopped and run again at any time.`,
		Example: `  # End the peering, in both clusters
  kubectl lodestone unpeer west --remote-context west

  # The remote cluster is gone for ever, and each of its volumes was declared lost
  kubectl lodestone unpeer west --forget

  # The data of one volume is to be kept there without home
  kubectl lodestone unpeer west --forget --volume pvc-46f90104-d142-43f7-a4a1-c899fafff07f`,
		Args:              cli.TakesOne(cli.RemoteCluster),
		ValidArgsFunction: cli.CompleteReferences(flags, true, []cli.Kind{cli.RemoteCluster}),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := cli.OneReference(cmd, args, cli.RemoteCluster)
			if err != nil {
				return err
			}
			if o.Timeout <= 0 {
				return cli.Misuse("--timeout must be more than 0: give a time such as 2m")
			}
			if len(o.Volumes) > 0 && !o.Forget {
				return cli.Misuse("--volume names what --forget gives up: give --forget, too")
			}
			if o.Forget && (o.RemoteContext != "" || o.RemoteKubeconfig != "") {
				return cli.Misuse("--forget leaves the remote cluster untouched: leave out --remote-context and --remote-kubeconfig")
			}
			if named.Name == keys.Home {
				return cli.Misuse("%q is the home cluster itself: name a remote cluster, as kubectl lodestone status lists them", keys.Home)
			}
			home, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			u := &unpeering{Options: *o, home: home, name: named.Name, Reporter: cli.Reporter{Out: streams.ErrOut}, streams: streams}
			if o.RemoteContext != "" || o.RemoteKubeconfig != "" {
				if u.remote, err = cli.ConnectRemote(flags, o.RemoteKubeconfig, o.RemoteContext); err != nil {
					return err
				}
			}
			ctx, cancel := cli.Within(cmd.Context(), o.Timeout)
			defer cancel()
			return u.run(ctx)
		},
	}
	command.Flags().StringVar(&o.RemoteContext, "remote-context", o.RemoteContext,
		"kubeconfig context of the remote cluster; without it home's rights there stay until its owner takes them back")
	command.Flags().StringVar(&o.RemoteKubeconfig, "remote-kubeconfig", o.RemoteKubeconfig,
		"kubeconfig file of the remote cluster; default: the one that kubectl uses")
	command.Flags().StringVar(&o.Namespace, "lodestone-namespace", o.Namespace, "namespace of home in which Lodestone runs")
	command.Flags().BoolVar(&o.Forget, "forget", o.Forget, "remove only home's own objects, even while volumes and pods are there, and "+
		"leave the remote cluster untouched")
	command.Flags().StringArrayVar(&o.Volumes, "volume", nil, "name of a volume that --forget gives up although it was not declared lost; "+
		"once for each")
	command.Flags().BoolVar(&o.Yes, "yes", o.Yes, "do not ask before --forget")
	command.Flags().DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait in all; what was begun goes on by itself or by the same "+
		"command again")
	cli.CompleteFlag(command, flags, "lodestone-namespace", cli.NamesOf(cli.Namespace))
	_ = command.RegisterFlagCompletionFunc("volume", func(cmd *cobra.Command, args []string, typed string) (
		[]string, cobra.ShellCompDirective) {
		return cli.Complete(flags, func(ctx context.Context, home *cli.Cluster, _ string) ([]string, error) {
			if named, err := cli.References(args, cli.RemoteCluster); err == nil && len(named) == 1 {
				return home.RemoteVolumes(ctx, named[0].Name)
			}
			return home.RemoteVolumes(ctx, "")
		})(cmd, args, typed)
	})
	return command
}

// unpeering is one run of the command.
type unpeering struct {
	Options
	cli.Reporter
	name         string
	home, remote *cli.Cluster
	streams      genericiooptions.IOStreams
	// userSecret says that there is a Secret that peer did not make.
	userSecret bool
}

func (u *unpeering) run(ctx context.Context) error {
	remote, secret, err := u.observe(ctx)
	if err != nil {
		return err
	}
	if err := u.checkCluster(ctx, remote, secret); err != nil {
		return err
	}
	held, err := cli.ReadHoldings(ctx, u.home, u.name)
	if err != nil {
		return err
	}
	if u.remote != nil && !u.Forget && inDoubt(remote) {
		return cli.Refuse("a copy of this home cluster may act in %q, and would lose its rights there, so nothing was changed: leave "+
			"--remote-context out to end the peering at home alone, or run kubectl lodestone confirm %s first", u.name, u.name)
	}
	switch {
	case remote == nil && secret == nil && u.remote == nil && held.Empty():
		return fmt.Errorf("%w; to take home's rights back in a remote cluster that home does not know any more, give --remote-context",
			u.home.Missing(ctx, cli.RemoteCluster, "", u.name))
	case u.Forget:
		return u.forget(ctx, remote, secret, held)
	case !held.Empty():
		for _, line := range held.Lines() {
			u.Say("  %s", line)
		}
		return cli.Refuse("%q holds %s (above), so nothing was changed: (1) delete the pods and claims, and the data goes; (2) to keep the data "+
			"there, give the volumes the policy Retain, then delete pods, claims and volumes here; or (3) give --forget, which leaves everything "+
			"there and forgets it at home, volume by volume", u.name, held)
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

// inDoubt says whether a copy of this home cluster may act in the remote cluster.
func inDoubt(remote *v1alpha1.RemoteCluster) bool {
	if remote == nil {
		return false
	}
	state := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.HomeInForce)
	return state != nil && homeepoch.Doubtful(state.Reason)
}

// observe reads home's objects of the peering; each is nil if it does not exist.
func (u *unpeering) observe(ctx context.Context) (*v1alpha1.RemoteCluster, *corev1.Secret, error) {
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
		u.userSecret = true
		if remote != nil && !u.Forget {
			u.Say("Secret %s/%s was not made by peer and is kept", secret.Namespace, secret.Name)
		}
		secret = nil
	}
	return remote, secret, nil
}

// checkCluster returns an error unless --remote-context is the cluster of the peering.
func (u *unpeering) checkCluster(ctx context.Context, remote *v1alpha1.RemoteCluster, secret *corev1.Secret) error {
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
		return cli.Refuse("context %q does not lead to the cluster that is peered as %q, so nothing was changed: correct --remote-context",
			u.remote.Context, u.name)
	}
	all, err := u.home.Remotes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return u.home.Explain("list RemoteClusters", err)
	}
	for _, other := range all.Items {
		if other.Name != u.name && (other.Status.ClusterUID == uid || other.Annotations[keys.ClusterUID] == uid) {
			return cli.Refuse("the cluster of context %q is peered as %q, not as %q, so nothing was changed: correct the name or --remote-context",
				u.remote.Context, other.Name, u.name)
		}
	}
	return nil
}

// deleteOptions limits a deletion to the object that was read.
func deleteOptions(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))}
}

// isGone reports whether the error of a get or a delete means that the object that was read no
// longer exists.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// removeRemoteCluster deletes the RemoteCluster and waits until home's programs have removed their
// finalizers.
func (u *unpeering) removeRemoteCluster(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	if remote.DeletionTimestamp == nil {
		if err := u.home.Remotes.Delete(ctx, remote.Name, deleteOptions(remote.UID)); err != nil && !isGone(err) {
			return u.home.Explain("delete RemoteCluster "+remote.Name, err)
		}
		u.Say("deleting RemoteCluster %q", remote.Name)
	}
	return u.Await(ctx, fmt.Sprintf("RemoteCluster %q to be gone", remote.Name), func(ctx context.Context) (string, bool, error) {
		now, err := u.home.Remotes.Get(ctx, remote.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && now.UID != remote.UID:
			return "", true, nil
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return "", false, u.home.Explain("get RemoteCluster "+remote.Name, err)
		case err != nil:
			return u.home.Explain("get RemoteCluster "+remote.Name, err).Error(), false, nil
		}
		return deletionMessage(now), false, nil
	})
}

// deletionMessage says what keeps a RemoteCluster from being deleted.
func deletionMessage(remote *v1alpha1.RemoteCluster) string {
	ready := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
	node := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.VirtualNode)
	switch {
	case node != nil && slices.Contains(remote.Finalizers, keys.VirtualNodeFinalizer):
		return node.Message
	case ready != nil && ready.Reason == "Leaving":
		return ready.Message
	}
	return "it is held by " + strings.Join(remote.Finalizers, ", ") +
		"; if this lasts, see whether Lodestone runs at home (kubectl get pods -n lodestone-system)"
}

func (u *unpeering) removeSecret(ctx context.Context, secret *corev1.Secret) error {
	err := u.home.Client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, deleteOptions(secret.UID))
	if err != nil && !isGone(err) {
		return u.home.Explain("delete Secret "+secret.Namespace+"/"+secret.Name, err)
	}
	u.Say("deleted Secret %s/%s", secret.Namespace, secret.Name)
	return nil
}

// removeHomeCluster revokes home's rights in the remote cluster, or says how its owner does.
func (u *unpeering) removeHomeCluster(ctx context.Context) error {
	if u.remote == nil {
		id, err := u.home.HomeID(ctx, u.Namespace)
		if err != nil {
			return err
		}
		u.Say("home keeps its rights in the remote cluster until its owner takes them back there: kubectl delete homecluster %s", id)
		return nil
	}
	uid, err := u.home.UID(ctx)
	if err != nil {
		return err
	}
	homes := u.remote.Remote.HomeClusters()
	list, err := homes.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // no agent, so no HomeClusters
	}
	if err != nil {
		return u.remote.Explain("list HomeClusters", err)
	}
	for _, found := range list.Items {
		if found.Spec.ClusterUID != uid {
			continue
		}
		if found.Status.Pods > 0 {
			return cli.Refuse("HomeCluster %q in the cluster of context %q still has %d pods of home, which deleting it would end: wait until "+
				"they have ended, then run the same command again", found.Name, u.remote.Context, found.Status.Pods)
		}
		if err := homes.Delete(ctx, found.Name, deleteOptions(found.UID)); err != nil && !isGone(err) {
			return u.remote.Explain("delete HomeCluster "+found.Name, err)
		}
		u.Say("deleting HomeCluster %q in the cluster of context %q", found.Name, u.remote.Context)
		if err := u.awaitGone(ctx, found); err != nil {
			return err
		}
	}
	return nil
}

// removalTimeout is how long the command waits for the remote agent to remove home's objects there.
// What is left after that contains data and is the owner's to remove: home has no rights there any
// more.
const removalTimeout = 20 * time.Second

func (u *unpeering) awaitGone(ctx context.Context, home remotev1alpha1.HomeCluster) error {
	left := ""
	short, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	what := fmt.Sprintf("HomeCluster %q in the cluster of context %q to be gone", home.Name, u.remote.Context)
	err := u.Await(short, what, func(ctx context.Context) (string, bool, error) {
		now, err := u.remote.Remote.HomeClusters().Get(ctx, home.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && now.UID != home.UID:
			return "", true, nil
		case err != nil:
			return u.remote.Explain("get HomeCluster "+home.Name, err).Error(), false, nil
		}
		if ready := meta.FindStatusCondition(now.Status.Conditions, remotev1alpha1.Ready); ready != nil && ready.Reason == "Removing" {
			left = ready.Message
		}
		return left, false, nil
	})
	if err != nil && ctx.Err() == nil && left != "" {
		u.Say("HomeCluster %q stays in the cluster of context %q until its owner has dealt with what is left there: %s", home.Name,
			u.remote.Context, left)
		return nil
	}
	return err
}
