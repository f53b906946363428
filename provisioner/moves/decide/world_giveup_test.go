package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// turns lets a calm world go on until something holds, and returns what the move said last.
func (w *world) turns(what string, done func(*record.Record) bool) string {
	w.calm = true
	for range 600 {
		w.live()
		w.check()
		if r := w.decoded(); r != nil && done(r) {
			return decide.Next(w.observe()).Say
		}
		step := decide.Next(w.observe())
		w.must(step.End == "" || !w.down[step.End], "a request to a cluster that does not answer: %s %s", step.Verb, step.End)
		w.apply(step)
		w.check()
	}
	w.must(false, "%s does not come: %+v", what, decide.Next(w.observe()))
	return ""
}

// stays lets a world go on for a while in which a move must not end.
func (w *world) stays(why string) {
	for range 30 {
		w.live()
		w.apply(decide.Next(w.observe()))
		w.check()
		w.must(!w.decoded().Over(), "%s", why)
	}
}

func at(phase v1alpha1.MovePhase) func(*record.Record) bool {
	return func(r *record.Record) bool { return r.Phase == phase }
}

func over(r *record.Record) bool { return r.Over() }

var beforeCommit = []v1alpha1.MovePhase{v1alpha1.MovePrepare, v1alpha1.MoveProvision, v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce,
	v1alpha1.MoveFence, v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying}

// free says that anything else can be done with the claims, and that pods use them.
func (w *world) free(end record.End) {
	r := w.decoded()
	w.must(!r.Holds() && !r.Busy(), "the claims are held in phase %s", r.Phase)
	for i, c := range w.claims {
		w.must(len(c.claim.Finalizers)+len(c.claim.Labels)+len(c.claim.Annotations) == 0, "something is left on the claim: %+v", c.claim.ObjectMeta)
		w.must(c.current(i) == end, "the claim has its volume at the %s", c.current(i))
	}
}

func TestATargetThatIsGoneForGoodDoesNotKeepTheClaims(t *testing.T) {
	for _, phase := range beforeCommit {
		for _, ends := range []string{"asked", "removed"} {
			for seed := range uint64(2) {
				w := newWorld(t, seed, 2)
				w.turns("the phase", at(phase))
				w.down[record.Target] = true
				w.move.Spec.Action = v1alpha1.ActionAbort
				w.turns("a claim that is free", func(r *record.Record) bool { return r.Freed })
				w.free(record.Source)
				w.turns("a pod at the source", func(*record.Record) bool { return len(w.pods) > 0 && w.pods[0].Bound && w.pods[0].at == record.Source })
				for _, c := range w.claims {
					w.must(c.at[record.Source].real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete, "the policy is not what it was")
					w.must(!c.at[record.Source].mover.Exists, "a mover is left at the source")
				}
				w.stays("nobody has said that the cluster is gone")
				assert.Contains(t, decide.Next(w.observe()).Say, "kubectl lodestone move give-up")
				assert.Equal(t, decide.ClusterAway, decide.Next(w.observe()).Need)
				if ends == "asked" {
					w.move.Spec.Action = v1alpha1.ActionGiveUp
				} else {
					w.gone = map[record.End]bool{record.Target: true}
				}
				w.turns("the end", over)
				assert.Equal(t, v1alpha1.MoveAborted, w.decoded().Phase)
				assert.Equal(t, []record.End{record.Target}, w.decoded().GivenUp)
				for _, says := range []string{"cluster west was given up", "real claim n/target-0", "n/move-m1-1-target"} {
					assert.Contains(t, w.decoded().Left(), says)
				}
			}
		}
	}
}

func TestATargetIsGivenUpInOneStep(t *testing.T) {
	for _, phase := range beforeCommit {
		w := newWorld(t, 0, 1)
		w.turns("the phase", at(phase))
		w.down[record.Target] = true
		w.move.Spec.Action = v1alpha1.ActionGiveUp
		w.turns("the end", over)
		w.free(record.Source)
		assert.Equal(t, "the move was given up", w.decoded().Why)
	}
	// One that answers is cleaned up as ever.
	w := newWorld(t, 0, 1)
	w.turns("the phase", at(v1alpha1.MovePreCopy))
	w.move.Spec.Action = v1alpha1.ActionGiveUp
	w.turns("the end", over)
	assert.Empty(t, w.decoded().GivenUp)
	w.settled(w.decoded())
}

// awayFrom makes a world whose source is in a remote cluster.
func awayFrom(t *testing.T, seed uint64) *world {
	w := newWorld(t, seed, 2)
	w.within = true
	w.turns("a record", func(*record.Record) bool { return true })
	return w
}

func TestASourceThatIsGoneBeforeCommitIsNotPretendedToBeThere(t *testing.T) {
	for _, phase := range beforeCommit {
		w := awayFrom(t, 0)
		w.turns("the phase", at(phase))
		w.down[record.Source] = true
		w.move.Spec.Action = v1alpha1.ActionAbort
		if record.Before(v1alpha1.MoveProvision, phase) {
			require.NotNil(t, w.claims[0].at[record.Target].backing)
		}
		w.turns("a claim that is free", func(r *record.Record) bool { return r.Freed })
		w.free(record.Source)
		w.move.Spec.Action = v1alpha1.ActionGiveUp
		w.gone = map[record.End]bool{record.Source: true}
		w.stays("what was copied is all that there is")
		say := decide.Next(w.observe()).Say
		assert.NotContains(t, say, "in use")
		for _, says := range []string{"no pod can use them", "not the whole data and is kept", "kubectl lodestone lose pvc"} {
			assert.Contains(t, say, says)
		}
		if record.Before(v1alpha1.MoveProvision, phase) {
			assert.NotNil(t, w.claims[0].at[record.Target].backing, "%s", phase)
		}
		w.move.Spec.Action, w.gone = v1alpha1.ActionAbort, nil
		w.claims[0].volume.Annotations[keys.Lost] = "yes"
		w.stays("the data of the other claim may be wanted")
		deleted := w.observe()
		deleted.Claims[1].Claim, deleted.Claims[1].Volume = nil, nil
		assert.Equal(t, decide.Save, decide.Next(deleted).Verb, "nothing is left of that claim")
		w.claims[1].volume.Annotations[keys.Lost] = "yes"
		w.turns("the end", over)
		assert.Equal(t, []record.End{record.Source}, w.decoded().GivenUp)
		assert.NotContains(t, w.decoded().Left(), "real claim", "the move has left no claim there")
		assert.Nil(t, w.claims[0].at[record.Target].backing)
	}
}

func TestASourceThatIsGoneAfterCommitDoesNotKeepTheMove(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain, v1alpha1.MoveFinalize} {
		for _, ends := range []string{"asked", "removed"} {
			w := awayFrom(t, 0)
			w.move.Spec.KeepSourceFor = &metav1.Duration{}
			w.turns("the phase", at(phase))
			w.down[record.Source] = true
			w.turns("the last phase", at(v1alpha1.MoveFinalize))
			w.stays("nobody has said that the cluster is gone")
			assert.Contains(t, decide.Next(w.observe()).Say, "kubectl lodestone move give-up")
			assert.Equal(t, decide.ClusterAway, decide.Next(w.observe()).Need)
			if ends == "asked" {
				w.move.Spec.Action = v1alpha1.ActionGiveUp
			} else {
				w.gone = map[record.End]bool{record.Source: true}
			}
			w.turns("the end", over)
			assert.Equal(t, v1alpha1.MoveDone, w.decoded().Phase)
			assert.Contains(t, w.decoded().Left(), "real claim n/source-0")
			w.free(record.Target)
		}
	}
}

func TestACleanUpTouchesNothingOfTheNextMove(t *testing.T) {
	w := newWorld(t, 0, 1)
	w.turns("the phase", at(v1alpha1.MoveFinalSync))
	w.down[record.Target] = true
	w.move.Spec.Action = v1alpha1.ActionAbort
	w.turns("a claim that is free", func(r *record.Record) bool { return r.Freed })
	o := w.observe()
	o.Claims[0].Claim.Annotations = map[string]string{keys.Move: "another", keys.MoveTouched: "Fence"}
	o.Claims[0].Claim.Labels, o.Claims[0].Claim.Finalizers = map[string]string{keys.Moving: keys.MovingNow}, []string{keys.MoveFinalizer}
	o.Claims[0].Volume = nil
	o.Claims[0].Source.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	o.Pods = []decide.Pod{{Name: "db-0", Gated: true, Owned: true}}
	assert.Equal(t, decide.Idle, decide.Next(o).Verb)
	o.Unusable = nil
	o.Claims[0].Target = decide.Side{Backing: w.claims[0].at[record.Target].backing}
	assert.Equal(t, decide.DropBacking, decide.Next(o).Verb)
}
