package move

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// runner makes the moves of one command.
type runner struct {
	*Options
	home      *access.Cluster
	streams   genericiooptions.IOStreams
	namespace string
	// set says that the moves are those of the replicas of a StatefulSet.
	set bool
	// moves are those that were made, as they were last seen.
	moves []v1alpha1.VolumeMove
}

// run moves groups of claims, one group after another unless all together. Replicas of
// a StatefulSet whose data is there already are passed over.
func (r *runner) run(ctx context.Context, groups [][]string) error {
	wanted, err := r.wanted(ctx, groups)
	if err != nil {
		return err
	}
	err = r.make(ctx, wanted)
	switch {
	case r.Output == "" && err == nil && len(r.moves) == 0:
		_, err = fmt.Fprintln(r.streams.Out, "nothing to do: all claims have their data there")
	case r.Output != "":
		if unwritten := r.write(); err == nil {
			err = unwritten
		}
	}
	return err
}

// wanted returns the moves of groups of claims that are all there: a mistake changes
// nothing.
func (r *runner) wanted(ctx context.Context, groups [][]string) ([]*v1alpha1.VolumeMove, error) {
	var wanted []*v1alpha1.VolumeMove
	for _, group := range groups {
		move, err := r.object(r.namespace, group...)
		if err != nil {
			return nil, err
		}
		for _, claim := range group {
			if _, err := known(ctx, r.home, r.namespace, claim); err != nil {
				return nil, err
			}
		}
		wanted = append(wanted, move)
	}
	return wanted, nil
}

func (r *runner) make(ctx context.Context, wanted []*v1alpha1.VolumeMove) error {
	var made []*v1alpha1.VolumeMove
	for i, move := range wanted {
		created, err := r.create(ctx, move)
		switch {
		case err != nil:
			return errors.Join(afterwards(err, wanted[i+1:]), r.finishAll(ctx, made))
		case r.Detach:
			r.moves = append(r.moves, *created)
			if r.Output == "" {
				fmt.Fprintf(r.streams.Out, "volumemove/%s created\n", created.Name)
			}
		case r.Together:
			made = append(made, created)
		default:
			if err := r.finish(ctx, created); err != nil {
				return afterwards(err, wanted[i+1:])
			}
		}
	}
	return r.finishAll(ctx, made)
}

func (r *runner) create(ctx context.Context, move *v1alpha1.VolumeMove) (*v1alpha1.VolumeMove, error) {
	created, err := r.home.Moves.In(r.namespace).Create(ctx, move, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("this cluster has no VolumeMoves: install Lodestone of this version (docs/install.md)")
	}
	return created, r.home.Explain("create a VolumeMove for "+strings.Join(move.Spec.Claims, ", "), err)
}

// afterwards adds to an error what was not begun because of it.
func afterwards(err error, left []*v1alpha1.VolumeMove) error {
	if len(left) == 0 {
		return err
	}
	var names []string
	for _, move := range left {
		names = append(names, move.Spec.Claims...)
	}
	return fmt.Errorf("%w; not begun: %s (run the same command again for them)", err, strings.Join(names, ", "))
}

// finishAll follows moves that run at the same time: the end of one is not that of the
// others.
func (r *runner) finishAll(ctx context.Context, made []*v1alpha1.VolumeMove) error {
	var all []error
	for _, move := range made {
		all = append(all, r.finish(ctx, move))
	}
	return errors.Join(all...)
}

// finish follows a move and says what it came to.
func (r *runner) finish(ctx context.Context, move *v1alpha1.VolumeMove) error {
	move, err := follow(ctx, r.home, r.streams.ErrOut, move)
	if r.set && isThere(move) {
		// It was none. Who may not delete it keeps it until its time is over.
		_ = r.forget(ctx, move)
		fmt.Fprintf(r.streams.ErrOut, "%s: nothing to do, the data is there\n", strings.Join(move.Spec.Claims, ", "))
		return nil
	}
	r.moves = append(r.moves, *move)
	if r.DryRun {
		err = errors.Join(err, r.forget(ctx, move))
	}
	switch {
	case err != nil || r.Output != "":
		return err
	case r.DryRun:
		_, err = fmt.Fprintln(r.streams.Out, move.Status.Message)
	default:
		_, err = fmt.Fprintln(r.streams.Out, report(move))
	}
	return err
}

// write writes the moves that were made: those of a StatefulSet as a list, however many
// they are.
func (r *runner) write() error {
	if r.set {
		return writeAll(r.streams.Out, r.moves)
	}
	if len(r.moves) == 0 { // none could be made, which the error says
		return nil
	}
	return write(r.streams.Out, &r.moves[0])
}

// forget removes a VolumeMove that moved nothing.
func (r *runner) forget(ctx context.Context, move *v1alpha1.VolumeMove) error {
	// Also where the user has ended the command meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := r.home.Moves.In(move.Namespace).Delete(ctx, move.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &move.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return r.home.Explain("delete VolumeMove "+move.Namespace+"/"+move.Name+" of the dry run", err)
	}
	return nil
}
