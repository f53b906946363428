// This file has the verbs that act on a move that exists: status, abort, finalize, give-up. It is long because they find the
// move that is meant in the same way, and each says in a sentence why it cannot be done to that one.

package move

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func statusCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var output cli.Output
	var scope cli.Scope
	command := &cobra.Command{
		Use:   "status [pvc/NAME | volumemove/NAME]",
		Short: "Show how far moves are",
		Long: `Status lists the moves of a namespace, or one, named by itself or by a claim that it
moves: the phase, what is done of it, how fast, what it waits for and, of one, how its
data travels.`,
		Example: `  # How far is the move of claim data?
  kubectl lodestone move status data -n shop

  # All moves, with where they come from and how long pods stood still
  kubectl lodestone move status -A -o wide`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneMove(cmd, args)
		},
		ValidArgsFunction: completeMoves(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			if err := scope.Check(); err != nil {
				return err
			}
			if len(args) > 0 && scope.Given() {
				return cli.Misuse("%q names one move, and -A and -l list several: leave one or the other out", args[len(args)-1])
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			namespace = scope.In(namespace)
			moves := &v1alpha1.VolumeMoveList{}
			if len(args) > 0 {
				move, err := find(cmd.Context(), home, namespace, args)
				if err != nil {
					return err
				}
				moves.Items = append(moves.Items, *move)
			} else if moves, err = home.Moves.In(namespace).List(cmd.Context(), scope.Options()); err != nil {
				return unlisted(home, err)
			}
			switch {
			case output.IsObject() && len(args) > 0, output.Format == cli.Name && len(args) > 0:
				return write(streams.Out, output, &moves.Items[0])
			case output.IsObject(), output.Format == cli.Name:
				return writeAll(streams.Out, output, moves.Items)
			}
			if len(moves.Items) == 0 {
				return noMoves(cmd.Context(), home, streams.Out, namespace, scope.Selector)
			}
			if err := table(streams.Out, moves.Items, scope.Everywhere, output.Format == cli.Wide, time.Now()); err != nil || len(args) == 0 {
				return err
			}
			return writeRoutes(streams.Out, &moves.Items[0])
		},
	}
	output.Add(command, "write the VolumeMove that is named, or a List of them; wide shows more columns",
		cli.JSON, cli.YAML, cli.Wide, cli.Name)
	scope.Add(command, "the moves")
	return command
}

// unlisted explains why moves cannot be listed.
func unlisted(home *cli.Cluster, err error) error {
	if apierrors.IsNotFound(err) {
		return home.NotInstalled()
	}
	return home.Explain("list VolumeMoves", err)
}

// noMoves says that there are no moves, if there is the namespace.
func noMoves(ctx context.Context, home *cli.Cluster, out io.Writer, namespace, selector string) error {
	text := "there are no moves"
	if selector != "" {
		text += " with labels " + selector
	}
	if namespace != metav1.NamespaceAll {
		if err := home.RequireNamespace(ctx, namespace); err != nil {
			return err
		}
		text += fmt.Sprintf(" in namespace %q: -A shows those of all", namespace)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// table lists moves, the latest last: with namespaces if they are of several, and with more columns if wide.
func table(out io.Writer, moves []v1alpha1.VolumeMove, namespaces, wide bool, now time.Time) error {
	slices.SortFunc(moves, func(a, b v1alpha1.VolumeMove) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(namespace, name, claims, source, target, age, down, state string) {
		cells := []string{name, claims, target, age, state}
		if wide {
			cells = []string{name, claims, source, target, age, down, state}
		}
		if namespaces {
			cells = slices.Insert(cells, 0, namespace)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	row("NAMESPACE", "NAME", "CLAIMS", "SOURCE", "TARGET", "AGE", "DOWN", "STATE")
	for i := range moves {
		move := &moves[i]
		row(move.Namespace, move.Name, strings.Join(move.Spec.Claims, ","), sourceOf(move), move.Spec.Target.Cluster+move.Spec.Target.Node,
			duration.HumanDuration(now.Sub(move.CreationTimestamp.Time)), downOf(move.Status, now), progressLine(move))
	}
	return w.Flush()
}

// sourceOf returns the cluster that the data comes from.
func sourceOf(move *v1alpha1.VolumeMove) string {
	for _, claim := range move.Status.Claims {
		if claim.Source != nil {
			return claim.Source.Cluster
		}
	}
	return "<unknown>"
}

// downOf says for how long pods could not use the claims.
func downOf(status v1alpha1.VolumeMoveStatus, now time.Time) string {
	switch {
	case status.DownSince != nil:
		return "since " + duration.HumanDuration(now.Sub(status.DownSince.Time))
	case status.Downtime != nil:
		return status.Downtime.Round(10 * time.Millisecond).String()
	}
	return "<none>"
}

// writeRoutes writes one sentence for each claim: by which route its data travels, or travelled,
// and why not directly.
func writeRoutes(out io.Writer, move *v1alpha1.VolumeMove) error {
	for _, claim := range move.Status.Claims {
		var text string
		switch claim.Transport {
		case v1alpha1.TransportDirect:
			text = "directly from mover to mover"
		case v1alpha1.TransportSpliced:
			text = "through the provisioner"
			if legs := claim.Legs; legs != nil {
				text += fmt.Sprintf(", which reaches the mover at the source %s and the one at the target %s", legText(legs.Source),
					legText(legs.Target))
			}
			if claim.TransportMessage != "" {
				text += ": " + claim.TransportMessage
			}
		default: // not connected yet
			continue
		}
		if claim.Repository != "" {
			text = fmt.Sprintf("through the repository of cluster %s (%s so far), and the rest %s", claim.Repository, size(claim.Stored), text)
		}
		if _, err := fmt.Fprintf(out, "the data of claim %s travels %s\n", claim.Name, text); err != nil {
			return err
		}
	}
	return nil
}

// routeSuffix returns in a few words the route of a move's data, for the end of a line; empty where
// it is not known.
func routeSuffix(status v1alpha1.VolumeMoveStatus) string {
	text := ""
	for _, claim := range status.Claims {
		switch claim.Transport {
		case v1alpha1.TransportDirect:
			if text == "" {
				text = "  direct"
			}
		case v1alpha1.TransportSpliced:
			text = "  through the provisioner"
		default: // not connected yet
		}
		if claim.Repository != "" && claim.Transport != "" {
			text = "  through a repository"
		}
	}
	return text
}

func legText(leg v1alpha1.MoveLeg) string {
	switch leg {
	case v1alpha1.LegAddress:
		return "at its address"
	case v1alpha1.LegAPIServer:
		return "through the API server"
	default:
		return "in a way that is not known yet"
	}
}

// action returns the command that requests an action of a move.
func action(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, verb string, wanted v1alpha1.MoveAction, short,
	long string) *cobra.Command {
	var output cli.Output
	command := &cobra.Command{
		Use:               verb + " pvc/NAME | volumemove/NAME",
		Short:             short,
		Long:              long,
		Example:           fmt.Sprintf("  # The move of claim data\n  kubectl lodestone move %s pvc/data -n shop", verb),
		Args:              oneMove,
		ValidArgsFunction: completeMoves(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			move, err := find(ctx, home, namespace, args)
			if err != nil {
				return err
			}
			move, err = setAction(ctx, home, move, wanted)
			return printRequested(streams.Out, output, move, verb, err)
		},
	}
	outputFlag(command, &output)
	return command
}

// whyForbidden says why an action makes no sense for a move, empty if it does.
func whyForbidden(move *v1alpha1.VolumeMove, action v1alpha1.MoveAction) string {
	state, _ := outcomeOf(move)
	switch {
	case state == failed || state == refused || state == checked || move.Status.Phase == v1alpha1.MoveDone:
		return fmt.Sprintf("move %s of %s is over (%s), so there is nothing to do: kubectl lodestone move status -n %s shows whether another "+
			"one goes on", move.Name, strings.Join(move.Spec.Claims, ", "), move.Status.Phase, move.Namespace)
	case move.DeletionTimestamp != nil && action != v1alpha1.ActionGiveUp:
		return fmt.Sprintf("move %s is being deleted, and ends by itself: there is nothing to do", move.Name)
	case action == v1alpha1.ActionAbort && oneOf(move.Status.Phase, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain,
		v1alpha1.MoveFinalize):
		return fmt.Sprintf("move %s is committed, so it cannot be aborted: kubectl lodestone move rollback moves it back", move.Name)
	case action == v1alpha1.ActionFinalize && state != moved:
		return fmt.Sprintf("move %s is not done (%s), so its source is the only copy that counts: wait until it is done, or end it with "+
			"kubectl lodestone move abort", move.Name, cmp.Or(string(move.Status.Phase), "not begun"))
	}
	return ""
}

// setAction writes the wanted action into a move. It returns the move as it was last read, also
// with an error.
func setAction(ctx context.Context, home *cli.Cluster, move *v1alpha1.VolumeMove,
	action v1alpha1.MoveAction) (*v1alpha1.VolumeMove, error) {
	if move.Spec.Action == action {
		return move, nil
	}
	if problem := whyForbidden(move, action); problem != "" {
		return move, cli.Refuse("%s", problem)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": move.UID}, "spec": map[string]any{"action": action},
	})
	if err != nil {
		return move, fmt.Errorf("encode patch: %w", err)
	}
	patched, err := home.Moves.In(move.Namespace).Patch(ctx, move.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return move, fmt.Errorf("VolumeMove %s/%s is gone: there is nothing left to do", move.Namespace, move.Name)
	}
	if err != nil {
		return move, home.Explain("patch VolumeMove "+move.Namespace+"/"+move.Name, err)
	}
	return patched, nil
}

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
the other cluster answers after all, it is cleaned up as ever.

If a move that is not committed has its source in that cluster, the data is lost with
it, and what was copied is not whole: it is kept until each claim is deleted, or
declared lost with kubectl lodestone lose pvc.

It asks for the name of the VolumeMove. It is refused (exit code 3) while the clusters
of the move answer, were seen within --away, or were never looked at. It takes the right
to giveup remoteclusters, which administrators of the home cluster have.`,
		Example: "  # Cluster west burnt down in the midst of the move of claim data\n" +
			"  kubectl lodestone move give-up pvc/data -n shop",
		Args:              oneMove,
		ValidArgsFunction: completeMoves(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			if away < 0 {
				return cli.Misuse("--away cannot be negative: give a time such as 1h")
			}
			if err := output.Check(); err != nil {
				return err
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			move, err := find(ctx, home, namespace, args)
			if err != nil {
				return err
			}
			move, err = giveUp(ctx, home, streams, move, away, yes)
			return printRequested(streams.Out, output, move, "give up", err)
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	command.Flags().DurationVar(&away, "away", away, "how long the cluster must not have answered")
	outputFlag(command, &output)
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
	if err := cli.Confirm(streams.In, streams.ErrOut, yes, move.Name); err != nil {
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
			"time with --away", cluster, gone.Round(time.Second), away)
	}
	return nil
}

// consequences says what happens to the data of a move that gives a cluster up.
func consequences(move *v1alpha1.VolumeMove, cluster string) string {
	source := slices.ContainsFunc(move.Status.Claims, func(claim v1alpha1.MovedClaim) bool {
		return claim.Source != nil && claim.Source.Cluster == cluster
	})
	text := fmt.Sprintf("VolumeMove %s/%s is to end without cluster %q. ", move.Namespace, move.Name, cluster)
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

// outputFlag adds the flag -o of a command that requests an action of one move.
func outputFlag(command *cobra.Command, output *cli.Output) {
	output.Add(command, "write the VolumeMove, also if that is refused", cli.JSON, cli.YAML, cli.Name)
}

// printRequested prints that an action was requested, or returns err, which says why not; with an
// output format it writes the move either way.
func printRequested(out io.Writer, output cli.Output, move *v1alpha1.VolumeMove, verb string, err error) error {
	if output.Format != "" {
		if unwritten := write(out, output, move); err == nil {
			err = unwritten
		}
		return err
	}
	if err == nil {
		_, err = fmt.Fprintf(out, "volumemove/%s: asked to %s\n", move.Name, verb)
	}
	return err
}

// write writes a move as the format says.
func write(out io.Writer, output cli.Output, move *v1alpha1.VolumeMove) error {
	if output.Format == cli.Name {
		return writeName(out, move)
	}
	return output.Write(out, typed(move))
}

// writeAll writes moves as one object, a List.
func writeAll(out io.Writer, output cli.Output, moves []v1alpha1.VolumeMove) error {
	items := make([]*v1alpha1.VolumeMove, 0, len(moves))
	for i := range moves {
		if output.Format == cli.Name {
			if err := writeName(out, &moves[i]); err != nil {
				return err
			}
			continue
		}
		items = append(items, typed(&moves[i]))
	}
	if output.Format == cli.Name {
		return nil
	}
	return output.Write(out, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

func writeName(out io.Writer, move *v1alpha1.VolumeMove) error {
	_, err := fmt.Fprintln(out, "volumemove.lodestone.dev/"+move.Name)
	return err
}

// typed returns a copy of a move with kind and apiVersion, which clients leave out, and without
// managedFields, as kubectl prints objects.
func typed(move *v1alpha1.VolumeMove) *v1alpha1.VolumeMove {
	move = move.DeepCopy()
	move.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("VolumeMove"))
	move.ManagedFields = nil
	return move
}

// namedBy are the kinds by which a move is named.
var namedBy = []cli.Kind{cli.Claim, cli.Move}

// oneMove checks the arguments of a command that takes one move, named by itself or by a claim.
func oneMove(cmd *cobra.Command, args []string) error {
	references, err := cli.SomeReferences(cmd, args, namedBy...)
	if err == nil && len(references) > 1 {
		err = cli.Misuse("%q is one argument too many: the command takes one move at a time; usage: %s", args[len(args)-1], cmd.UseLine())
	}
	return err
}

// completeMoves completes the claims that moves have, and the moves.
func completeMoves(flags *genericclioptions.ConfigFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 || strings.Contains(toComplete, "/") {
			return cli.CompleteReferences(flags, true, nil, namedBy...)(cmd, args, toComplete)
		}
		return cli.Complete(flags, func(ctx context.Context, home *cli.Cluster, namespace string) ([]string, error) {
			moves, err := home.Moves.In(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			var names []string
			for _, move := range moves.Items {
				names = append(append(names, move.Name), move.Spec.Claims...)
			}
			slices.Sort(names)
			return slices.Compact(names), nil
		})(cmd, args, toComplete)
	}
}

// find returns the move that arguments name: see choose.
func find(ctx context.Context, home *cli.Cluster, namespace string, args []string) (*v1alpha1.VolumeMove, error) {
	references, err := cli.References(args, namedBy...)
	if err != nil {
		return nil, err
	}
	moves, err := home.Moves.In(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, unlisted(home, err)
	}
	found, err := choose(moves.Items, references[0])
	if err == nil && found == nil {
		err = noSuchMove(ctx, home, namespace, references[0], moves.Items)
	}
	return found, err
}

// noSuchMove says that there is no move as a user names it, and which there are.
func noSuchMove(ctx context.Context, home *cli.Cluster, namespace string, named cli.Reference, moves []v1alpha1.VolumeMove) error {
	if len(moves) == 0 {
		if err := home.RequireNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	what := fmt.Sprintf("move %q in namespace %q, nor one of a claim of that name", named.Name, namespace)
	switch named.Kind {
	case cli.Claim:
		what = fmt.Sprintf("move of claim %q in namespace %q", named.Name, namespace)
	case cli.Move:
		what = fmt.Sprintf("move %q in namespace %q", named.Name, namespace)
	default: // a name alone
	}
	return fmt.Errorf("there is no %s; %s", what, thereAre(namespace, moves))
}

// thereAre names the moves that there are, and their claims.
func thereAre(namespace string, moves []v1alpha1.VolumeMove) string {
	const most = 8
	if len(moves) == 0 {
		return "there are none at all: kubectl lodestone move status -A shows those of other namespaces"
	}
	var names []string
	for _, move := range moves[:min(most, len(moves))] {
		names = append(names, fmt.Sprintf("%s (of %s)", move.Name, strings.Join(move.Spec.Claims, ", ")))
	}
	text := "there are: " + strings.Join(names, ", ")
	if more := len(moves) - most; more > 0 {
		text += fmt.Sprintf(" and %d more (kubectl lodestone move status -n %s)", more, namespace)
	}
	return text
}

// choose returns the move that a user means: the one of that name, else of the moves of the claim of that name the one that
// goes on, else the latest that was committed, else the latest, of which nothing is left to do. So a move that was refused, or
// aborted, never stands in for the one that runs. Several that go on are an error. It returns nil if there is none. It is pure.
func choose(moves []v1alpha1.VolumeMove, reference cli.Reference) (*v1alpha1.VolumeMove, error) {
	var found *v1alpha1.VolumeMove
	var goOn []string
	for i := range moves {
		move := &moves[i]
		if reference.Kind != cli.Claim && move.Name == reference.Name {
			return move, nil
		}
		if reference.Kind == cli.Move || !slices.Contains(move.Spec.Claims, reference.Name) {
			continue
		}
		if rank(move) == rankGoesOn {
			goOn = append(goOn, move.Name)
		}
		if found == nil || rank(move) > rank(found) || rank(move) == rank(found) && found.CreationTimestamp.Before(&move.CreationTimestamp) {
			found = move
		}
	}
	if len(goOn) > 1 {
		slices.Sort(goOn)
		return nil, cli.Misuse("claim %q has several moves that go on: name one of %s", reference.Name, strings.Join(goOn, ", "))
	}
	return found, nil
}

const (
	rankOver = iota
	rankCommitted
	rankGoesOn
)

func rank(move *v1alpha1.VolumeMove) int {
	switch state, _ := outcomeOf(move); state {
	case going:
		return rankGoesOn
	case moved:
		return rankCommitted
	case refused, checked, failed:
	}
	return rankOver
}
