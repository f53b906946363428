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
	"time"

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
					if wanted == v1alpha1.ActionAbort {
						return abort(ctx, home, move)
					}
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
			"one is under way", move.Name, strings.Join(move.Spec.Claims, ", "), move.Status.Phase, move.Namespace)
	case move.DeletionTimestamp != nil && action != v1alpha1.ActionGiveUp:
		return fmt.Sprintf("move %s is being deleted, and ends by itself: there is nothing to do", move.Name)
	case action == v1alpha1.ActionAbort && oneOf(move.Status.Phase, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain,
		v1alpha1.MoveFinalize):
		return fmt.Sprintf("move %s is committed, so it cannot be aborted: kubectl lodestone move rollback %s -n %s moves it back", move.Name,
			move.Name, move.Namespace)
	case action == v1alpha1.ActionFinalize && state != moved:
		return fmt.Sprintf("move %s is not done (%s), so its source is the only copy that counts: wait until it is done, or end it with "+
			"kubectl lodestone move abort %s -n %s", move.Name, phaseOf(move), move.Name, move.Namespace)
	case action != v1alpha1.ActionGiveUp && oneOf(move.Spec.Action, v1alpha1.ActionAbort, v1alpha1.ActionFinalize, v1alpha1.ActionGiveUp):
		return fmt.Sprintf("move %s was asked for %s already, which cannot be taken back: %s", move.Name, move.Spec.Action,
			wayWithoutAction(move))
	}
	return ""
}

// wayWithoutAction says how a move ends that cannot be asked for anything any more.
func wayWithoutAction(move *v1alpha1.VolumeMove) string {
	state, _ := outcomeOf(move)
	switch {
	case state != moved:
		return fmt.Sprintf("kubectl lodestone move status %s -n %s shows how far that is", move.Name, move.Namespace)
	case move.Spec.Failover != nil:
		return fmt.Sprintf("kubectl delete volumemove %s -n %s ends it, and leaves the volume that the claim had for you to remove", move.Name,
			move.Namespace)
	}
	return fmt.Sprintf("kubectl delete volumemove %s -n %s removes the copy at the source once its pods are ready", move.Name, move.Namespace)
}

const (
	// heededIn is how long an abort is looked after, heededAgain the pause between two looks.
	heededIn, heededAgain = 5 * time.Second, 200 * time.Millisecond
)

// abort asks a move to end, and sees whether that came too late: what is known of a move may be older than its commit. It returns the
// move as it was last read, also with an error.
func abort(ctx context.Context, home *cli.Cluster, move *v1alpha1.VolumeMove) (*v1alpha1.VolumeMove, error) {
	move, err := setAction(ctx, home, move, v1alpha1.ActionAbort)
	if err != nil {
		return move, err
	}
	ctx, cancel := context.WithTimeout(ctx, heededIn)
	defer cancel()
	for {
		state, _ := outcomeOf(move)
		switch {
		case state == moved || committed(move):
			return move, fmt.Errorf("move %s was committed before it could be aborted: kubectl lodestone move rollback %s -n %s moves it back "+
				"once it is done", move.Name, move.Name, move.Namespace)
		case state != going || move.Status.Phase == v1alpha1.MoveRollBack:
			return move, nil
		}
		select {
		case <-ctx.Done():
			return move, nil // it is asked for, and the provisioner does it once it can
		case <-time.After(heededAgain):
		}
		if seen, err := getter(home, move)(ctx); err == nil {
			move = seen
		}
	}
}

// phaseOf is the phase of a move, in words if it has none yet.
func phaseOf(move *v1alpha1.VolumeMove) string { return cmp.Or(string(move.Status.Phase), "not begun") }

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
	Choose: ranking(rank).choose, There: thereAre,
}

// thereAre names the moves that there are, and their claims.
func thereAre(moves []v1alpha1.VolumeMove, _, namespace string) string {
	const most = 8
	if len(moves) == 0 {
		return "kubectl lodestone move status -A shows those of other namespaces"
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

// choose returns the move that a user means: the one of that name, or of the moves of the claim of that name the one that goes on, else the
// first by rank, and of several the latest. So a move that was refused, or aborted, never stands in for the one that runs, also not by
// its name, which may be that of a claim, too. Several that go on are an error, and so is a name that means two moves. It returns nil
// if there is none. It is pure.
func choose(moves []v1alpha1.VolumeMove, reference cli.Reference, by ranking) (*v1alpha1.VolumeMove, error) {
	var byName, ofClaim *v1alpha1.VolumeMove
	var goOn []string
	for i := range moves {
		move := &moves[i]
		if reference.Kind != cli.Claim && move.Name == reference.Name {
			byName = move
		}
		if reference.Kind == cli.Move || !slices.Contains(move.Spec.Claims, reference.Name) {
			continue
		}
		if by(move) == rankGoesOn {
			goOn = append(goOn, move.Name)
		}
		if ofClaim == nil || by(move) > by(ofClaim) || by(move) == by(ofClaim) && ofClaim.CreationTimestamp.Before(&move.CreationTimestamp) {
			ofClaim = move
		}
	}
	switch {
	case byName != nil && (ofClaim == nil || byName == ofClaim || by(byName) == rankGoesOn && len(goOn) == 0):
		return byName, nil
	case len(goOn) > 1:
		slices.Sort(goOn)
		return nil, cli.Misuse("claim %q has several moves under way: name one of %s", reference.Name, strings.Join(goOn, ", "))
	case byName != nil && (by(byName) == rankGoesOn || by(ofClaim) != rankGoesOn):
		return nil, cli.Misuse("%q names a VolumeMove, and a claim that VolumeMove %s moves: write volumemove/%[1]s or pvc/%[1]s",
			reference.Name, ofClaim.Name)
	}
	return ofClaim, nil
}

// ranking says which of the moves of a claim comes first: the one with the highest value.
type ranking func(*v1alpha1.VolumeMove) int

// choose is choose by that ranking.
func (by ranking) choose(moves []v1alpha1.VolumeMove, reference cli.Reference) (*v1alpha1.VolumeMove, error) {
	return choose(moves, reference, by)
}

const (
	rankOver = iota
	rankCommitted
	rankKeeps
	rankGoesOn
)

// rank has one that goes on first, then one that was committed and keeps something, for that may be removed (a failover keeps a snapshot
// after the way back of it is done), then another one that was committed.
func rank(move *v1alpha1.VolumeMove) int {
	if by := rankToGoBack(move); by != rankCommitted || move.Status.Phase == v1alpha1.MoveDone {
		return by
	}
	return rankKeeps
}

// rankToGoBack is rank for the way back of a move: the claim is where the latest that was committed has brought it, whatever an earlier
// one keeps still.
func rankToGoBack(move *v1alpha1.VolumeMove) int {
	switch state, _ := outcomeOf(move); state {
	case going:
		return rankGoesOn
	case moved:
		return rankCommitted
	case refused, checked, failed:
	}
	return rankOver
}
