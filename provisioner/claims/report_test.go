package claims

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

func TestVolumesInTroubleAreCountedOnceAndNoLongerThanTheyAre(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	count := func() map[string]float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		counted := map[string]float64{}
		for _, family := range families {
			if family.GetName() != "lodestone_provisioner_volumes_in_trouble" {
				continue
			}
			for _, metric := range family.GetMetric() {
				counted[metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue()] = metric.GetGauge().GetValue()
			}
		}
		return counted
	}
	west := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: "west/shop/data/b1"}}}
	seen := func(claim types.UID, volume *corev1.PersistentVolume, phase corev1.PersistentVolumeClaimPhase, step steps.Step) {
		o := steps.Observation{UID: claim, Volume: volume}
		if phase != "" {
			o.Backings = []steps.Backing{{Cluster: "west", Claim: &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{UID: "b1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}}}
		}
		m.observe(o, step)
	}
	lost, missing := steps.Step{Trouble: "BackingLost"}, steps.Step{Trouble: "BackingMissing"}
	seen("u1", west, corev1.ClaimBound, steps.Step{})
	assert.Empty(t, count())
	seen("u1", west, corev1.ClaimLost, lost)
	seen("u1", west, corev1.ClaimLost, lost)
	seen("u2", west, corev1.ClaimLost, lost)
	assert.Equal(t, map[string]float64{"west BackingLost": 2}, count())
	seen("u5", west, corev1.ClaimBound, steps.Step{Trouble: decide.BackingNodeGone})
	assert.Equal(t, []types.UID{"u5"}, m.troubled("west", decide.BackingNodeGone))
	seen("u5", nil, "", steps.Step{})
	assert.Empty(t, m.troubled("west", decide.BackingNodeGone))
	seen("u1", west, "", missing)
	assert.Equal(t, map[string]float64{"west BackingLost": 1, "west BackingMissing": 1, "west BackingNodeGone": 0}, count())
	seen("u1", west, "", steps.Step{Unknown: true})
	assert.Equal(t, map[string]float64{"west BackingLost": 1, "west BackingMissing": 1, "west BackingNodeGone": 0}, count(),
		"what was known holds while nothing is")

	seen("u3", west, corev1.ClaimBound, steps.Step{})
	seen("u4", west, corev1.ClaimPending, steps.Step{})
	assert.Nil(t, m.Health("west", 5), "one was not seen yet")
	assert.Equal(t, &v1alpha1.VolumeHealth{Bound: 1, Pending: 1, Troubles: []v1alpha1.VolumeTrouble{{Reason: "BackingLost", Volumes: 1},
		{Reason: "BackingMissing", Volumes: 1}}}, m.Health("west", 4))
	assert.Equal(t, &v1alpha1.VolumeHealth{}, m.Health("east", 0))

	seen("u1", nil, "", steps.Step{Unknown: true})
	seen("u2", west, corev1.ClaimBound, steps.Step{})
	assert.Equal(t, map[string]float64{"west BackingLost": 0, "west BackingMissing": 0, "west BackingNodeGone": 0}, count())
	assert.Equal(t, &v1alpha1.VolumeHealth{Bound: 2, Pending: 1}, m.Health("west", 3))
}

func TestTheTroubleOfAVolumeThatNobodySeesIsCountedBesideWhatWasKnown(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	west := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: "west/shop/data/b1"}}}
	away := steps.Step{Unknown: true, Trouble: "ClusterNotUsable"}
	m.observe(steps.Observation{UID: "u1", Volume: west, Backings: []steps.Backing{{Cluster: "west", Claim: &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{UID: "b1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}}}}, steps.Step{})
	m.observe(steps.Observation{UID: "u1", Volume: west}, away)
	wrong := []v1alpha1.VolumeTrouble{{Reason: "ClusterNotUsable", Volumes: 1}}
	assert.Equal(t, &v1alpha1.VolumeHealth{Bound: 1, Troubles: wrong}, m.Health("west", 1), "it was bound")

	m.observe(steps.Observation{UID: "u2", Volume: west}, away)
	assert.Nil(t, m.Health("west", 2), "of one nobody knows")
	m.observe(steps.Observation{UID: "u2"}, steps.Step{Trouble: "BackingPending", TroubleIn: "west"})
	wrong = append([]v1alpha1.VolumeTrouble{{Reason: "BackingPending", Volumes: 1}}, wrong...)
	assert.Equal(t, &v1alpha1.VolumeHealth{Bound: 1, Troubles: wrong}, m.Health("west", 1),
		"a claim without a volume is not one of its volumes")
}

func leftInWest(name string) *leftover {
	return &leftover{cluster: "west", home: "shop", at: types.NamespacedName{Namespace: "shop-home", Name: name}}
}

func TestWhatIsLeftBehindIsCountedWhileItIsThere(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	l := m.leftovers
	count := func() float64 { return testutil.ToFloat64(l.gauge.WithLabelValues("west")) }
	assert.False(t, l.note("u1", nil))
	assert.True(t, l.note("u1", leftInWest("a")), "it is new once")
	assert.False(t, l.note("u1", leftInWest("a")))
	assert.True(t, l.note("u2", leftInWest("b")))
	assert.InDelta(t, 2, count(), 0)
	assert.False(t, l.note("u1", nil))
	assert.InDelta(t, 1, count(), 0)
}

func TestWhatIsLeftBehindIsToldTogether(t *testing.T) {
	l, now := newLeftovers(promauto.With(nil)), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	assert.Empty(t, l.summary("west", now))
	l.note("u0", leftInWest("data-0"))
	assert.Equal(t, "1 real claim is in cluster west with data, and no volume at home stands for it: shop-home/data-0; "+
		"kubectl lodestone import pvc data-0 -n shop --cluster west --remote-context CONTEXT --class CLASS gives it a claim again, with the "+
		"kubeconfig context of west and a virtual storage class; "+
		"to be rid of it, take finalizer lodestone.dev/backing off and then delete it there", l.summary("west", now))
	assert.Empty(t, l.summary("west", now), "nothing is new")
	for i := range 9 {
		l.note(types.UID(fmt.Sprint("u", i+1)), leftInWest(fmt.Sprint("data-", i+1)))
	}
	text := l.summary("west", now)
	assert.Contains(t, text, "10 real claims are in cluster west with data, and no volume at home stands for them: shop-home/data-9, "+
		"shop-home/data-8, shop-home/data-7, and 7 more, which the log of the provisioner names; ")
	assert.Contains(t, text, "import pvc data-9 -n shop --cluster west")
	assert.Empty(t, l.summary("east", now))

	l.note("u1", nil)
	assert.Empty(t, l.summary("west", now), "that one went is no news")
	nameless := leftInWest("x")
	nameless.home = ""
	l.note("u1", nameless)
	assert.Contains(t, l.summary("west", now), "import pvc x -n NAMESPACE --cluster west", "another came, and does not say whose it is")
}

func TestEverMoreThatIsLeftBehindIsToldEverMoreSeldom(t *testing.T) {
	l, now := newLeftovers(promauto.With(nil)), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	begin, told := now, 0
	for i := range 1000 {
		l.note(types.UID(fmt.Sprint("u", i)), leftInWest("data"))
		if now.Sub(begin) > 2*time.Hour {
			break
		}
		now = now.Add(l.pause("west", now))
		require.NotEmpty(t, l.summary("west", now))
		told++
	}
	assert.Less(t, told, 25, "what client-go lets through at once")
	assert.Equal(t, leftSeldom, l.pause("west", now))
	assert.Equal(t, leftSoon, l.pause("west", now.Add(leftRest+time.Second)), "later it begins anew")
	assert.Equal(t, leftSoon, l.pause("east", now), "each cluster for itself")
}

func TestTheConditionIsWrittenBesideThoseOfOthers(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1"}}
	resizing := corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue}
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{resizing}
	client, events := fake.NewClientset(claim), record.NewFakeRecorder(9)
	f := New(Config{Client: client, Recorder: events})
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	wrong := corev1.PersistentVolumeClaimCondition{Type: keys.VolumeTrouble, Status: corev1.ConditionTrue, Reason: "ClusterNotUsable",
		Message: "it is away", LastProbeTime: now, LastTransitionTime: now}
	o := steps.Observation{UID: "u1", Now: now.Time, Claim: claim}
	conditions := func() []corev1.PersistentVolumeClaimCondition {
		now, err := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, err)
		for i := range now.Status.Conditions {
			c := &now.Status.Conditions[i]
			c.LastProbeTime, c.LastTransitionTime = metav1.NewTime(c.LastProbeTime.Local()), metav1.NewTime(c.LastTransitionTime.Local())
		}
		return now.Status.Conditions
	}

	require.NoError(t, f.showTrouble(t.Context(), o, steps.ShowTrouble{Condition: &wrong}, steps.Step{}).err)
	got := conditions()
	require.Len(t, got, 2)
	assert.ElementsMatch(t, []string{"Resizing ", keys.VolumeTrouble + " ClusterNotUsable"},
		[]string{string(got[0].Type) + " " + got[0].Reason, string(got[1].Type) + " " + got[1].Reason})
	assert.Equal(t, "Warning ClusterNotUsable it is away", <-events.Events)

	require.NoError(t, f.showTrouble(t.Context(), o, steps.ShowTrouble{}, steps.Step{}).err)
	got = conditions()
	require.Len(t, got, 1)
	assert.Equal(t, resizing.Type, got[0].Type)
	for _, action := range client.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			assert.Equal(t, "status", patch.GetSubresource())
			assert.Equal(t, types.StrategicMergePatchType, patch.GetPatchType())
			assert.Contains(t, string(patch.GetPatch()), `"uid":"u1"`)
		}
	}
}

// Ten thousand claims lose their cluster at the same time.
func TestClaimsThatComeToHarmTogetherAreNotWrittenTogether(t *testing.T) {
	s := newConditionWrites()
	const claims = 10_000
	written := 0
	var longest time.Duration
	for i := range claims {
		switch later := s.turn(types.UID(time.Duration(i).String()), true); later {
		case 0:
			written++
		default:
			longest = max(longest, later)
		}
	}
	assert.GreaterOrEqual(t, written, conditionBurst)
	assert.Less(t, written, claims/10)
	assert.Greater(t, longest, claims/conditionRate/2*time.Second, "the last come again when it is their turn")
	assert.Zero(t, s.turn("mended", false), "what is over waits for none of them")

	waiting := len(s.waiting)
	s.drop(types.UID(time.Duration(claims - 1).String()))
	assert.Len(t, s.waiting, waiting-1)
}

// The time counts from when this process first observed the pending condition; it starts
// again when the condition changes.
func TestAWishIsAsOldAsItIsTheSame(t *testing.T) {
	m, now := newMemory(), time.Now()
	assert.Equal(t, now, m.since("u1", pendingCondition, "reason A", now))
	assert.Equal(t, now, m.since("u1", pendingCondition, "reason A", now.Add(time.Minute)))
	assert.Equal(t, now.Add(time.Hour), m.since("u1", pendingCondition, "reason B", now.Add(time.Hour)))
	assert.Zero(t, m.since("u1", pendingCondition, "", now))
	assert.Empty(t, m.claims)
}
