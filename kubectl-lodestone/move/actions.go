// This file has the verbs abort and finalize, and what they share with status, rollback and give-up: which move is meant, and what may
// be asked of it.

package move

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// action returns the command that requests an action of a move.
func action(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, verb string, wanted v1alpha1.MoveAction, short,
	long string) *cobra.Command {
	var output cli.Output
	command := &cobra.Command{
		Use:               verb + " pvc/NAME | volumemove/NAME",
		Short:             short,
		Long:              long,
		Example:           fmt.Sprintf("  # The move of claim data\n  kubectl lodestone move %s pvc/data -n shop", verb),
		Args:              named.OneOf,
		ValidArgsFunction: named.Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			return named.Ask(cmd.Context(), flags, streams.Out, output, args, verb,
				func(ctx context.Context, home *cli.Cluster, move *v1alpha1.VolumeMove) (*v1alpha1.VolumeMove, error) {
					return setAction(ctx, home, move, wanted)
				})
		},
	}
	named.AskFlags(command, &output)
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

// named are the moves, as commands name them.
var named = cli.Named[v1alpha1.VolumeMove, *v1alpha1.VolumeMove]{
	Kind: v1alpha1.GroupVersion.WithKind("VolumeMove"), As: cli.Move, One: "move", Several: "moves",
	List: func(ctx context.Context, home *cli.Cluster, namespace string, options metav1.ListOptions) ([]v1alpha1.VolumeMove, error) {
		moves, err := home.Moves.In(namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err):
			return nil, home.NotInstalled()
		case err != nil:
			return nil, home.Explain("list VolumeMoves", err)
		}
		return moves.Items, nil
	},
	Claims: func(move *v1alpha1.VolumeMove) []string { return move.Spec.Claims },
	Choose: choose, There: thereAre,
}

// thereAre names the moves that there are, and their claims.
func thereAre(moves []v1alpha1.VolumeMove, _, namespace string) string {
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
// goes on, else the latest that was committed and keeps something (a failover keeps a snapshot after the way back of it is done), else
// the latest that was committed, else the latest, of which nothing is left to do. So a move that was refused, or aborted, never stands in
// for the one that runs. Several that go on are an error. It returns nil if there is none. It is pure.
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
	rankKeeps
	rankGoesOn
)

func rank(move *v1alpha1.VolumeMove) int {
	switch state, _ := outcomeOf(move); state {
	case going:
		return rankGoesOn
	case moved:
		if move.Status.Phase != v1alpha1.MoveDone {
			return rankKeeps
		}
		return rankCommitted
	case refused, checked, failed:
	}
	return rankOver
}
