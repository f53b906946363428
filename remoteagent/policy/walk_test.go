package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// settle is how many ticks a request with an unknown outcome may take.
const settle = 5

// world is a cluster in which one ShadowPod is worked on by an agent that may
// die, sees old states of pods, and does not always learn what its requests did.
type world struct {
	random *rand.Rand
	shadow *remotev1alpha1.ShadowPod // nil: gone
	pod    *corev1.Pod
	cache  *corev1.Pod // what the agent sees of pod
	home   Presence

	flying *corev1.Pod // a pod whose creation takes effect within the settle time
	lands  int
	unsure int // ticks for which the agent is not sure
	made   int
}

func (w *world) tick() {
	w.unsure = max(0, w.unsure-1)
	if w.flying != nil {
		if w.lands--; w.lands <= 0 {
			w.create(w.flying)
			w.flying = nil
		}
	}
}

func (w *world) create(pod *corev1.Pod) {
	if w.pod != nil {
		return
	}
	w.made++
	w.pod = pod.DeepCopy()
	w.pod.UID = types.UID(fmt.Sprintf("pod-%d", w.made))
}

// vanish deletes the pod as anybody may.
func (w *world) vanish() {
	if w.pod == nil {
		return
	}
	if len(w.pod.Finalizers) > 0 {
		w.pod.DeletionTimestamp = &metav1.Time{}
		return
	}
	w.pod = nil
}

// agent takes steps as the controller does. With trouble, it may die before or
// after any write, and creations may hang.
func (w *world) agent(trouble bool) {
	shadow, pod, live := w.shadow.DeepCopy(), w.cache.DeepCopy(), false
	for range 12 {
		if trouble && w.random.IntN(12) == 0 {
			w.unsure = settle // the next one does not know what this one asked for
			return
		}
		step := Next(Observation{Shadow: shadow, Pod: pod, Live: live, Home: w.home, Settled: w.unsure == 0})
		switch step.Verb {
		case Idle, Wait:
			return
		case Look:
			pod, live = w.pod.DeepCopy(), true
		case Hold:
			w.shadow.Finalizers = []string{keys.ShadowPodFinalizer}
		case Note:
			if step.Status.Phase == remotev1alpha1.ShadowPodCreating {
				w.unsure, live = 0, true // this agent knows of every request from here on
			}
			w.shadow.Status = step.Status
		case Make:
			wanted := NewPod(shadow, home)
			if trouble && w.random.IntN(3) == 0 {
				w.flying, w.lands, w.unsure = wanted, 1+w.random.IntN(settle-1), settle
				return
			}
			w.create(wanted)
			pod, live = w.pod.DeepCopy(), true
		case Count, Delete, Carry:
			if w.pod == nil || w.pod.UID != pod.UID {
				return // a precondition fails
			}
			if step.Verb == Count {
				w.pod.Finalizers = nil
				if w.pod.DeletionTimestamp != nil {
					w.pod = nil
				}
			} else if step.Verb == Delete {
				w.vanish()
			}
			pod, live = w.pod.DeepCopy(), true
		case Release:
			w.shadow = nil
			return
		}
		shadow = w.shadow.DeepCopy()
	}
	panic("no end of steps")
}

// TestWalk lets an agent with bad luck work on a ShadowPod, and checks after each
// tick what must hold whatever happens.
func TestWalk(t *testing.T) {
	policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever}
	for seed := range uint64(4000) {
		w := &world{random: rand.New(rand.NewPCG(seed, 1)), home: Away}
		policy := policies[w.random.IntN(2)]
		w.shadow = shadowPod("", func(s *remotev1alpha1.ShadowPod) { s.Spec.Pod.Spec.RestartPolicy = policy })
		lost := false
		check := func() {
			if policy == corev1.RestartPolicyNever {
				require.LessOrEqual(t, w.made, 1, "seed %d: a pod that never restarts was made again", seed)
			}
			require.False(t, w.shadow == nil && (w.pod != nil || w.flying != nil), "seed %d: the ShadowPod went before its pod", seed)
			if w.shadow != nil {
				now := w.shadow.Status.Phase == remotev1alpha1.ShadowPodLost
				require.False(t, lost && !now, "seed %d: what was lost is not", seed)
				require.False(t, now && (w.pod != nil || w.flying != nil), "seed %d: lost, but there is a pod", seed)
				lost = now
			}
		}
		for range 60 {
			w.tick()
			if w.random.IntN(8) == 0 {
				w.vanish()
			}
			if w.random.IntN(5) == 0 {
				w.home = []Presence{Unknown, Connected, Away}[w.random.IntN(3)]
			}
			if w.random.IntN(3) > 0 {
				w.cache = w.pod.DeepCopy()
			}
			w.agent(true)
			check()
		}
		// Luck turns: the pod runs, or is lost.
		w.home = Away
		for range 3 * settle {
			w.tick()
			w.cache = w.pod.DeepCopy()
			w.agent(false)
			check()
		}
		phase := w.shadow.Status.Phase
		require.Contains(t, []remotev1alpha1.ShadowPodPhase{remotev1alpha1.ShadowPodCreated, remotev1alpha1.ShadowPodLost}, phase, "seed %d", seed)
		require.Equal(t, phase == remotev1alpha1.ShadowPodCreated, w.pod != nil && !slices.Contains(w.pod.Finalizers, keys.UnrecordedFinalizer), "seed %d", seed)

		w.shadow.DeletionTimestamp = &metav1.Time{}
		for range 3 * settle {
			if w.tick(); w.shadow == nil {
				break
			}
			w.cache = w.pod.DeepCopy()
			w.agent(w.random.IntN(4) == 0)
			check()
		}
		for range 3 * settle {
			if w.tick(); w.shadow != nil {
				w.cache = w.pod.DeepCopy()
				w.agent(false)
			}
			check()
		}
		require.Nil(t, w.shadow, "seed %d: the ShadowPod does not go", seed)
	}
}
