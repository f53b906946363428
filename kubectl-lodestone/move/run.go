package move

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
)

// runner creates and follows the moves of one command.
type runner struct {
	*Options
	home      *cli.Cluster
	streams   genericiooptions.IOStreams
	namespace string
	// statefulSet says that the moves are those of the replicas of a StatefulSet.
	statefulSet bool
	// moves are the created moves, as they were last read.
	moves []v1alpha1.VolumeMove
}

// run moves groups of claims, one group after another unless all together. Replicas of a
// StatefulSet whose data is at the target already are skipped.
func (r *runner) run(ctx context.Context, groups [][]string) error {
	wanted, err := r.newMoves(ctx, groups)
	if err != nil {
		return err
	}
	return r.runAll(ctx, wanted)
}

// runAll creates and follows moves, and writes them if that was asked for.
func (r *runner) runAll(ctx context.Context, wanted []*v1alpha1.VolumeMove) error {
	err := r.createAll(ctx, wanted)
	switch {
	case r.Output.Format == "" && err == nil && len(r.moves) == 0:
		_, err = fmt.Fprintln(r.streams.Out, "nothing to do: all claims have their data there")
	case r.Output.Format != "":
		if unwritten := r.write(); err == nil {
			err = unwritten
		}
	}
	return err
}

// newMoves returns the moves of groups of claims, after a check that all claims exist, so that a
// mistake changes nothing.
func (r *runner) newMoves(ctx context.Context, groups [][]string) ([]*v1alpha1.VolumeMove, error) {
	var wanted []*v1alpha1.VolumeMove
	for _, group := range groups {
		move, err := r.object(r.namespace, group...)
		if err != nil {
			return nil, err
		}
		for _, claim := range group {
			found, err := r.home.Claim(ctx, r.namespace, claim)
			if err != nil {
				return nil, err
			}
			if found.DeletionTimestamp != nil {
				return nil, cli.Refuse("claim %s/%s is being deleted%s, so it is not moved", r.namespace, claim,
					withNamespace(ctx, r.home, r.namespace))
			}
		}
		wanted = append(wanted, move)
	}
	return wanted, nil
}

func (r *runner) createAll(ctx context.Context, wanted []*v1alpha1.VolumeMove) error {
	var made []*v1alpha1.VolumeMove
	for i, move := range wanted {
		created, err := r.create(ctx, move)
		switch {
		case err != nil:
			return errors.Join(withNotBegun(err, wanted[i+1:]), r.finishAll(ctx, made))
		case r.Detach:
			r.moves = append(r.moves, *created)
			if r.Output.Format == "" {
				fmt.Fprintf(r.streams.Out, "volumemove/%s created\n", created.Name)
			}
		case r.Together:
			made = append(made, created)
		default:
			if err := r.finish(ctx, created); err != nil {
				return withNotBegun(err, wanted[i+1:])
			}
		}
	}
	return r.finishAll(ctx, made)
}

func (r *runner) create(ctx context.Context, move *v1alpha1.VolumeMove) (*v1alpha1.VolumeMove, error) {
	created, err := r.home.Moves.In(r.namespace).Create(ctx, move, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the Lodestone of this cluster is too old to move volumes: kubectl lodestone install --context %s upgrades it",
			r.home.Context)
	}
	return created, r.home.Explain("create a VolumeMove for "+strings.Join(move.Spec.Claims, ", "), err)
}

// withNotBegun adds to an error which moves were not begun because of it.
func withNotBegun(err error, left []*v1alpha1.VolumeMove) error {
	if len(left) == 0 {
		return err
	}
	var names []string
	for _, move := range left {
		names = append(names, move.Spec.Claims...)
	}
	return fmt.Errorf("%w; not begun: %s (run the same command again for them)", err, strings.Join(names, ", "))
}

// finishAll follows moves that run at the same time: the end of one does not end the others.
func (r *runner) finishAll(ctx context.Context, made []*v1alpha1.VolumeMove) error {
	var all []error
	for _, move := range made {
		all = append(all, r.finish(ctx, move))
	}
	return errors.Join(all...)
}

// finish follows a move and prints its result.
func (r *runner) finish(ctx context.Context, move *v1alpha1.VolumeMove) error {
	move, err := follow(ctx, r.home, r.streams.ErrOut, move)
	if r.statefulSet && isAlreadyThere(move) {
		// Nothing was moved. A user who may not delete the VolumeMove leaves it until it expires.
		_ = r.deleteMove(ctx, move)
		fmt.Fprintf(r.streams.ErrOut, "%s: nothing to do, the data is there\n", strings.Join(move.Spec.Claims, ", "))
		return nil
	}
	r.moves = append(r.moves, *move)
	state, _ := outcomeOf(move)
	switch {
	case r.DryRun:
		err = errors.Join(err, r.deleteMove(ctx, move))
	case state == refused:
		// The user has been told why, and nothing was begun: it would only be in the way of what is tried next.
		_ = r.deleteMove(ctx, move)
	}
	switch {
	case err != nil || r.Output.Format != "":
		return err
	case r.DryRun:
		_, err = fmt.Fprintln(r.streams.Out, move.Status.Message)
	default:
		_, err = fmt.Fprintln(r.streams.Out, report(move))
	}
	return err
}

// write prints the moves that were made, those of a StatefulSet always as a list; if there are none, the error says why.
func (r *runner) write() error { return named.Write(r.streams.Out, r.Output, r.moves, r.statefulSet) }

func (r *runner) deleteMove(ctx context.Context, move *v1alpha1.VolumeMove) error {
	// This is also done after the user has ended the command.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := r.home.Moves.In(move.Namespace).Delete(ctx, move.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &move.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return r.home.Explain("delete VolumeMove "+move.Namespace+"/"+move.Name+" of the dry run", err)
	}
	return nil
}

// Adopt has a claim get a real claim that has newer data of it, and waits until it has it. The VolumeMove says how that went, for a
// day.
func Adopt(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, claim types.NamespacedName, has backing.Ref) error {
	o := newOptions()
	o.Cluster = has.Cluster
	r := &runner{Options: o, home: home, streams: streams, namespace: claim.Namespace}
	wanted, err := o.object(claim.Namespace, claim.Name)
	if err != nil {
		return err
	}
	wanted.Spec.Adopt = string(has.UID)
	made, err := r.create(ctx, wanted)
	if err != nil {
		return err
	}
	return r.finish(ctx, made)
}
