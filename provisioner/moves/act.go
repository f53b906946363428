package moves

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// take takes a step and those that go with it, and returns the first that failed.
func (c *Controller) take(ctx context.Context, w *work, o decide.Observation, step decide.Step) (failed decide.Step, err error) {
	for _, one := range append([]decide.Step{step}, step.Also...) {
		if one.Verb != decide.Idle {
			klog.FromContext(ctx).V(3).Info("Taking step", "step", one.Verb, "claim", one.Claim, "end", one.End, "say", one.Say)
		}
		if this := c.act(ctx, w, o, one); this != nil && err == nil {
			failed, err = one, this
		}
	}
	return failed, err
}

// act takes a step. Whatever a request did or did not do, observing again leads on.
func (c *Controller) act(ctx context.Context, w *work, o decide.Observation, step decide.Step) error {
	r, i := o.Record, step.Claim
	switch step.Verb {
	case decide.Idle:
		return nil
	case decide.Adopt:
		return c.patchMove(ctx, o.Move, map[string]any{"finalizers": append(slices.Clone(o.Move.Finalizers), keys.MoveFinalizer), "resourceVersion": o.Move.ResourceVersion})
	case decide.Leave:
		return c.patchMove(ctx, o.Move, map[string]any{"finalizers": without(o.Move.Finalizers), "resourceVersion": o.Move.ResourceVersion})
	case decide.Inspect, decide.Save:
		return c.save(ctx, w, o, step)
	case decide.DeleteMove:
		err := c.Moves.In(w.at.Namespace).Delete(ctx, w.at.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &w.uid}})
		return ignoreGone(err, "delete VolumeMove")
	case decide.Forget:
		w.record = nil
		return c.forget(ctx, w.uid)
	case decide.HoldClaim, decide.Lock, decide.Unlock, decide.Touch:
		return c.markClaim(ctx, r, o.Claims[i].Claim, step)
	case decide.Keep:
		return c.policy(ctx, o.Claims[i].Source.Real, corev1.PersistentVolumeReclaimRetain)
	case decide.Restore:
		side := o.Claims[i].Source
		if step.End == record.Target {
			side = o.Claims[i].Target
		}
		return c.policy(ctx, side.Real, r.Claims[i].At(step.End).Policy)
	case decide.MakeTarget:
		return c.makeTarget(ctx, r, i, o.Claims[i])
	case decide.Publish, decide.Shelve, decide.DropBacking:
		return c.backing(ctx, o, step)
	case decide.MakeSnapshot, decide.MakeClone, decide.DropClone, decide.DropSnapshot:
		return c.snapshot(ctx, w, o, step)
	case decide.EnsureMover:
		return c.ensureMover(ctx, r, step)
	case decide.StartMover:
		return c.startMover(ctx, r, i, step.End)
	case decide.GiveKeys:
		return c.giveKeysAgain(ctx, r, i, step.End)
	case decide.DropMover:
		c.tellEnded(o, i, step.End)
		return c.dropMover(ctx, r, i, step.End)
	case decide.Start:
		client, err := c.client(ctx, w, r, i, decide.Reads(o, i))
		if err == nil {
			_, err = client.Start(ctx, step.Task)
		}
		return err
	case decide.DeletePod:
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &step.Pod.UID}}
		if step.Pod.Hasty {
			// So that its node ends it before it is gone.
			options.GracePeriodSeconds = ptr.To(int64(1))
		}
		err := c.Client.CoreV1().Pods(r.Namespace).Delete(ctx, step.Pod.Name, options)
		return ignoreGone(err, "delete pod "+step.Pod.Name)
	case decide.Ungate:
		return c.ungate(ctx, r.Namespace, step.Pod)
	case decide.DeleteVolume, decide.FreeVolume, decide.MakeVolume:
		return c.volume(ctx, o, step)
	}
	return fmt.Errorf("there is no step %s", step.Verb)
}

// save writes the record: of what an inspection found, or of a decision.
func (c *Controller) save(ctx context.Context, w *work, o decide.Observation, step decide.Step) error {
	next := step.Record
	if step.Verb == decide.Inspect {
		var err error
		if next, err = c.inspect(ctx, o.Move); err != nil {
			return err
		}
	}
	written, err := c.write(ctx, w.record, next)
	if err != nil {
		w.record = nil
		return err
	}
	var before *record.Record
	if w.record != nil {
		before = w.record.record
		gone := dropped(before.Pods, next.Pods)
		c.witness.settle(gone)
		w.abroad.settle(gone)
	}
	c.Metrics.wrote(before, next)
	w.record = written
	return nil
}

// dropped returns the pods that a record no longer has.
func dropped(before, after []record.Pod) map[types.UID]bool {
	gone := map[types.UID]bool{}
	for _, pod := range before {
		gone[pod.UID] = true
	}
	for _, pod := range after {
		delete(gone, pod.UID)
	}
	return gone
}

func ignoreGone(err error, what string) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func without(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == keys.MoveFinalizer })
}

// patchMove changes metadata of just this VolumeMove.
func (c *Controller) patchMove(ctx context.Context, move *v1alpha1.VolumeMove, metadata map[string]any) error {
	metadata["uid"] = move.UID
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := c.Moves.In(move.Namespace).Patch(ctx, move.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch VolumeMove %s/%s: %w", move.Namespace, move.Name, err)
	}
	return nil
}

// markClaim writes on a virtual claim what a move needs there, if it is as it was seen.
func (c *Controller) markClaim(ctx context.Context, r *record.Record, claim *corev1.PersistentVolumeClaim, step decide.Step) error {
	metadata := map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion}
	switch step.Verb {
	case decide.HoldClaim:
		metadata["finalizers"] = append(slices.Clone(claim.Finalizers), keys.MoveFinalizer)
	case decide.Lock:
		metadata["annotations"] = map[string]any{keys.Move: r.UID}
		metadata["labels"] = map[string]any{keys.Moving: keys.MovingNow}
	case decide.Touch:
		metadata["annotations"] = map[string]any{keys.MoveTouched: step.Text}
	case decide.Unlock:
		metadata["annotations"] = map[string]any{keys.Move: nil, keys.MoveTouched: nil}
		metadata["labels"] = map[string]any{keys.Moving: nil}
		metadata["finalizers"] = without(claim.Finalizers)
	default:
		return fmt.Errorf("%s writes nothing on a claim", step.Verb)
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return ignoreGone(err, "write claim "+claim.Name)
}

// ungate takes our gate off a pod.
func (c *Controller) ungate(ctx context.Context, namespace string, pod decide.Pod) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"schedulingGates":[{"$patch":"delete","name":%q}]}}`, pod.UID, keys.MovingGate)
	_, err := c.Client.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return ignoreGone(err, "let pod "+pod.Name+" go on")
}
