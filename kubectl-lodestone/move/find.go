package move

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// oneMove checks the arguments of a command that takes one move, named by itself or by a claim.
func oneMove(verb string) func(args []string) error {
	return func(args []string) error {
		references, err := cli.References(args, cli.Claim, cli.Move)
		if err == nil && len(references) != 1 {
			err = cli.Misuse("say which move: kubectl lodestone move %s MOVE, or the name of a claim that it moves", verb)
		}
		return err
	}
}

// find returns the move that arguments name: see choose.
func find(ctx context.Context, home *cli.Cluster, namespace string, args []string) (*v1alpha1.VolumeMove, error) {
	references, err := cli.References(args, cli.Claim, cli.Move)
	if err != nil {
		return nil, err
	}
	moves, err := home.Moves.In(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, home.Explain("list VolumeMoves", err)
	}
	found, err := choose(moves.Items, references[0])
	if err == nil && found == nil {
		err = fmt.Errorf("there is no move %q in namespace %q, nor one of a claim of that name: kubectl lodestone move status -n "+
			"%s lists them", references[0].Name, namespace, namespace)
	}
	return found, err
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
