package decide_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots/decide"
)

// TestNextNeverHarms checks the invariants of every step for many random observations,
// impossible ones included.
func TestNextNeverHarms(t *testing.T) {
	taken := map[decide.Verb]int{}
	for seed := range uint64(20_000) {
		o := random(rand.New(rand.NewPCG(seed, 1)))
		step := decide.Next(o)
		taken[step.Verb]++
		if broken := harm(o, step); broken != "" {
			require.Fail(t, broken, "seed %d: step %+v\ncontent %+v\nthere %+v", seed, step, o.Content, o.There)
		}
	}
	for _, verb := range []decide.Verb{decide.Idle, decide.Take, decide.Mark, decide.Report, decide.Delete,
		decide.Release} {
		assert.Greater(t, taken[verb], 50, "too few random observations lead to %s to say anything", verb)
	}
}

func random(r *rand.Rand) decide.Observation {
	changes := []change{}
	for _, state := range []struct {
		percent int
		change  change
	}{
		{20, given}, {20, taken}, {20, marked}, {30, ready}, {30, reported}, {20, gone},
		{10, func(o *decide.Observation) { o.Ref = backing.Ref{} }}, {5, func(o *decide.Observation) { o.Ref.Cluster = keys.Home }},
		{10, func(o *decide.Observation) { o.Virtual = nil }}, {5, func(o *decide.Observation) { o.Virtual = &corev1.PersistentVolume{} }},
		{10, func(o *decide.Observation) { o.Shadow = nil }},
		{5, func(o *decide.Observation) { o.Shadow = &corev1.PersistentVolumeClaim{} }},
		{10, func(o *decide.Observation) {
			if o.Virtual != nil && o.Virtual.Annotations != nil && o.Shadow != nil {
				healed(o)
			}
		}},
		{5, func(o *decide.Observation) {
			if o.Shadow != nil {
				o.Shadow.UID = "b4"
			}
		}},
		{5, func(o *decide.Observation) { o.Real = nil }}, {5, func(o *decide.Observation) { o.Real = &corev1.PersistentVolume{} }},
		{10, func(o *decide.Observation) { o.Waiting = "restored" }},
		{10, func(o *decide.Observation) {
			if o.There != nil {
				o.There.Labels = map[string]string{keys.ContentUID: "c0", keys.HomeID: "h1"}
			}
		}},
		{10, func(o *decide.Observation) {
			if o.There != nil {
				o.There.UID = "later"
			}
		}},
		{10, func(o *decide.Observation) {
			if o.There != nil {
				o.There.DeletionTimestamp = &now
			}
		}},
		{40, deleted}, {5, unasked}, {20, retained}, {5, away}, {5, unknown}, {5, unseen},
	} {
		if r.IntN(100) < state.percent {
			changes = append(changes, func(o *decide.Observation) {
				if o.Real == nil || o.Real.Spec.CSI == nil {
					// A snapshot can only be taken of a volume.
					o.Real = observe().Real
				}
				state.change(o)
			})
		}
	}
	return observe(changes...)
}

// harm describes the invariant that a step violates; empty if none.
func harm(o decide.Observation, step decide.Step) string {
	c, handle := o.Content, ptr.Deref(o.Content.Status.SnapshotHandle, "")
	made := c.Spec.Source.VolumeHandle != nil
	_, wanted := c.Annotations[volumesnapshot.BeingDeleted]
	mine := o.There != nil && (made && o.There.Labels[keys.ContentUID] == string(c.UID) && o.There.Labels[keys.HomeID] == o.HomeID || !made &&
		o.There.UID == o.Ref.UID)
	if remote := step.Verb == decide.Take || step.Verb == decide.Mark || step.Verb == decide.Delete; remote &&
		!(o.Known && o.Usable && o.Seen) {
		return "a request to a cluster that cannot be used"
	}
	switch step.Verb {
	case decide.Take:
		switch {
		case !made || o.There != nil || handle != "" || c.DeletionTimestamp != nil:
			return "a snapshot that is there, was there, or that nobody wants"
		case o.Virtual.Annotations[keys.Backing] != "west/shop/data/"+string(o.Shadow.UID) || o.Shadow.Status.Phase != corev1.ClaimBound ||
			o.Virtual.Spec.ClaimRef.Namespace != c.Spec.Snapshot.Namespace:
			return "a snapshot of other data"
		}
	case decide.Delete:
		if c.DeletionTimestamp == nil || !wanted || c.Spec.DeletionPolicy != volumesnapshot.Delete || !mine || o.Waiting != "" {
			return "a snapshot deleted that is needed, to be kept, or another's"
		}
	case decide.Release:
		switch {
		case c.DeletionTimestamp == nil || !slices.Contains(c.Finalizers, volumesnapshot.ContentFinalizer):
			return "a content let go that is in use"
		case wanted && c.Spec.DeletionPolicy == volumesnapshot.Delete && o.Ref.Cluster == "west" && c.Spec.Snapshot.UID != "" &&
			(!step.Gone || mine):
			return "a content let go before its snapshot is gone"
		}
	case decide.Report:
		ready := ptr.Deref(step.Status.ReadyToUse, false)
		switch {
		case c.DeletionTimestamp != nil:
			return "the status of a content that goes"
		case ready && (!mine || !ptr.Deref(o.There.Status.ReadyToUse, false) || o.There.DeletionTimestamp != nil):
			return "a snapshot ready that is none"
		case handle != "" && ptr.Deref(step.Status.SnapshotHandle, "") != handle:
			return "a handle changed"
		case ready && o.There.Annotations[keys.Unpublished] != "":
			return "a snapshot known at home that could be removed"
		}
	case decide.Mark:
		if !mine || c.DeletionTimestamp != nil {
			return "a mark on what is another's"
		}
	case decide.Idle:
	}
	return ""
}

// TestAKillAtEachStepLeavesOneSnapshotAndThenNone stops before and after each step of a
// snapshot's life in turn.
func TestAKillAtEachStepLeavesOneSnapshotAndThenNone(t *testing.T) {
	// Take, Mark, Report, Report when it is ready; Delete, Release.
	const steps = 6
	for failAt := range steps + 1 {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("step %d, carried out %t", failAt, done), func(t *testing.T) {
				o, made, count := observe(), 0, 0
				work := func() {
					for idle := 0; idle < 2; {
						step := decide.Next(o)
						if step.Verb == decide.Idle {
							idle++
						}
						killed := count == failAt && step.Verb != decide.Idle
						if step.Verb != decide.Idle {
							count++
						}
						require.Less(t, count, 4*steps, "it does not come to rest")
						if killed && !done {
							continue
						}
						switch step.Verb {
						case decide.Take:
							if o.There == nil {
								made++
								taken(&o)
							}
						case decide.Mark:
							delete(o.There.Annotations, keys.Unpublished)
						case decide.Report:
							o.Content.Status = step.Status
							o.There.Status.ReadyToUse = ptr.To(true)
						case decide.Delete:
							o.There = nil
						case decide.Release:
							o.Content.Finalizers = nil
						case decide.Idle:
						}
					}
				}
				work()
				require.NotNil(t, o.There)
				assert.Equal(t, 1, made)
				assert.True(t, *o.Content.Status.ReadyToUse)
				deleted(&o)
				work()
				assert.Nil(t, o.There)
				assert.Empty(t, o.Content.Finalizers)
			})
		}
	}
}
