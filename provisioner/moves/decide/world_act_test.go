package decide_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func (w *world) save(r *record.Record) {
	data, err := record.Encode(r)
	require.NoError(w.t, err)
	w.record = data
}

// first is the record that an inspection makes.
func (w *world) first() *record.Record {
	r := &record.Record{UID: moveUID, Namespace: "shop", Name: "m", Phase: v1alpha1.MovePrepare, Passes: 2, LongStop: w.mayStandStill(), Verify: v1alpha1.VerifyQuick, Began: map[v1alpha1.MovePhase]time.Time{}}
	for i, c := range w.claims {
		target := ref(record.Target, i)
		target.UID = ""
		source := record.Copy{Ref: ref(record.Source, i), Policy: corev1.PersistentVolumeReclaimDelete}
		if w.within {
			// Only policies at home are touched.
			source.Ref.Cluster, source.Policy = target.Cluster, ""
		}
		r.Claims = append(r.Claims, record.Claim{
			Name: c.claim.Name, UID: c.claim.UID, Volume: c.volume, Source: source, Target: record.Copy{Ref: target}, Offline: c.single,
			Snapshot: c.snapshot(r, i, source),
		})
	}
	return r
}

func drop(finalizers []string) []string {
	return slices.DeleteFunc(finalizers, func(f string) bool { return f == keys.MoveFinalizer })
}

// apply takes a step as the API servers would.
func (w *world) apply(step decide.Step) {
	w.log = append(w.log, fmt.Sprintf("%s %d %s %s", step.Verb, step.Claim, step.End, step.Say))
	var c *claim
	if step.Claim < len(w.claims) {
		c = w.claims[step.Claim]
	}
	r := w.decoded()
	switch step.Verb {
	case decide.Idle:
	case decide.Adopt:
		w.move.Finalizers = append(w.move.Finalizers, keys.MoveFinalizer)
	case decide.Inspect:
		w.save(w.first())
	case decide.Save:
		w.log = append(w.log, "phase "+string(step.Record.Phase))
		w.agreed(step.Record)
		w.settle(step.Record)
		w.save(step.Record)
	case decide.HoldClaim:
		c.claim.Finalizers = append(c.claim.Finalizers, keys.MoveFinalizer)
	case decide.Lock:
		c.claim.Labels[keys.Moving], c.claim.Annotations[keys.Move] = keys.MovingNow, string(moveUID)
	case decide.Unlock:
		// Its pods could not start beside it.
		w.must(!c.single || w.down[record.Source] || c.current(step.Claim) != record.Source || !c.at[record.Source].mover.Exists, "pods go on while a mover has their volume")
		delete(c.claim.Labels, keys.Moving)
		delete(c.claim.Annotations, keys.Move)
		delete(c.claim.Annotations, keys.MoveTouched)
		c.claim.Finalizers = drop(c.claim.Finalizers)
	case decide.Touch:
		c.claim.Annotations[keys.MoveTouched] = step.Text
	case decide.Keep:
		c.at[record.Source].real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	case decide.Restore:
		c.at[step.End].real.Spec.PersistentVolumeReclaimPolicy = r.Claims[step.Claim].At(step.End).Policy
	case decide.MakeTarget:
		w.must(c.at[record.Target].backing == nil, "a second target")
		at := ref(record.Target, step.Claim)
		c.at[record.Target].backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: at.Name, UID: at.UID, Finalizers: []string{keys.BackingFinalizer},
			Labels: map[string]string{keys.MoveOf: string(moveUID)}, Annotations: map[string]string{keys.Unpublished: "true"}}}
		c.at[record.Target].content = -1
	case decide.Publish:
		b := c.at[record.Target].backing
		if step.End == record.Source {
			b = c.at[record.Source].backing
		}
		delete(b.Labels, keys.MoveOf)
		delete(b.Annotations, keys.Unpublished)
	case decide.Shelve:
		c.at[record.Source].backing.Labels[keys.MoveOf] = string(moveUID)
	case decide.DropBacking:
		w.must(c.current(step.Claim) != step.End, "the copy in use removed")
		c.at[step.End].backing, c.at[step.End].real, c.at[step.End].content = nil, nil, -1
	case decide.MakeSnapshot, decide.MakeClone, decide.DropClone, decide.DropSnapshot:
		w.snapshot(c, step)
	case decide.EnsureMover:
		c.at[step.End].mover = decide.Mover{Exists: true, Unstarted: true}
	case decide.StartMover:
		if m := &c.at[step.End].mover; m.Exists {
			m.Unstarted = false
			// An earlier request to remove its Secret arrives late.
			m.Keyless = w.r.IntN(100) < 5
		}
	case decide.GiveKeys:
		c.at[step.End].mover.Keyless = false
	case decide.DropMover:
		c.at[step.End].mover.Leaving = true
	case decide.Start:
		if decide.Reads(w.observe(), step.Claim) == record.Snapped {
			w.startSnapshot(c, step)
			return
		}
		if s := r.Claims[step.Claim].Snapshot; s != nil && s.Copied && step.Task.Kind == movecontrol.Prepare && !r.Claims[step.Claim].Prepared {
			w.must(string(step.Task.Expect) == string(snapshotOf(step.Claim)), "what its snapshot had is not compared with a source: %s", step.Task.Expect)
		}
		if step.Task.Kind != movecontrol.Prepare {
			w.must(string(step.Task.Expect) == string(sourceOf(step.Claim)), "a mover is not told which source it must see: %s", step.Task.Expect)
		}
		w.must(step.Task.Kind != movecontrol.Pass || !c.single, "a pass over what nothing may read beside a pod")
		w.must(c.mover.Task == nil || c.mover.Task.State != movecontrol.Running, "a task beside another one")
		c.mover.Task = &movecontrol.TaskStatus{Task: step.Task, State: movecontrol.Running}
	case decide.DeletePod:
		w.find(step.Pod.UID).Leaving = true
	case decide.Ungate:
		w.find(step.Pod.UID).Gated = false
	case decide.DeleteVolume:
		c.volume.DeletionTimestamp = &metav1.Time{Time: w.now}
	case decide.FreeVolume:
		c.volume = nil
	case decide.MakeVolume:
		w.must(c.volume == nil, "a second volume")
		c.volume = step.Volume.DeepCopy()
		w.made++
		c.volume.UID = types.UID(fmt.Sprintf("v%d", w.made))
	case decide.DeleteMove:
		w.move.DeletionTimestamp = &metav1.Time{Time: w.now}
	case decide.Forget:
		w.record = nil
	case decide.Leave:
		w.move = nil
	default:
		w.must(false, "unknown verb %s", step.Verb)
	}
}

func (w *world) find(uid types.UID) *pod {
	for _, p := range w.pods {
		if p.UID == uid {
			return p
		}
	}
	w.must(false, "a step for a pod that is not there")
	return nil
}

// live lets everybody else do something.
func (w *world) live() {
	chance := func(percent int) bool { return w.r.IntN(100) < percent }
	passed := time.Duration(w.r.IntN(2000)) * time.Millisecond
	w.now = w.now.Add(passed)
	w.forcedLive(passed, chance)
	for i, c := range w.claims {
		w.bind(c)
		w.moverLives(i, c, chance)
	}
	w.podsLive(chance)
	if w.calm {
		return
	}
	for _, end := range record.Ends {
		if chance(3) {
			w.down[end] = !w.down[end]
		}
	}
	if w.within {
		w.down[record.Target] = w.down[record.Source]
	}
	for _, c := range w.claims {
		if s := c.at[record.Source]; chance(2) && s.mover.Running {
			w.log = append(w.log, "the sender dies")
			s.mover = decide.Mover{Exists: true, Ended: true}
			c.alive = false
		}
	}
}

// bind is kube-controller-manager.
func (w *world) bind(c *claim) {
	switch {
	case c.claim == nil:
	case c.volume == nil:
		c.claim.Status.Phase = corev1.ClaimLost
	case c.volume.DeletionTimestamp == nil:
		c.claim.Status.Phase, c.volume.Status.Phase = corev1.ClaimBound, corev1.VolumeBound
	}
}
