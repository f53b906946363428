package flow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

func TestTheConditionIsWrittenBesideThoseOfOthers(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1"}}
	resizing := corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue}
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{resizing}
	client, events := fake.NewClientset(claim), record.NewFakeRecorder(9)
	f := New(Config{Client: client, Recorder: events})
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	wrong := corev1.PersistentVolumeClaimCondition{Type: keys.VolumeTrouble, Status: corev1.ConditionTrue, Reason: "ClusterNotUsable", Message: "it is away", LastProbeTime: now, LastTransitionTime: now}
	o := decide.Observation{UID: "u1", Now: now.Time, Claim: claim}
	conditions := func() []corev1.PersistentVolumeClaimCondition {
		now, err := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, err)
		for i := range now.Status.Conditions {
			c := &now.Status.Conditions[i]
			c.LastProbeTime, c.LastTransitionTime = metav1.NewTime(c.LastProbeTime.Local()), metav1.NewTime(c.LastTransitionTime.Local())
		}
		return now.Status.Conditions
	}

	require.NoError(t, f.show(t.Context(), o, decide.Step{Condition: &wrong}, outcome{}).err)
	got := conditions()
	require.Len(t, got, 2)
	assert.ElementsMatch(t, []string{"Resizing ", keys.VolumeTrouble + " ClusterNotUsable"}, []string{string(got[0].Type) + " " + got[0].Reason, string(got[1].Type) + " " + got[1].Reason})
	assert.Equal(t, "Warning ClusterNotUsable it is away", <-events.Events)

	require.NoError(t, f.show(t.Context(), o, decide.Step{}, outcome{}).err)
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

// Ten thousand claims lose their cluster together.
func TestClaimsThatComeToHarmTogetherAreNotWrittenTogether(t *testing.T) {
	s := newShows()
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
	assert.GreaterOrEqual(t, written, showBurst)
	assert.Less(t, written, claims/10)
	assert.Greater(t, longest, claims/showRate/2*time.Second, "the last come again when it is their turn")
	assert.Zero(t, s.turn("mended", false), "what is over waits for none of them")

	waiting := len(s.waiting)
	s.drop(types.UID(time.Duration(claims - 1).String()))
	assert.Len(t, s.waiting, waiting-1)
}

// A program that has just started knows since when a claim wishes something, not less.
func TestAWishIsAsOldAsItIsTheSame(t *testing.T) {
	m, now := newMemory(), time.Now()
	assert.Equal(t, now, m.wishedSince("u1", "reason A", now))
	assert.Equal(t, now, m.wishedSince("u1", "reason A", now.Add(time.Minute)))
	assert.Equal(t, now.Add(time.Hour), m.wishedSince("u1", "reason B", now.Add(time.Hour)))
	assert.Zero(t, m.wishedSince("u1", "", now))
	assert.Empty(t, m.wishes)
}
