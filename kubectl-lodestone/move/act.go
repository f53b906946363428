package move

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// find returns the move of a name or, if there is none, the latest one of the claim
// of that name.
func find(ctx context.Context, home *access.Cluster, namespace, name string) (*v1alpha1.VolumeMove, error) {
	moves, err := home.Moves.In(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, home.Explain("list VolumeMoves", err)
	}
	var found *v1alpha1.VolumeMove
	for i := range moves.Items {
		move := &moves.Items[i]
		if move.Name == name {
			return move, nil
		}
		if slices.Contains(move.Spec.Claims, name) && (found == nil || found.CreationTimestamp.Before(&move.CreationTimestamp)) {
			found = move
		}
	}
	if found == nil {
		return nil, fmt.Errorf("there is no move %q in namespace %q, nor one of a claim of that name: kubectl lodestone move status -n %s lists them", name, namespace, namespace)
	}
	return found, nil
}

// want writes what is wanted of a move. It returns the move as it was last seen, with an
// error too.
func want(ctx context.Context, home *access.Cluster, move *v1alpha1.VolumeMove, action v1alpha1.MoveAction) (*v1alpha1.VolumeMove, error) {
	if move.Spec.Action == action {
		return move, nil
	}
	if problem := forbids(move, action); problem != "" {
		return move, outcome.Refuse("%s", problem)
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

// forbids says why an action makes no sense for a move, if it does not.
func forbids(move *v1alpha1.VolumeMove, action v1alpha1.MoveAction) string {
	state, _ := ended(move)
	switch {
	case state == failed || state == refused || state == checked || move.Status.Phase == v1alpha1.MoveDone:
		return fmt.Sprintf("move %s is over (%s): there is nothing to do", move.Name, move.Status.Phase)
	case action == v1alpha1.ActionAbort && oneOf(move.Status.Phase, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain, v1alpha1.MoveFinalize):
		return fmt.Sprintf("move %s is committed, so it cannot be aborted: kubectl lodestone move rollback moves it back", move.Name)
	case action == v1alpha1.ActionFinalize && state != moved:
		return fmt.Sprintf("move %s is not done (%s): its source is the only copy that counts", move.Name, move.Status.Phase)
	}
	return ""
}

// table lists moves, the latest last.
func table(out io.Writer, moves []v1alpha1.VolumeMove, now time.Time) error {
	slices.SortFunc(moves, func(a, b v1alpha1.VolumeMove) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tCLAIMS\tTARGET\tAGE\tSTATE")
	for i := range moves {
		move := &moves[i]
		target := move.Spec.Target.Cluster + move.Spec.Target.Node
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", move.Name, strings.Join(move.Spec.Claims, ","), target,
			duration.HumanDuration(now.Sub(move.CreationTimestamp.Time)), line(move))
	}
	return w.Flush()
}
