package move

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func giveUpCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var yes bool
	var output cli.Output
	away := time.Hour
	command := &cobra.Command{
		Use:   "give-up pvc/NAME | volumemove/NAME",
		Short: "End a move whose other cluster is gone for ever",
		Long: `Give-up ends a move that waits for a cluster which will never answer again. One that is
not committed goes back, as with abort, and so does one in Commit whose claims have no
volumes at the target yet; of one that is done the copy at the source is forgotten.
What the move made in that cluster stays there, and the VolumeMove says what that is. If
the other cluster answers after all, it is cleaned up as usual.

If a move that is not committed has its source in that cluster, the data is lost with
it, and what was copied is not whole: it is kept until each claim is deleted, or
declared lost with kubectl lodestone lose pvc.

It asks for the name of the VolumeMove. It is refused (exit code 3) while the clusters
of the move answer, were seen within --away, or were never looked at. It takes the right
to giveup remoteclusters, which administrators of the home cluster have.`,
		Example: "  # Cluster west burnt down in the midst of the move of claim data\n" +
			"  kubectl lodestone move give-up pvc/data -n shop",
		Args:              named.OneOf,
		ValidArgsFunction: named.Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			if away < 0 {
				return cli.Misuse("--away cannot be negative: give a time such as 1h")
			}
			return named.Ask(cmd.Context(), flags, streams.Out, output, args, "give up",
				func(ctx context.Context, home *cli.Cluster, move *v1alpha1.VolumeMove) (*v1alpha1.VolumeMove, error) {
					return giveUp(ctx, home, streams, move, away, yes)
				})
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	command.Flags().DurationVar(&away, "away", away, "how long the cluster must not have answered")
	named.AskFlags(command, &output)
	return command
}

// giveUp asks the user for confirmation, and then writes the request to the provisioner. It returns
// the move as it was last read, also with an error.
func giveUp(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, move *v1alpha1.VolumeMove, away time.Duration,
	yes bool) (*v1alpha1.VolumeMove, error) {
	gone, err := goneClusters(ctx, home, move, away)
	if err != nil {
		return move, err
	}
	for _, cluster := range gone {
		fmt.Fprintln(streams.ErrOut, consequences(move, cluster))
	}
	fmt.Fprintln(streams.ErrOut, "Go on only if that cluster is gone for ever.")
	if err := cli.Ask(ctx, streams.In, streams.ErrOut, yes, move.Name); err != nil {
		return move, err
	}
	return setAction(ctx, home, move, v1alpha1.ActionGiveUp)
}

// goneClusters returns the clusters that a move would give up, or why none of them is gone.
func goneClusters(ctx context.Context, home *cli.Cluster, move *v1alpha1.VolumeMove, away time.Duration) ([]string, error) {
	if problem := whyForbidden(move, v1alpha1.ActionGiveUp); problem != "" {
		return nil, cli.Refuse("%s", problem)
	}
	var gone []string
	first := cli.Refuse("move %s needs no other cluster now: kubectl lodestone move abort or finalize ends it", move.Name)
	for i, cluster := range clustersNeeded(move) {
		remote, err := home.Remotes.Get(ctx, cluster, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			remote = nil
		case err != nil:
			return nil, home.Explain("get RemoteCluster "+cluster, err)
		}
		switch err := checkGone(cluster, remote, away, time.Now()); {
		case err == nil:
			gone = append(gone, cluster)
		case i == 0:
			first = err
		}
	}
	if len(gone) == 0 {
		return nil, first
	}
	return gone, nil
}

func committed(move *v1alpha1.VolumeMove) bool {
	return oneOf(move.Status.Phase, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain, v1alpha1.MoveFinalize)
}

// clustersNeeded returns the remote clusters without which a move does not end.
func clustersNeeded(move *v1alpha1.VolumeMove) []string {
	var clusters []string
	add := func(place *v1alpha1.MovePlace) {
		if place != nil && place.Cluster != keys.Home && !slices.Contains(clusters, place.Cluster) {
			clusters = append(clusters, place.Cluster)
		}
	}
	for _, claim := range move.Status.Claims {
		if !committed(move) || move.Status.Phase == v1alpha1.MoveCommit {
			add(claim.Target)
		}
		add(claim.Source)
	}
	return clusters
}

// checkGone returns why a cluster must not be given up, nil if it may be; remote is nil if
// there is no RemoteCluster of that name. It is pure.
func checkGone(cluster string, remote *v1alpha1.RemoteCluster, away time.Duration, now time.Time) error {
	if remote == nil {
		return nil
	}
	reachable := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Reachable)
	switch {
	case reachable == nil || reachable.Status == metav1.ConditionUnknown:
		return cli.Refuse("it is not known whether cluster %q is gone: let the provisioner look at it, with a kubeconfig that leads there",
			cluster)
	case reachable.Status == metav1.ConditionTrue:
		return cli.Refuse("cluster %q answers, so nothing is left there: kubectl lodestone move abort or finalize ends the move", cluster)
	}
	if gone := now.Sub(reachable.LastTransitionTime.Time); gone < away {
		return cli.Refuse("cluster %q was seen %s ago, which may be a short outage: wait until it has been away for %s, or give another "+
			"time with --away", cluster, replica.Short(gone.Round(time.Second)), replica.Short(away))
	}
	return nil
}

// consequences says what happens to the data of a move that gives a cluster up.
func consequences(move *v1alpha1.VolumeMove, cluster string) string {
	source := slices.ContainsFunc(move.Status.Claims, func(claim v1alpha1.MovedClaim) bool {
		return claim.Source != nil && claim.Source.Cluster == cluster
	})
	text := fmt.Sprintf("VolumeMove %s/%s will end without cluster %q. ", move.Namespace, move.Name, cluster)
	target := slices.ContainsFunc(move.Status.Claims, func(claim v1alpha1.MovedClaim) bool {
		return claim.Target != nil && claim.Target.Cluster == cluster
	})
	switch {
	case target && move.Status.Phase == v1alpha1.MoveCommit:
		return text + "If no claim has its volume there yet, its pods go on at the source, and what was copied stays there.\nElse the move " +
			"goes on to wait for that cluster."
	case source && committed(move):
		return text + "The copy that was kept there stays there; nothing at home knows of it any more."
	case source:
		return text + "The data of its claims is there, and lost with it; what was copied is not whole.\nIt is kept until each claim is " +
			"deleted or declared lost: kubectl lodestone lose pvc NAME."
	}
	return text + "Its claims stay at the source; what was made for them there stays there."
}
