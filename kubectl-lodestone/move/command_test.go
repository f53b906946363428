package move

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func moveIn(phase v1alpha1.MovePhase, conditions ...metav1.Condition) *v1alpha1.VolumeMove {
	return &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-x"},
		Spec: v1alpha1.VolumeMoveSpec{Claims: []string{"data"}, Action: v1alpha1.ActionMove,
			KeepSourceFor: &metav1.Duration{Duration: time.Hour}},
		Status: v1alpha1.VolumeMoveStatus{Phase: phase, Conditions: conditions},
	}
}

func is(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Message: message}
}

func TestALineSaysHowFarAMoveIs(t *testing.T) {
	copying := moveIn(v1alpha1.MovePreCopy)
	copying.Status.Claims = []v1alpha1.MovedClaim{
		{Name: "data", Pass: 1, Bytes: 1 << 30, BytesTotal: 3 << 30, Rate: 100 << 20},
		{Name: "log", Pass: 2, Bytes: 1 << 30, BytesTotal: 1 << 30, Rate: 0},
	}
	assert.Equal(t, "PreCopy, pass 2 [############............]  50 %  2.0 GiB of 4.0 GiB  100.0 MiB/s  20s left",
		progressLine(copying, time.Time{}))

	waiting := moveIn(v1alpha1.MoveQuiesce)
	waiting.Status.Message = "pod db-0 ends"
	assert.Equal(t, "Quiesce         pod db-0 ends", progressLine(waiting, time.Time{}))
	fresh := moveIn("")
	fresh.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
	assert.Equal(t, "waiting for the provisioner to begin the move", progressLine(fresh, time.Unix(1030, 0)))
	assert.Equal(t, "waiting for the provisioner to begin the move: see whether it runs (kubectl get pods -n lodestone-system)",
		progressLine(fresh, time.Unix(1031, 0)))

	unknown := moveIn(v1alpha1.MoveFinalSync)
	unknown.Status.Claims = []v1alpha1.MovedClaim{{Name: "data"}}
	assert.Equal(t, "FinalSync", progressLine(unknown, time.Time{}), "nothing is divided by a total that is not known")

	more := moveIn(v1alpha1.MoveFinalSync)
	more.Status.Claims = []v1alpha1.MovedClaim{{Name: "data", Bytes: 30, BytesTotal: 20, Rate: 1}}
	assert.Equal(t, "FinalSync       [########################] 100 %  30 B of 20 B  1 B/s", progressLine(more, time.Time{}),
		"files may grow while they are counted")
}

func TestWhenAMoveIsOver(t *testing.T) {
	committed := is(v1alpha1.MoveCommitted, metav1.ConditionTrue, "")
	for name, row := range map[string]struct {
		move *v1alpha1.VolumeMove
		want outcome
		why  string
	}{
		"not taken up":              {moveIn(""), going, ""},
		"copying":                   {moveIn(v1alpha1.MovePreCopy), going, ""},
		"committed, pods not freed": {moveIn(v1alpha1.MoveResume, committed), going, ""},
		"done, source kept":         {moveIn(v1alpha1.MoveRetain, committed), moved, ""},
		"done":                      {moveIn(v1alpha1.MoveDone, committed), moved, ""},
		"forbidden": {moveIn(v1alpha1.MoveFailed, is(v1alpha1.MoveAccepted, metav1.ConditionFalse, "the class says no")), refused,
			"the class says no"},
		"failed":  {moveIn(v1alpha1.MoveFailed, is(v1alpha1.MoveAccepted, metav1.ConditionTrue, "")), failed, ""},
		"aborted": {moveIn(v1alpha1.MoveAborted), failed, ""},
	} {
		state, why := outcomeOf(row.move)
		assert.Equal(t, row.want, state, name)
		assert.Equal(t, row.why, why, name)
	}
}

func TestTheReportSaysWhatCameOfAMove(t *testing.T) {
	move := moveIn(v1alpha1.MoveRetain)
	move.Status.Target = &v1alpha1.MovePlace{Cluster: "west"}
	move.Status.Downtime = &metav1.Duration{Duration: 1234 * time.Millisecond}
	assert.Equal(t, "claim data is now in cluster west; pods could not use it for 1.23s; the copy at the source is kept for 1h (kubectl "+
		"lodestone move finalize data-x -n shop removes it now)", report(move))
	move.Status.Phase = v1alpha1.MoveDone
	assert.Equal(t, "claim data is now in cluster west; pods could not use it for 1.23s", report(move))
}

func asked(move *v1alpha1.VolumeMove, action v1alpha1.MoveAction) *v1alpha1.VolumeMove {
	move.Spec.Action = action
	return move
}

// failedOverMove is a move as that of a failover.
func failedOverMove(move *v1alpha1.VolumeMove) *v1alpha1.VolumeMove {
	move.Spec.Failover = &v1alpha1.MoveFailover{Replica: "data-west"}
	return move
}

func TestWhatCannotBeAskedOfAMove(t *testing.T) {
	committed := is(v1alpha1.MoveCommitted, metav1.ConditionTrue, "")
	for name, row := range map[string]struct {
		move    *v1alpha1.VolumeMove
		action  v1alpha1.MoveAction
		problem string
	}{
		"abort while it copies":       {moveIn(v1alpha1.MovePreCopy), v1alpha1.ActionAbort, ""},
		"abort before it is begun":    {moveIn(""), v1alpha1.ActionAbort, ""},
		"abort what is committed":     {moveIn(v1alpha1.MoveRetain, committed), v1alpha1.ActionAbort, "committed"},
		"abort what is being swapped": {moveIn(v1alpha1.MoveCommit), v1alpha1.ActionAbort, "committed"},
		"abort what failed":           {moveIn(v1alpha1.MoveFailed), v1alpha1.ActionAbort, "is over"},
		"finalize what copies":        {moveIn(v1alpha1.MovePreCopy), v1alpha1.ActionFinalize, "only copy that counts"},
		"finalize what is kept":       {moveIn(v1alpha1.MoveRetain, committed), v1alpha1.ActionFinalize, ""},
		"finalize what is done":       {moveIn(v1alpha1.MoveDone, committed), v1alpha1.ActionFinalize, "is over"},
		"finalize what was aborted too late": {asked(moveIn(v1alpha1.MoveRetain, committed), v1alpha1.ActionAbort), v1alpha1.ActionFinalize,
			"move data-x was asked for Abort already, which cannot be taken back: kubectl delete volumemove data-x -n shop removes the copy at " +
				"the source once its pods are ready"},
		"finalize a failover that was aborted too late": {failedOverMove(asked(moveIn(v1alpha1.MoveRetain, committed), v1alpha1.ActionAbort)),
			v1alpha1.ActionFinalize, "ends it, and leaves the volume that the claim had for you to remove"},
		"abort what was given up": {asked(moveIn(v1alpha1.MovePreCopy), v1alpha1.ActionGiveUp), v1alpha1.ActionAbort,
			"move data-x was asked for GiveUp already, which cannot be taken back: kubectl lodestone move status data-x -n shop shows how far " +
				"that is"},
		"give up what was aborted": {asked(moveIn(v1alpha1.MovePreCopy), v1alpha1.ActionAbort), v1alpha1.ActionGiveUp, ""},
	} {
		problem := whyForbidden(row.move, row.action)
		if row.problem == "" {
			assert.Empty(t, problem, name)
		} else {
			assert.Contains(t, problem, row.problem, name)
		}
	}
}

func TestTheFlagsBecomeAVolumeMove(t *testing.T) {
	o := newOptions()
	o.Cluster, o.Bandwidth, o.TTL = "west", "50Mi", -1
	move, err := o.object("shop", "data", "log")
	require.NoError(t, err)
	assert.Equal(t, "data-", move.GenerateName)
	assert.Equal(t, []string{"data", "log"}, move.Spec.Claims)
	assert.EqualValues(t, 50<<20, move.Spec.BandwidthLimit.Value())
	assert.Nil(t, move.Spec.TTLSecondsAfterFinished)
	assert.Equal(t, v1alpha1.OfflineForbid, move.Spec.Offline, "nobody's pods stand still for long unless that is asked for")
	o.Offline = true
	move, err = o.object("shop", "data")
	require.NoError(t, err)
	assert.Equal(t, v1alpha1.OfflineAllow, move.Spec.Offline)
}

func TestMovesAreListedWithTheLatestLast(t *testing.T) {
	now := time.Now()
	newer, older := *moveIn(v1alpha1.MovePreCopy), *moveIn(v1alpha1.MoveDone)
	older.Name, older.Spec.Target.Node = "older", "home-1"
	newer.Spec.Target.Cluster = "west"
	newer.CreationTimestamp, older.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute)), metav1.NewTime(now.Add(-time.Hour))
	var out bytes.Buffer
	require.NoError(t, table(&out, []v1alpha1.VolumeMove{newer, older}, false, false, now))
	assert.Equal(t, "NAME     CLAIMS   TARGET   AGE   STATE\nolder    data     home-1   60m   Done\ndata-x   data     west     "+
		"60s   PreCopy\n", out.String())
}
