package flow

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/pkg/virtualvolume"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

const (
	// stepTimeout bounds all requests of one step.
	stepTimeout = 30 * time.Second
	// safetyNet is when a claim is looked at again after a step whose effect an
	// event should have shown by then.
	safetyNet = 10 * time.Second
	// freshAttempts is how often a request is tried at once, over some seconds,
	// whose rights may be new.
	freshAttempts = 8
)

// act takes a step. Whatever a request did or did not do, observing again leads
// on from there.
func (f *Flow) act(ctx context.Context, o decide.Observation, step decide.Step, result outcome) outcome {
	switch step.Verb {
	case decide.Idle:
		if o.Claim == nil && o.Volume == nil && len(o.Backings) == 0 {
			f.publisher.Forget(o.UID)
			f.memory.forget(o.UID)
			f.shows.drop(o.UID)
		}
	case decide.Record:
		// What an earlier annotation led to is known, not what a new one would.
		if result.err = f.patchClaim(ctx, o.Claim, map[string]any{keys.Routed: step.Route.Cluster}); result.err == nil {
			f.memory.setUnsent(o.UID, true)
		}
	case decide.Create:
		return f.create(ctx, o, step, result)
	case decide.Publish:
		f.publisher.Publish(o.Claim)
		f.wakeSiblings(o)
	case decide.Mark:
		result.err = f.mark(ctx, o, step)
	case decide.Remove:
		if result.err = f.remove(ctx, o, step); result.err == nil && step.Refusal != nil {
			result.err = f.reschedule(ctx, o, step.Refusal)
			f.wakeSiblings(o)
		}
	case decide.Reschedule:
		result.err = f.reschedule(ctx, o, step.Refusal)
		f.wakeSiblings(o)
	case decide.Wake:
		result.err = f.wake(ctx, o)
	case decide.Release:
		result.err = f.release(ctx, o, step)
	case decide.Confirm:
		return f.confirm(ctx, o, step, result)
	case decide.Finish:
		f.publisher.Finish(o.Volume)
	case decide.Update:
		f.spend(o, step)
		result.err = f.update(ctx, o, step)
	case decide.Expand:
		return f.expand(ctx, o, step, result)
	case decide.Reflect:
		f.spend(o, step)
		result.err = f.reflect(ctx, o, step)
	case decide.Fix:
		var why any
		if step.Fixed != "" {
			why = step.Fixed
		}
		result.err = f.patchClaim(ctx, o.Claim, map[string]any{keys.FixedSize: why})
	case decide.Modify:
		return f.modify(ctx, o, step, result)
	case decide.Carry:
		result.err = f.carry(ctx, o, step)
	case decide.Stage:
		result.err = f.stage(ctx, o, step)
	case decide.Unstage:
		result.err = f.unstage(ctx, step)
	case decide.Locate:
		result.err = f.locate(ctx, o, step)
	case decide.Ask:
		return f.ask(ctx, o, step, result)
	case decide.ShowTrouble:
		return f.show(ctx, o, step, result)
	case decide.Heal:
		result.err = f.heal(ctx, o, step)
		result.after = safetyNet
	}
	return result
}

// spend notes a write at home of what a remote cluster says.
func (f *Flow) spend(o decide.Observation, step decide.Step) {
	if step.Backing.Cluster != keys.Home {
		f.memory.spend(o.UID, o.Now)
	}
}

// errNoClient is the error of a step in a cluster that has just gone.
var errNoClient = errors.New("the cluster has no client now")

func (f *Flow) client(cluster string) (kubernetes.Interface, error) {
	if cluster == keys.Home {
		return f.Client, nil
	}
	if c := f.Clusters.Get(cluster); c != nil {
		if client := c.Client(); client != nil {
			return client, nil
		}
	}
	return nil, errNoClient
}

// mark records that a backing claim has, or is about to have, a virtual volume.
func (f *Flow) mark(ctx context.Context, o decide.Observation, step decide.Step) error {
	client, err := f.client(step.Cluster)
	if err != nil {
		return err
	}
	claim := step.Backing.Claim
	patch, err := annotationsPatch(claim.UID, "", map[string]any{keys.Unpublished: nil})
	if err != nil {
		return err
	}
	marked, err := client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		f.suspect(step.Cluster)
		return fmt.Errorf("mark backing claim %s/%s in %s as published: %w", claim.Namespace, claim.Name, step.Cluster, err)
	}
	f.written.set(o.UID, step.Cluster, claim, marked)
	return nil
}

// reschedule takes the selected node off a claim, so that the scheduler chooses
// again, and notes who refused it; in one write, since every write of a claim
// makes the next one of a stale copy fail.
func (f *Flow) reschedule(ctx context.Context, o decide.Observation, refused *decide.Refusal) error {
	changes := map[string]any{keys.SelectedNode: nil, keys.Routed: nil}
	if refused != nil {
		list := refusal.Add(refusal.Decode(o.Claim.Annotations[keys.Refused]), refusal.Refusal{
			Cluster: refused.Cluster, Node: refused.Node, Reason: refused.Reason, Message: refused.Message, Until: o.Now.Add(f.RefusalPeriod),
		}, o.Now)
		encoded, err := refusal.Encode(list)
		if err != nil {
			return err
		}
		changes[keys.Refused] = encoded
		f.Metrics.refused(refused)
	}
	return f.patchClaim(ctx, o.Claim, changes)
}

// update brings a virtual volume in step with its real volume. Only name and
// size cross and that it has the attributes that the virtual claim asks for; the
// size only of a volume that no driver at home keeps, the attributes only of a
// volume whose data is in a remote cluster.
func (f *Flow) update(ctx context.Context, o decide.Observation, step decide.Step) error {
	metadata, spec := map[string]any{"uid": o.Volume.UID}, map[string]any{}
	if real := step.Backing.Volume; real != nil {
		metadata["annotations"] = map[string]any{keys.BackingVolume: real.Name}
		have, want := o.Volume.Spec.Capacity[corev1.ResourceStorage], real.Spec.Capacity[corev1.ResourceStorage]
		if decide.KeepsSize(o.Volume) && have.Cmp(want) < 0 {
			spec["capacity"] = map[string]any{string(corev1.ResourceStorage): want.String()}
		}
	}
	attributed := decide.Attributed(o, step.Backing)
	if attributed {
		spec["volumeAttributesClassName"] = backing.Attributes(o.Claim)
	}
	if err := f.patchVolume(ctx, o.Volume.Name, map[string]any{"metadata": metadata, "spec": spec}); err != nil || !attributed {
		return err
	}
	// After the volume: until this is written, the step is taken again.
	return f.tellAttributes(ctx, o.Claim)
}

// Volume returns the virtual volume of a claim if it may be created now, nil if
// things have changed. It is the last word before the library creates it.
func (f *Flow) Volume(uid types.UID) *corev1.PersistentVolume {
	o := f.observe(uid, true)
	step := decide.Next(o)
	if step.Verb != decide.Publish {
		// A little later, when the claim no longer counts as handed out.
		f.queue.AddAfter(uid, time.Second/5)
		return nil
	}
	class, err := virtualclass.Parse(o.Class)
	if err != nil {
		return nil
	}
	pv, err := virtualvolume.New(virtualvolume.Input{
		Name: "pvc-" + string(uid), Claim: o.Claim, Class: class,
		Cluster: step.Route.Cluster, Backing: step.Backing.Claim, Real: step.Backing.Volume,
	})
	if err != nil {
		f.tell(o, &decide.Message{Warning: true, Reason: "CannotPublish", Text: err.Error()})
		return nil
	}
	// The API server sets its own; this one tells how long it takes to store.
	pv.CreationTimestamp = metav1.NewTime(o.Now)
	f.Metrics.published(step.Route.Cluster, o.Now.Sub(f.memory.start(uid, o.Now)))
	return pv
}
