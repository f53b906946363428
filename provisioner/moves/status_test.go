package moves

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	events "k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

func TestTheEndOfAMoveSaysWhatStays(t *testing.T) {
	says := func(phase v1alpha1.MovePhase, change func(*record.Record)) string {
		r := recordIn(phase)
		r.Why = "the move was aborted"
		change(r)
		return statusOf(steps.Observation{Move: &v1alpha1.VolumeMove{}, Record: r}, steps.Step{}).Message
	}
	const kept = "what the reclaim policy Retain keeps stays with its data, for an administrator to remove: real volume "
	at := "the claims have their volumes at the target"
	nothing := func(*record.Record) {}
	stays := func(r *record.Record) { r.Claims[0].Source.Stays = "pv-1" }
	assert.Equal(t, at+", and the copy at the source is gone", says(v1alpha1.MoveDone, nothing))
	assert.Equal(t, at+"; "+kept+"pv-1 in cluster home (claim data, source)", says(v1alpha1.MoveDone, stays))
	assert.NotContains(t, says(v1alpha1.MoveDone, func(r *record.Record) {
		stays(r)
		r.GivenUp = []record.End{record.Source}
	}), kept, "nothing was removed there")
	assert.Equal(t, "the move was aborted", says(v1alpha1.MoveAborted, nothing))
	assert.Equal(t, "the move was aborted; "+kept+"pv-3 in cluster home (claim data, snapshot), real volume pv-2 in cluster west (claim "+
		"data, target)", says(v1alpha1.MoveAborted, func(r *record.Record) {
		r.Claims[0].Target.Stays = "pv-2"
		r.Claims[0].Snapshot = &record.Snapshot{Copy: record.Copy{Ref: r.Claims[0].Source.Ref, Stays: "pv-3"}}
	}))
}

func TestAnAbortThatCameTooLateIsSaidToHave(t *testing.T) {
	move := &v1alpha1.VolumeMove{Spec: v1alpha1.VolumeMoveSpec{Action: v1alpha1.ActionAbort}}
	says := func(phase v1alpha1.MovePhase, step steps.Step) string {
		return statusOf(steps.Observation{Move: move, Record: recordIn(phase)}, step).Message
	}
	assert.Equal(t, "the abort came too late, for the move was committed; the copy is kept", says(v1alpha1.MoveRetain,
		steps.Step{Say: "the copy is kept"}))
	assert.Equal(t, "the abort came too late, for the move was committed", says(v1alpha1.MoveCommit, steps.Step{}))
	assert.Equal(t, "pods end", says(v1alpha1.MoveQuiesce, steps.Step{Say: "pods end"}))
}

func TestWhatOthersSayOfAMoveIsOneBoundedLineWhereverItIsShown(t *testing.T) {
	hostile := "a\x1b[2J\nb " + strings.Repeat("x", 100<<10)
	first := recordIn(v1alpha1.MovePrepare)
	first.Began = map[v1alpha1.MovePhase]time.Time{}
	refused, err := refusedRecord(first, refuse("cluster west gives no place: %s", hostile))
	require.NoError(t, err)
	assert.LessOrEqual(t, len(refused.Why), steps.LongestText)
	back := recordIn(v1alpha1.MoveFailed)
	back.Why = hostile
	for _, r := range []*record.Record{refused, back} {
		status := statusOf(steps.Observation{Move: &v1alpha1.VolumeMove{}, Record: r}, steps.Step{})
		texts := []string{status.Message}
		for _, condition := range status.Conditions {
			texts = append(texts, condition.Message)
		}
		assert.Len(t, texts, 4)
		for _, text := range texts {
			assert.LessOrEqual(t, len(text), longest)
			assert.NotContains(t, text, "\x1b")
			assert.NotContains(t, text, "\n")
		}
	}
}

func TestAMoveThatGoesBackSaysWhyOnce(t *testing.T) {
	r := recordIn(v1alpha1.MoveRollBack)
	r.Why = "the move was aborted"
	for say, want := range map[string]string{
		"the move was aborted":            "the move was aborted",
		"":                                "the move was aborted",
		"waiting until the mover is gone": "the move was aborted: waiting until the mover is gone",
	} {
		assert.Equal(t, want, statusOf(steps.Observation{Move: &v1alpha1.VolumeMove{}, Record: r}, steps.Step{Say: say}).Message)
	}
}

func TestTheStatusOfAMoveTellsWhichSpecItIsOf(t *testing.T) {
	move := &v1alpha1.VolumeMove{}
	for generation := range int64(3) {
		move.Generation = generation + 1
		o := steps.Observation{Move: move, Record: recordIn(v1alpha1.MovePreCopy)}
		next := statusOf(o, steps.Step{Action: steps.MakeTarget{}})
		assert.Equal(t, move.Generation, next.ObservedGeneration)
		require.NotEmpty(t, next.Conditions)
		for _, condition := range next.Conditions {
			assert.Equal(t, move.Generation, condition.ObservedGeneration, condition.Type)
		}
		move.Status = next
		assert.Equal(t, next, statusOf(o, steps.Step{Action: steps.MakeTarget{}}), "nothing is to be written again")
	}
}

func TestAMoveTellsOfMountOptionsThatAreLostAtItsTarget(t *testing.T) {
	for name, test := range map[string]struct {
		cluster string
		real    []string
		told    bool
	}{
		"the real volume there has none": {cluster: "west", told: true},
		"it has the same":                {cluster: "west", real: []string{"noatime"}},
		"home mounts with those":         {cluster: "home"},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			r := recordIn(v1alpha1.MoveRetain)
			r.Target.Cluster = test.cluster
			claim := steps.Claim{
				Claim:  &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}},
				Volume: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: "lodestone", MountOptions: []string{"noatime"}}},
				Target: steps.Side{
					Backing: &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")}},
					Real:    &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{MountOptions: test.real}},
				},
			}
			(&Controller{Config: Config{Recorder: recorder}}).reportPhase(
				steps.Observation{Move: &v1alpha1.VolumeMove{}, Record: r, Claims: []steps.Claim{claim}},
				v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveRetain})
			assert.Contains(t, <-recorder.Events, "Normal Retain")
			assert.Contains(t, <-recorder.Events, "Normal VolumeMoved")
			if !test.told {
				assert.Empty(t, recorder.Events)
				return
			}
			require.Len(t, recorder.Events, 1)
			assert.Contains(t, <-recorder.Events,
				`Warning MountOptionsIgnored mount options "noatime" of storage class "lodestone" have no effect in cluster west`)
		})
	}
}

func TestAMoveThatHasLetGoDoesNotTellAgainWhereTheDataIs(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := recordIn(v1alpha1.MoveRetain)
	r.Freed = true
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	(&Controller{Config: Config{Recorder: recorder}}).reportPhase(
		steps.Observation{Move: &v1alpha1.VolumeMove{}, Record: r, Claims: []steps.Claim{{Claim: claim}}},
		v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveRetain})
	assert.Contains(t, <-recorder.Events, "Normal Retain")
	assert.Empty(t, recorder.Events, "another move may have moved it on")
}

func TestWhatAMoveWaitsForIsToldOnce(t *testing.T) {
	var w waiting
	now := time.Now()
	waits := steps.Step{Say: "x"}
	status := v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveProvision, Message: "waiting for x"}
	assert.False(t, w.isDue(now, waits, status))
	assert.False(t, w.isDue(now.Add(waitingEventAfter-time.Second), waits, status))
	assert.True(t, w.isDue(now.Add(waitingEventAfter), waits, status))
	assert.False(t, w.isDue(now.Add(2*waitingEventAfter), waits, status), "it was told")
	status.Message = "waiting for y"
	assert.False(t, w.isDue(now.Add(3*waitingEventAfter), waits, status))
	assert.True(t, w.isDue(now.Add(4*waitingEventAfter), waits, status))
}

func TestTheStatusSaysThatAKeptCopyIsWrittenTo(t *testing.T) {
	r := recordIn(v1alpha1.MoveProvision)
	r.Claims[0].Kept = &record.Kept{Name: "there", Snapshot: "VolumeSnapshot n/s"}
	said := func() string {
		var next v1alpha1.VolumeMoveStatus
		conditions(r, &next)
		return meta.FindStatusCondition(next.Conditions, v1alpha1.MoveAccepted).Message
	}
	r.Claims[0].Target.Ref.UID = ""
	assert.Empty(t, said(), "it was not taken yet")
	r.Claims[0].Target.Ref.UID = "kept"
	assert.Contains(t, said(), "the copy of claim data that VolumeMove there kept is written to, and is no longer one to fall back on "+
		"(as it was it is in VolumeSnapshot n/s")
	r.Phase = v1alpha1.MoveCommit
	assert.Empty(t, said(), "both copies are the same")
}
