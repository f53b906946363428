package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

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
	err = r.createAll(ctx, wanted)
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

// claimsOf returns the claims of a workload that are moved together, group by group: those of each replica of a StatefulSet, or
// all that a Deployment or pod names. It does not check where their data is: users who may edit a namespace may not read volumes,
// so the provisioner checks that when the data is to be moved.
func claimsOf(ctx context.Context, home *cli.Cluster, namespace string, workload cli.Reference) (groups [][]string, err error) {
	switch name := workload.Name; workload.Kind {
	case cli.StatefulSet:
		set, err := home.Client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, missing(ctx, home, workload, namespace, err)
		}
		if len(set.Spec.VolumeClaimTemplates) > 0 {
			return claimsOfReplicas(set), nil
		}
		groups = named(set.Spec.Template.Spec)
	case cli.Deployment:
		deployment, err := home.Client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, missing(ctx, home, workload, namespace, err)
		}
		groups = named(deployment.Spec.Template.Spec)
	default:
		pod, err := home.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, missing(ctx, home, workload, namespace, err)
		}
		groups = named(pod.Spec)
	}
	if groups == nil {
		return nil, cli.Refuse("%s %s/%s names no claims, so there is nothing to move: name what uses some, or claims", workload.Kind, namespace,
			workload.Name)
	}
	return groups, nil
}

// missing explains why a workload could not be read.
func missing(ctx context.Context, home *cli.Cluster, workload cli.Reference, namespace string, err error) error {
	if apierrors.IsNotFound(err) {
		return home.Missing(ctx, workload.Kind, namespace, workload.Name)
	}
	return home.Explain(fmt.Sprintf("get %s %s/%s", workload.Kind, namespace, workload.Name), err)
}

// named returns the claims that a pod names, as one group; nil if it names none.
func named(pod corev1.PodSpec) [][]string {
	var group []string
	for _, volume := range pod.Volumes {
		if volume.PersistentVolumeClaim != nil && !slices.Contains(group, volume.PersistentVolumeClaim.ClaimName) {
			group = append(group, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	if group == nil {
		return nil
	}
	return [][]string{group}
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
			found, err := getClaim(ctx, r.home, r.namespace, claim)
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

// write prints the moves that were made: those of a StatefulSet always as a list.
func (r *runner) write() error {
	if r.statefulSet {
		return writeAll(r.streams.Out, r.Output, r.moves)
	}
	if len(r.moves) == 0 { // none could be made, which the error says
		return nil
	}
	return write(r.streams.Out, r.Output, &r.moves[0])
}

// deleteMove removes a VolumeMove that moved nothing.
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

// claimsOfReplicas returns the names that the claims of each replica of a StatefulSet have, in
// the order of the replicas.
func claimsOfReplicas(set *appsv1.StatefulSet) [][]string {
	var all [][]string
	start := int32(0)
	if set.Spec.Ordinals != nil {
		start = set.Spec.Ordinals.Start
	}
	for i := start; i < start+ptr.Deref(set.Spec.Replicas, 1); i++ {
		var group []string
		for _, template := range set.Spec.VolumeClaimTemplates {
			group = append(group, fmt.Sprintf("%s-%s-%d", template.Name, set.Name, i))
		}
		all = append(all, group)
	}
	return all
}

// getClaim returns a claim, or an error if it does not exist.
func getClaim(ctx context.Context, home *cli.Cluster, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := home.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, home.Missing(ctx, cli.Claim, namespace, name)
	case err != nil:
		return nil, home.Explain("get claim "+namespace+"/"+name, err)
	}
	return claim, nil
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
