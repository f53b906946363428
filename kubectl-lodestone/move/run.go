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

// run moves groups of claims, one group after another unless all together.
func (o *Options) run(ctx context.Context, home *access.Cluster, streams genericiooptions.IOStreams, namespace string, groups [][]string) error {
	// All are looked at first: a mistake changes nothing.
	var wanted []*v1alpha1.VolumeMove
	for _, group := range groups {
		move, err := o.object(namespace, group...)
		if err != nil {
			return err
		}
		for _, claim := range group {
			if _, err := known(ctx, home, namespace, claim); err != nil {
				return err
			}
		}
		wanted = append(wanted, move)
	}
	if len(wanted) == 0 {
		_, err := fmt.Fprintln(streams.Out, "nothing to do: all claims have their data there")
		return err
	}
	var made []*v1alpha1.VolumeMove
	for i, move := range wanted {
		created, err := home.Moves.In(namespace).Create(ctx, move, metav1.CreateOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("this cluster has no VolumeMoves: install Lodestone of this version (docs/install.md)")
		case err != nil:
			return home.Explain("create a VolumeMove for "+strings.Join(move.Spec.Claims, ", "), err)
		}
		if o.Detach {
			fmt.Fprintf(streams.Out, "volumemove/%s created\n", created.Name)
			continue
		}
		if o.Together {
			made = append(made, created)
			continue
		}
		if err := o.finish(ctx, home, streams, created); err != nil {
			return afterwards(err, wanted[i+1:])
		}
	}
	for _, move := range made {
		if err := o.finish(ctx, home, streams, move); err != nil {
			return err
		}
	}
	return nil
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

// finish follows a move and says what it came to.
func (o *Options) finish(ctx context.Context, home *access.Cluster, streams genericiooptions.IOStreams, move *v1alpha1.VolumeMove) error {
	move, err := follow(ctx, home, streams.ErrOut, move)
	if o.DryRun {
		err = errors.Join(err, forget(ctx, home, move))
	}
	if err != nil {
		return err
	}
	if o.Output != "" {
		return write(streams.Out, move)
	}
	if o.DryRun {
		_, err = fmt.Fprintln(streams.Out, move.Status.Message)
		return err
	}
	_, err = fmt.Fprintln(streams.Out, report(move))
	return err
}

// forget removes the VolumeMove of a dry run.
func forget(ctx context.Context, home *access.Cluster, move *v1alpha1.VolumeMove) error {
	// Also where the user has ended the command meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := home.Moves.In(move.Namespace).Delete(ctx, move.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &move.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return home.Explain("delete VolumeMove "+move.Namespace+"/"+move.Name+" of the dry run", err)
	}
	return nil
}
