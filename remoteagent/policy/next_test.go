package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
)

func shadowPod(phase remotev1alpha1.ShadowPodPhase, change ...func(*remotev1alpha1.ShadowPod)) *remotev1alpha1.ShadowPod {
	s := &remotev1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "shadow", Finalizers: []string{keys.ShadowPodFinalizer},
			Labels: map[string]string{keys.HomeID: "h1", keys.PodUID: "home-pod"},
		},
		Spec: remotev1alpha1.ShadowPodSpec{
			Start: true,
			Home:  remotev1alpha1.HomePod{Cluster: "h1", Namespace: "shop", Name: "web", UID: "home-pod"},
			Pod: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "1"}},
				Spec: corev1.PodSpec{
					Containers:     []corev1.Container{{Name: "app", Image: "app:1"}},
					InitContainers: []corev1.Container{{Name: "init", Image: "init:1"}},
				},
			},
		},
		Status: remotev1alpha1.ShadowPodStatus{Phase: phase},
	}
	if phase == remotev1alpha1.ShadowPodCreated {
		s.Status.PodUID = "pod"
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func deleting(s *remotev1alpha1.ShadowPod) { s.DeletionTimestamp = &metav1.Time{} }
func neverRestarts(s *remotev1alpha1.ShadowPod) {
	s.Spec.Pod.Spec.RestartPolicy = corev1.RestartPolicyNever
}
func ended(s *remotev1alpha1.ShadowPod) { s.Status.Reason = ReasonPodEnded }
func message(text string) func(*remotev1alpha1.ShadowPod) {
	return func(s *remotev1alpha1.ShadowPod) { s.Status.Message = text }
}
func changed(s *remotev1alpha1.ShadowPod) { s.Generation = 7 }
func unheld(s *remotev1alpha1.ShadowPod)  { s.Finalizers = nil }
func grace(n int64) func(*remotev1alpha1.ShadowPod) {
	return func(s *remotev1alpha1.ShadowPod) { s.Spec.GracePeriodSeconds = &n }
}

// podFor returns the pod of a ShadowPod as it runs.
func podFor(s *remotev1alpha1.ShadowPod, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := NewPod(s, &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "h1"}})
	pod.UID = "pod"
	pod.Finalizers = nil
	for _, c := range change {
		c(pod)
	}
	return pod
}

func foreign(pod *corev1.Pod)    { pod.Labels[keys.PodUID] = "another" }
func unrecorded(pod *corev1.Pod) { pod.Finalizers = []string{keys.UnrecordedFinalizer} }
func ending(seconds int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{}, &seconds
	}
}
func onFailure(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }
func inPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}
func unreadable(s *remotev1alpha1.ShadowPod) {
	s.Spec.Pod, s.Spec.Unreadable = corev1.PodTemplateSpec{}, "x"
}
func uid(uid types.UID) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.UID = uid } }

func TestNext(t *testing.T) {
	const (
		pending  = remotev1alpha1.ShadowPodPending
		creating = remotev1alpha1.ShadowPodCreating
		created  = remotev1alpha1.ShadowPodCreated
		lost     = remotev1alpha1.ShadowPodLost
	)
	one := shadowPod(created)
	for name, test := range map[string]struct {
		o      Observation
		verb   Verb
		phase  remotev1alpha1.ShadowPodPhase
		reason string
		grace  int64
	}{
		"a new one is written down before its pod is made": {o: Observation{Shadow: shadowPod("")}, verb: Note, phase: creating},
		"one that its home pod does not know of is not started": {o: Observation{Shadow: shadowPod("", func(s *remotev1alpha1.ShadowPod) {
			s.Spec.Start = false
		})}, verb: Idle},
		"one without the finalizer is held first": {o: Observation{Shadow: shadowPod("", unheld)}, verb: Hold},
		"what is written down is made": {o: Observation{Shadow: shadowPod(creating), Settled: true, Live: true},
			verb: Make},
		"but not before it was looked for":              {o: Observation{Shadow: shadowPod(creating), Settled: true}, verb: Look},
		"what may be on its way is not asked for again": {o: Observation{Shadow: shadowPod(creating)}, verb: Wait},
		"what is not allowed is not made": {o: Observation{Shadow: shadowPod(""), Refusal: &Refusal{"NotAllowed", "x"}},
			verb: Note, phase: pending, reason: "NotAllowed"},
		"what may have been made is not called pending": {o: Observation{Shadow: shadowPod(creating),
			Refusal: &Refusal{"NotAllowed", "x"}}, verb: Wait},
		"a refused one is tried again":    {o: Observation{Shadow: shadowPod(pending)}, verb: Note, phase: creating},
		"but not at once after a refusal": {o: Observation{Shadow: shadowPod(pending), Paused: true}, verb: Wait},
		"a foreign pod of the name is left alone": {o: Observation{Shadow: shadowPod(""), Pod: podFor(one, foreign)},
			verb: Note, phase: pending, reason: ReasonNameTaken},
		"a pod that was made is written down": {o: Observation{Shadow: shadowPod(creating), Pod: podFor(one), Live: true},
			verb: Note, phase: created},
		"a pod that was made again is written down": {o: Observation{Shadow: one, Pod: podFor(one, uid("pod2"))}, verb: Note,
			phase: created},
		"a pod proven gone and seen late is not written down": {o: Observation{Shadow: shadowPod(creating,
			func(s *remotev1alpha1.ShadowPod) { s.Status.PodUID = "pod" }), Pod: podFor(one)}, verb: Look},
		"a pod that is written down is let off its finalizer": {o: Observation{Shadow: one, Pod: podFor(one, unrecorded)}, verb: Count},
		"a pod that runs is left running":                     {o: Observation{Shadow: one, Pod: podFor(one)}, verb: Idle},
		"that a change was seen is written down": {o: Observation{Shadow: shadowPod(created, changed), Pod: podFor(one)},
			verb: Note, phase: created},
		"… but not once it is to be deleted": {o: Observation{Shadow: shadowPod(created, changed, grace(5)),
			Pod: podFor(one)}, verb: Idle},
		"… and a refusal is of the last change": {o: Observation{Shadow: shadowPod(pending, changed),
			Refusal: &Refusal{"", ""}}, verb: Note, phase: pending},
		"a pod that ends by itself is written down": {o: Observation{Shadow: one, Pod: podFor(one, inPhase(corev1.PodSucceeded))},
			verb: Note, phase: created, reason: ReasonPodEnded},
		"a pod that was made to end did not end by itself": {o: Observation{Shadow: one,
			Pod: podFor(one, ending(30), inPhase(corev1.PodSucceeded))}, verb: Idle},
		"a task that is done while somebody deletes it is done": {o: Observation{Shadow: one,
			Pod: podFor(one, ending(30), inPhase(corev1.PodSucceeded), onFailure)}, verb: Note, phase: created, reason: ReasonPodEnded},
		"a task that somebody ends before it is done is not": {o: Observation{Shadow: one,
			Pod: podFor(one, ending(30), inPhase(corev1.PodFailed), onFailure)}, verb: Idle},
		"a pod that ended by itself and is deleted then": {o: Observation{Shadow: shadowPod(created, ended,
			message("The pod ended by itself with phase Failed.")), Pod: podFor(one, ending(30), inPhase(corev1.PodFailed))}, verb: Idle},
		"a pod that somebody deletes is waited for": {o: Observation{Shadow: one, Pod: podFor(one, ending(30))}, verb: Idle},
		"a pod that is not seen is looked for":      {o: Observation{Shadow: one, Settled: true, Home: Connected}, verb: Look},
		"gone while home is connected: lost": {o: Observation{Shadow: one, Live: true, Settled: true, Home: Connected},
			verb: Note, phase: lost, reason: ReasonPodGone},
		"gone while home is away: made again": {o: Observation{Shadow: one, Live: true, Settled: true, Home: Away},
			verb: Note, phase: creating, reason: ReasonRemade},
		"gone, and home not known: waits": {o: Observation{Shadow: one, Live: true, Settled: true, Home: Unknown},
			verb: Wait},
		"gone while home is away, policy Never: lost": {o: Observation{Shadow: shadowPod(created, neverRestarts), Live: true,
			Settled: true, Home: Away}, verb: Note, phase: lost, reason: ReasonPodGone},
		"gone after its end while home is away: lost": {o: Observation{Shadow: shadowPod(created, ended), Live: true, Settled: true,
			Home: Away}, verb: Note, phase: lost, reason: ReasonPodEnded},
		"replaced by a foreign pod while home is connected: lost": {o: Observation{Shadow: one, Pod: podFor(one, foreign), Live: true,
			Settled: true, Home: Connected}, verb: Note, phase: lost, reason: ReasonPodGone},
		"what is lost stays lost": {o: Observation{Shadow: shadowPod(lost), Live: true, Settled: true,
			Home: Away}, verb: Idle},
		"a pod made too late is ended": {o: Observation{Shadow: shadowPod(lost), Pod: podFor(one)}, verb: Delete,
			grace: 30},
		"deletion ends the pod": {o: Observation{Shadow: shadowPod(created, deleting), Pod: podFor(one)},
			verb: Delete, grace: 30},
		"deletion gives the time that home gives": {o: Observation{Shadow: shadowPod(created, deleting, grace(5)),
			Pod: podFor(one)}, verb: Delete, grace: 5},
		"deletion by force still waits for the kubelet": {o: Observation{Shadow: shadowPod(created, deleting, grace(0)),
			Pod: podFor(one)}, verb: Delete, grace: 1},
		"a shorter time is carried to a pod that is ending": {o: Observation{Shadow: shadowPod(created, deleting, grace(5)),
			Pod: podFor(one, ending(30))}, verb: Delete, grace: 5},
		"a home that is leaving does not choose how long": {o: Observation{Shadow: shadowPod(created, deleting, grace(1e9)),
			Pod: podFor(one), Leaving: true}, verb: Delete, grace: 30},
		"… not even for a pod that is ending": {o: Observation{Shadow: shadowPod(created, deleting, grace(1e9)),
			Pod: podFor(one, ending(1e9)), Leaving: true}, verb: Delete, grace: 30},
		"… but may have chosen less": {o: Observation{Shadow: shadowPod(created, deleting, grace(5)),
			Pod: podFor(one), Leaving: true}, verb: Delete, grace: 5},
		"a longer time is not": {o: Observation{Shadow: shadowPod(created, deleting, grace(50)),
			Pod: podFor(one, ending(30))}, verb: Idle},
		"an ending pod is let off its finalizer": {o: Observation{Shadow: shadowPod(created, deleting),
			Pod: podFor(one, ending(30), unrecorded)}, verb: Count},
		"a ShadowPod whose pod is not seen is not let go": {o: Observation{Shadow: shadowPod(created, deleting), Settled: true},
			verb: Look},
		"a ShadowPod whose pod is proven gone is let go": {o: Observation{Shadow: shadowPod(created, deleting), Live: true,
			Settled: true}, verb: Release},
		"a ShadowPod whose pod may still be made is not let go": {o: Observation{Shadow: shadowPod(creating, deleting), Live: true},
			verb: Wait},
		"a ShadowPod whose pod was never asked for is let go": {o: Observation{Shadow: shadowPod(pending, deleting), Live: true},
			verb: Release},
		"a ShadowPod is not held by a foreign pod": {o: Observation{Shadow: shadowPod(pending, deleting),
			Pod: podFor(one, foreign), Live: true, Settled: true}, verb: Release},
		"a ShadowPod that others hold is left to them": {o: Observation{Shadow: shadowPod(created, deleting, unheld), Live: true,
			Settled: true}, verb: Idle},
		"without permission a running pod goes on": {o: Observation{Shadow: one, Pod: podFor(one),
			Refusal: &Refusal{"NotAllowed", "x"}}, verb: Idle},
		"a template that changed is carried": {o: Observation{Shadow: shadowPod(created, func(s *remotev1alpha1.ShadowPod) {
			s.Spec.Pod.Labels = map[string]string{"app": "shop"}
		}), Pod: podFor(one)}, verb: Carry},
		"a template that cannot be read is not carried": {o: Observation{Shadow: shadowPod(created, unreadable), Pod: podFor(one)},
			verb: Idle},
		"gone, and the template cannot be read: lost": {o: Observation{Shadow: shadowPod(created, unreadable), Live: true,
			Settled: true, Home: Away}, verb: Note, phase: lost, reason: ReasonPodGone},
		"a template that changed is not carried to an ending pod": {o: Observation{Shadow: shadowPod(created, func(s *remotev1alpha1.ShadowPod) {
			s.Spec.Pod.Labels = nil
		}), Pod: podFor(one, ending(30))}, verb: Idle},
		"a refusal that is written down is not written again": {o: Observation{Shadow: shadowPod(pending, func(s *remotev1alpha1.ShadowPod) {
			s.Status.Reason, s.Status.Message = "NotAllowed", "x"
		}), Refusal: &Refusal{"NotAllowed", "x"}}, verb: Idle},
		"a pod on the way to being made again keeps the reason why": {o: Observation{Shadow: shadowPod(creating,
			func(s *remotev1alpha1.ShadowPod) { s.Status.Reason = ReasonRemade }), Pod: podFor(one), Live: true}, verb: Note, phase: created,
			reason: ReasonRemade},
	} {
		t.Run(name, func(t *testing.T) {
			step := Next(test.o)
			assert.Equal(t, test.verb, step.Verb)
			assert.Equal(t, test.phase, step.Status.Phase)
			if step.Verb == Note {
				assert.Equal(t, test.reason, step.Status.Reason)
				assert.Equal(t, test.o.Shadow.Generation, step.Status.ObservedGeneration)
			}
			assert.Equal(t, test.grace, step.Grace)
		})
	}
}

func usesClaim(s *remotev1alpha1.ShadowPod) {
	s.Spec.Pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
}

// silenced is a ShadowPod of which it is written down that its pod is ended because home is silent.
func silenced(s *remotev1alpha1.ShadowPod) {
	s.Status.Reason = ReasonHomeSilent
	s.Status.Message = "The pod is ended, for its home cluster is silent and has asked for that; it decides what comes next."
}

func TestALeaseThatHasLapsedEndsPodsThatUseClaimsAndHasNoneMade(t *testing.T) {
	const (
		pending  = remotev1alpha1.ShadowPodPending
		creating = remotev1alpha1.ShadowPodCreating
		created  = remotev1alpha1.ShadowPodCreated
		lost     = remotev1alpha1.ShadowPodLost
	)
	shadow := func(phase remotev1alpha1.ShadowPodPhase, change ...func(*remotev1alpha1.ShadowPod)) *remotev1alpha1.ShadowPod {
		return shadowPod(phase, append(change, usesClaim)...)
	}
	of := func(change ...func(*corev1.Pod)) *corev1.Pod { return podFor(shadow(created), change...) }
	for name, test := range map[string]struct {
		o      Observation
		lease  podlease.State
		verb   Verb
		phase  remotev1alpha1.ShadowPodPhase
		reason string
		grace  int64
	}{
		"a pod runs while home is heard": {o: Observation{Shadow: shadow(created), Pod: of(), Home: Away}, lease: podlease.Held, verb: Idle},
		"… and while that is not known":  {o: Observation{Shadow: shadow(created), Pod: of(), Home: Away}, lease: podlease.Listening, verb: Idle},
		"… and where home asks for no lease": {o: Observation{Shadow: shadow(created), Pod: of(), Home: Away}, lease: podlease.None,
			verb: Idle},
		"why it is ended is written down first": {o: Observation{Shadow: shadow(created), Pod: of(), Home: Away}, lease: podlease.Lapsed,
			verb: Note, phase: created, reason: ReasonHomeSilent},
		"a pod that cannot be read may use claims": {o: Observation{Shadow: shadowPod(created, unreadable), Pod: of(), Home: Away},
			lease: podlease.Lapsed, verb: Note, phase: created, reason: ReasonHomeSilent},
		"a pod without claims goes on": {o: Observation{Shadow: shadowPod(created), Pod: podFor(shadowPod(created)), Home: Away},
			lease: podlease.Lapsed, verb: Idle},
		"a pod that has ended is left": {o: Observation{Shadow: shadow(created), Pod: of(inPhase(corev1.PodSucceeded)), Home: Away},
			lease: podlease.Lapsed, verb: Note, phase: created, reason: ReasonPodEnded},
		"then the pod is ended with its grace period": {o: Observation{Shadow: shadow(created, silenced), Pod: of(), Home: Away},
			lease: podlease.Lapsed, verb: Delete, grace: 30},
		"… also by an agent that starts anew": {o: Observation{Shadow: shadow(created, silenced), Pod: of(), Home: Unknown},
			lease: podlease.Listening, verb: Delete, grace: 30},
		"… and when home is back meanwhile": {o: Observation{Shadow: shadow(created, silenced), Pod: of(), Home: Connected},
			lease: podlease.Held, verb: Delete, grace: 30},
		"a pod that is ending is waited for": {o: Observation{Shadow: shadow(created, silenced), Pod: of(ending(30)), Home: Away},
			lease: podlease.Lapsed, verb: Idle},
		"… also when its kubelet says that it has failed": {o: Observation{Shadow: shadow(created, silenced),
			Pod: of(ending(30), inPhase(corev1.PodFailed)), Home: Away}, lease: podlease.Held, verb: Idle},
		"an ended pod that is gone is not made anew": {o: Observation{Shadow: shadow(created, silenced), Live: true, Settled: true, Home: Away},
			lease: podlease.Held, verb: Note, phase: lost, reason: ReasonHomeSilent},
		"one that goes in the silence is not either": {o: Observation{Shadow: shadow(created), Live: true, Settled: true, Home: Away},
			lease: podlease.Lapsed, verb: Note, phase: lost, reason: ReasonHomeSilent},
		"one that goes while it is not known waits": {o: Observation{Shadow: shadow(created), Live: true, Settled: true, Home: Away},
			lease: podlease.Listening, verb: Wait},
		"one that goes while only virtual nodes are silent is made anew": {o: Observation{Shadow: shadow(created), Live: true, Settled: true,
			Home: Away}, lease: podlease.Held, verb: Note, phase: creating, reason: ReasonRemade},
		"none is made while it is not known": {o: Observation{Shadow: shadow(""), Home: Connected}, lease: podlease.Listening, verb: Wait},
		"none is made for a silent home": {o: Observation{Shadow: shadow(""), Home: Away}, lease: podlease.Lapsed, verb: Note,
			phase: lost, reason: ReasonHomeSilent},
		"… whose request may have taken effect": {o: Observation{Shadow: shadow(creating), Settled: true, Home: Away}, lease: podlease.Lapsed,
			verb: Look},
		"… or may take effect yet": {o: Observation{Shadow: shadow(creating), Home: Away}, lease: podlease.Lapsed, verb: Wait},
		"… and did not": {o: Observation{Shadow: shadow(creating), Settled: true, Live: true, Home: Away}, lease: podlease.Lapsed, verb: Note,
			phase: lost, reason: ReasonHomeSilent},
		"where only the provisioner is silent it waits": {o: Observation{Shadow: shadow(""), Home: Connected}, lease: podlease.Lapsed, verb: Note,
			phase: pending, reason: ReasonHomeSilent},
		"… until its virtual nodes are silent, too": {o: Observation{Shadow: shadow(pending, silenced,
			message("The pod is not made while the provisioner of its home cluster is silent: see there that it runs.")), Home: Connected},
			lease: podlease.Lapsed, verb: Wait},
		"… which gives it up": {o: Observation{Shadow: shadow(pending, silenced), Home: Away}, lease: podlease.Lapsed, verb: Note,
			phase: lost, reason: ReasonHomeSilent},
		"so is one that is refused": {o: Observation{Shadow: shadow(pending), Home: Away, Refusal: &Refusal{ReasonNotAllowed, "No."}},
			lease: podlease.Lapsed, verb: Note, phase: lost, reason: ReasonHomeSilent},
		"… also for its name": {o: Observation{Shadow: shadow(pending), Pod: of(func(p *corev1.Pod) { p.Labels = nil }), Home: Away},
			lease: podlease.Lapsed, verb: Note, phase: lost, reason: ReasonHomeSilent},
		"where it is not known who is silent it waits": {o: Observation{Shadow: shadow(""), Home: Unknown}, lease: podlease.Lapsed, verb: Wait},
		"one that waited is made when home is heard": {o: Observation{Shadow: shadow(pending, silenced), Home: Connected}, lease: podlease.Held,
			verb: Note, phase: creating, reason: ReasonHomeSilent},
		"… and does not count as ended": {o: Observation{Shadow: shadow(creating, silenced), Pod: of(), Live: true, Home: Connected},
			lease: podlease.Held, verb: Note, phase: created},
		"a pod without claims is made": {o: Observation{Shadow: shadowPod(""), Home: Away}, lease: podlease.Lapsed, verb: Note, phase: creating},
		"deletion goes before": {o: Observation{Shadow: shadow(created, deleting, grace(5)), Pod: of(), Home: Away},
			lease: podlease.Lapsed, verb: Delete, grace: 5},
		"a deletion that takes longer goes on while home is heard": {o: Observation{Shadow: shadow(created, deleting, grace(7200)),
			Pod: of(ending(7200)), Home: Connected}, lease: podlease.Held, verb: Idle},
		"… and takes no longer than the pod's own grace period once it is silent": {o: Observation{
			Shadow: shadow(created, deleting, grace(7200)), Pod: of(ending(7200)), Home: Away}, lease: podlease.Lapsed, verb: Delete, grace: 30},
		"… however long that is": {o: Observation{Shadow: shadow(created, deleting, grace(7200)), Pod: of(ending(7200),
			func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(900)) }), Home: Away},
			lease: podlease.Lapsed, verb: Delete, grace: 900},
	} {
		t.Run(name, func(t *testing.T) {
			test.o.Lease = test.lease
			step := Next(test.o)
			assert.Equal(t, test.verb, step.Verb)
			assert.Equal(t, test.phase, step.Status.Phase)
			assert.Equal(t, test.reason, step.Status.Reason)
			assert.Equal(t, test.grace, step.Grace)
		})
	}
}

func TestAPodMadeAgainIsCounted(t *testing.T) {
	step := Next(Observation{Shadow: shadowPod(remotev1alpha1.ShadowPodCreated), Live: true, Settled: true, Home: Away})
	assert.Equal(t, int32(1), step.Status.Restarts)
	assert.Equal(t, types.UID("pod"), step.Status.PodUID, "the pod that is gone is known until the next one is made")
}

func TestGrace(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(120))}}
	assert.Equal(t, int64(120), Grace(shadowPod(""), pod))
	assert.Equal(t, int64(30), Grace(shadowPod(""), &corev1.Pod{}))
	assert.Equal(t, int64(10), Grace(shadowPod("", grace(10)), pod))
	assert.Equal(t, int64(1), Grace(shadowPod("", grace(0)), pod))
}

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
	lease  podlease.State

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
		step := Next(Observation{Shadow: shadow, Pod: pod, Live: live, Home: w.home, Lease: w.lease, Settled: w.unsure == 0})
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
		case Count, Delete, Carry, Change:
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

// TestWalk lets an agent whose requests fail at random work on a ShadowPod, and checks after each
// tick what must always be true.
func TestWalk(t *testing.T) {
	policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever}
	for seed := range uint64(4000) {
		w := &world{random: rand.New(rand.NewPCG(seed, 1)), home: Away}
		policy := policies[w.random.IntN(2)]
		w.shadow = shadowPod("", func(s *remotev1alpha1.ShadowPod) { s.Spec.Pod.Spec.RestartPolicy = policy })
		lost, ends, made := false, false, 0
		if seed%2 == 0 {
			usesClaim(w.shadow)
		}
		check := func() {
			if w.shadow != nil {
				require.False(t, ends && w.made > made, "seed %d: a pod was made after it was ended for a silent home", seed)
				ends, made = ends || w.shadow.Status.Phase == remotev1alpha1.ShadowPodCreated && w.shadow.Status.Reason == ReasonHomeSilent, w.made
			}
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
			if w.random.IntN(8) == 0 {
				w.lease = []podlease.State{podlease.None, podlease.Listening, podlease.Held, podlease.Lapsed}[w.random.IntN(4)]
			}
			if w.random.IntN(10) == 0 {
				w.shadow.Generation++
			}
			if w.random.IntN(3) > 0 {
				w.cache = w.pod.DeepCopy()
			}
			w.agent(true)
			check()
		}
		// From here on nothing fails: the pod runs, or is lost. For a home that is silent none runs that uses claims.
		w.home, w.lease = Away, podlease.Held
		if seed%3 == 0 {
			w.lease = podlease.Lapsed
		}
		for range 3 * settle {
			w.tick()
			w.cache = w.pod.DeepCopy()
			w.agent(false)
			check()
		}
		phase := w.shadow.Status.Phase
		require.False(t, w.lease == podlease.Lapsed && UsesClaims(w.shadow) && w.pod != nil && w.pod.DeletionTimestamp == nil,
			"seed %d: a pod of a silent home runs", seed)
		require.Contains(t, []remotev1alpha1.ShadowPodPhase{remotev1alpha1.ShadowPodCreated, remotev1alpha1.ShadowPodLost}, phase, "seed %d",
			seed)
		if phase == remotev1alpha1.ShadowPodCreated {
			require.Equal(t, w.shadow.Generation, w.shadow.Status.ObservedGeneration, "seed %d", seed)
		}
		require.Equal(t, phase == remotev1alpha1.ShadowPodCreated, w.pod != nil && !slices.Contains(w.pod.Finalizers, keys.UnrecordedFinalizer),
			"seed %d", seed)

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
