package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// named says whether a virtual volume is there for the target.
func (w *world) named() bool {
	for i, c := range w.claims {
		if c.current(i) == record.Target {
			return true
		}
	}
	return false
}

// TestATargetThatIsGoneInCommitIsLeftWhileNobodyCanHaveUsedIt takes the target away after
// each number of steps of Commit.
func TestATargetThatIsGoneInCommitIsLeftWhileNobodyCanHaveUsedIt(t *testing.T) {
	early, late := 0, 0
	for steps := range 16 {
		for seed := range uint64(6) {
			w := newWorld(t, seed, 2)
			w.within = seed == 5
			w.turns("the phase", at(v1alpha1.MoveCommit))
			for range steps {
				w.live()
				w.apply(decide.Next(w.observe()))
				w.check()
			}
			if w.decoded().Phase != v1alpha1.MoveCommit {
				continue
			}
			w.down[record.Target] = true
			w.down[record.Source] = w.within
			named := w.named()
			for range 5 {
				w.stays("nobody has said that the cluster is gone")
			}
			require.Equal(t, v1alpha1.MoveCommit, w.decoded().Phase)
			require.Equal(t, decide.ClusterAway, decide.Next(w.observe()).Need)
			if seed%2 == 0 {
				w.move.Spec.Action = v1alpha1.ActionGiveUp
			} else {
				w.gone = map[record.End]bool{record.Target: true}
			}
			if named {
				late++
				w.stays("pods may have used the target")
				assert.Contains(t, decide.Next(w.observe()).Say, "ask for help")
				clear(w.down)
				w.move.Spec.KeepSourceFor = &metav1.Duration{}
				w.turns("the end", over)
				require.Equal(t, v1alpha1.MoveDone, w.decoded().Phase)
				continue
			}
			early++
			w.turns("a claim that is free", func(r *record.Record) bool { return r.Freed })
			w.free(record.Source)
			if w.within {
				// The source comes back, and so does the target.
				w.stays("the data is in that cluster")
				clear(w.down)
			}
			w.turns("the end", over)
			require.Equal(t, v1alpha1.MoveAborted, w.decoded().Phase)
			w.turns("a pod at the source", func(*record.Record) bool { return len(w.pods) > 0 && w.pods[0].Bound && w.pods[0].at == record.Source })
			w.settled(w.decoded())
			assert.Equal(t, w.within, w.claims[0].at[record.Target].backing == nil, "of a cluster that was given up everything stays, of another nothing")
		}
	}
	require.Greater(t, early, 5)
	require.Greater(t, late, 5)
}

func TestARealClaimThatIsGoneInCommitEndsTheMoveIfItIsGivenUp(t *testing.T) {
	w := newWorld(t, 0, 2)
	w.turns("the phase", at(v1alpha1.MoveCommit))
	gone := w.claims[0].at[record.Target]
	gone.backing, gone.real, gone.content = nil, nil, -1
	w.stays("nobody has given it up")
	step := decide.Next(w.observe())
	assert.Equal(t, decide.CopyGone, step.Need)
	assert.Contains(t, step.Say, "real claim n/target-0 of the target is gone; if it is gone for ever, kubectl lodestone move give-up m")
	w.move.Spec.Action = v1alpha1.ActionGiveUp
	w.turns("the end", over)
	w.settled(w.decoded())
	w.free(record.Source)
	assert.Nil(t, w.claims[1].at[record.Target].backing, "the other copy was an ordinary claim already, and goes too")
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, w.claims[0].at[record.Source].real.Spec.PersistentVolumeReclaimPolicy)

	// A target that is there is not given up.
	w = newWorld(t, 0, 1)
	w.turns("the phase", at(v1alpha1.MoveCommit))
	w.move.Spec.Action = v1alpha1.ActionGiveUp
	w.turns("the end", over)
	assert.Equal(t, v1alpha1.MoveDone, w.decoded().Phase)
}
