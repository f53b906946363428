package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// runsAtHome is a pod of a claim in a record.
var runsAtHome = proof.Pod{UID: "p1", Name: "db-0", Node: homeNode.Name, Grace: 30}

// forcedIn returns the observation in a phase after a pod of the record has gone without
// being observed to end, and after the step for that was taken.
func forcedIn(t *testing.T, phase v1alpha1.MovePhase) steps.Observation {
	t.Helper()
	o := in(phase)
	o.Margin = time.Minute
	o.Record.Claims[0].Settled = true
	if phase == v1alpha1.MoveFinalSync || phase == v1alpha1.MoveVerifying {
		o.Record.Stalled = o.Now // there are no movers
	}
	o.Record.Pods = []proof.Pod{runsAtHome}
	noted := decide.Next(o)
	require.Equal(t, "Save", noted.Verb())
	require.Equal(t, o.Now, noted.Saved().Pods[0].Gone)
	o.Record = touchEvery(t, noted.Saved())
	return o
}

// touchEvery is a record as a restarted provisioner reads it.
func touchEvery(t *testing.T, r *record.Record) *record.Record {
	t.Helper()
	data, err := record.Encode(r)
	require.NoError(t, err)
	read, err := record.Decode(data)
	require.NoError(t, err)
	return read
}

func TestAPodThatWasDeletedByForceMayWriteForItsGracePeriod(t *testing.T) {
	o := forcedIn(t, v1alpha1.MoveFence)
	began := o.Now
	waits := decide.Next(o)
	require.Equal(t, "Idle", waits.Verb())
	for _, says := range []string{"pod db-0", "node home-1", "30s", "1m0s", "until " + began.Add(90*time.Second).UTC().Format(time.RFC3339)} {
		assert.Contains(t, waits.Say, says)
	}
	o.Now = began.Add(89 * time.Second)
	assert.Equal(t, waits, decide.Next(o), "what it says stays the same")
	late := o
	late.Now = began.Add(90 * time.Second)
	step := decide.Next(late)
	require.Equal(t, "Save", step.Verb())
	assert.Empty(t, step.Saved().Pods)
	late.Record = step.Saved()
	assert.Equal(t, "DeleteVolume", decide.Next(late).Verb())

	abort := o
	abort.Move = o.Move.DeepCopy()
	abort.Move.Spec.Action = v1alpha1.ActionAbort
	assert.Equal(t, v1alpha1.MoveRollBack, decide.Next(abort).Saved().Phase)
	abort.Record = decide.Next(abort).Saved()
	assert.NotContains(t, decide.Next(abort).Say, "db-0", "who goes back does not wait for it")
}

func TestTheTimeOfAPodThatIsGoneCountsOnlyWhileItsNodeIsReady(t *testing.T) {
	o := forcedIn(t, v1alpha1.MoveFence)
	o.Now = o.Now.Add(80 * time.Second)
	o.Nodes = map[proof.Node]proof.Absence{homeNode: {Why: "the node is not ready"}}
	step := decide.Next(o)
	require.Equal(t, "Save", step.Verb())
	require.True(t, step.Saved().Pods[0].Gone.IsZero())
	o.Record = step.Saved()
	o.Now = o.Now.Add(time.Hour)
	assert.Contains(t, decide.Next(o).Say, "nobody writes on node home-1")
	assert.Equal(t, steps.NodeAway, decide.Next(o).Need)

	o.Nodes = nil
	step = decide.Next(o)
	require.Equal(t, "Save", step.Verb())
	require.Equal(t, o.Now, step.Saved().Pods[0].Gone)
	o.Record = step.Saved()
	o.Now = o.Now.Add(89 * time.Second)
	assert.Contains(t, decide.Next(o).Say, "pod db-0")
	o.Now = o.Now.Add(-time.Hour)
	assert.Equal(t, o.Now, decide.Next(o).Saved().Pods[0].Gone, "the clock was set back")
}

func TestAPodOfARemoteClusterIsRememberedToo(t *testing.T) {
	there := proof.Node{Cluster: "west", Name: "west-1"}
	o := in(v1alpha1.MoveFence)
	o.Margin = time.Minute
	o.Record.Pods = []proof.Pod{{Cluster: "west", UID: "p1", Name: "db-0", Node: "west-1", Grace: 30}}
	// While its cluster takes no requests it is unknown whether the pod exists.
	o.Source.Unusable = "west does not answer"
	assert.Contains(t, decide.Next(o).Say, "west does not answer")
	o.Now = o.Now.Add(time.Hour)
	o.Source.Unusable = ""
	step := decide.Next(o)
	require.Equal(t, o.Now, step.Saved().Pods[0].Gone)
	o.Record = step.Saved()
	assert.Contains(t, decide.Next(o).Say, "pod db-0, which may still write on node west-1 of west")
	o.Nodes = map[proof.Node]proof.Absence{there: {Why: "the node is not ready"}}
	o.Record = decide.Next(o).Saved()
	assert.True(t, o.Record.Pods[0].Gone.IsZero())
	assert.Contains(t, decide.Next(o).Say, "nobody writes on node west-1 of west")
	o.Nodes = map[proof.Node]proof.Absence{there: {Off: true}}
	o.Record = decide.Next(o).Saved()
	assert.Empty(t, o.Record.Pods)
	assert.Equal(t, "DeleteVolume", decide.Next(o).Verb())
}

func TestAPodThatIsKnownToHaveEndedIsNotWaitedFor(t *testing.T) {
	for name, know := range map[string]func(*steps.Observation){
		"it was seen to end":              func(o *steps.Observation) { o.Ended = map[types.UID]bool{"p1": true} },
		"its node is gone or said so off": func(o *steps.Observation) { o.Nodes = map[proof.Node]proof.Absence{homeNode: {Off: true}} },
	} {
		for _, noticed := range []bool{false, true} {
			o := in(v1alpha1.MoveFence)
			if noticed {
				o = forcedIn(t, v1alpha1.MoveFence)
			}
			o.Record.Pods = []proof.Pod{runsAtHome}
			know(&o)
			step := decide.Next(o)
			require.Equal(t, "Save", step.Verb(), name)
			o.Record = step.Saved()
			assert.Equal(t, "DeleteVolume", decide.Next(o).Verb(), name)
		}
	}
	other := forcedIn(t, v1alpha1.MoveFence)
	other.Ended = map[types.UID]bool{"p2": true}
	assert.Equal(t, "Idle", decide.Next(other).Verb(), "a successor of its name is another pod")
}

func TestAPodThatWasGoneBeforeItsMoveSawItIsWaitedForToo(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MovePrepare, v1alpha1.MovePreCopy, v1alpha1.MoveFence} {
		o := in(phase)
		o.Unended = []proof.Pod{runsAtHome}
		step := decide.Next(o)
		require.Equal(t, "Save", step.Verb(), "%s", phase)
		require.Len(t, step.Saved().Pods, 1)
		assert.Equal(t, o.Now, step.Saved().Pods[0].Gone)
		o.Record = step.Saved()
		assert.NotEqual(t, "Save", decide.Next(o).Verb(), "%s: it is not noted again", phase)
	}
}

func TestNothingIsStoppedWhileAPodThatIsGoneMayRun(t *testing.T) {
	for _, offline := range []bool{false, true} {
		o := forcedIn(t, v1alpha1.MovePreCopy)
		running := movers.State{Exists: true, Running: true}
		o.Record.Claims[0].Offline = offline
		with := single(v1alpha1.MoveFinalSync)
		o.Claims[0].Source.Mover, o.Claims[0].Target, o.Claims[0].Copy = running, with.Claims[0].Target, with.Claims[0].Copy
		step := decide.Next(o)
		require.Equal(t, "Idle", step.Verb())
		assert.Contains(t, step.Say, "pod db-0")
		o.Now = o.Now.Add(2 * time.Minute)
		o.Record = decide.Next(o).Saved()
		assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(o).Saved().Phase)
	}
}

func TestAPodThatGoesByForceInTheStopHasAllCopiedOnceMore(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying} {
		o := forcedIn(t, phase)
		noted := decide.Next(o)
		require.Equal(t, "Save", noted.Verb())
		require.True(t, noted.Saved().Intruded)
		o.Record = noted.Saved()
		require.Contains(t, decide.Next(o).Say, "pod db-0")
		o.Now = o.Now.Add(2 * time.Minute)
		o.Record = decide.Next(o).Saved()
		require.Empty(t, o.Record.Pods)
		step := decide.Next(o)
		assert.Equal(t, v1alpha1.MoveFinalSync, step.Saved().Phase)
		assert.Equal(t, o.Record.Claims[0].Try+1, step.Saved().Claims[0].Try)
	}
}

func TestARecordHasRoomForItsPods(t *testing.T) {
	many := func(n int, of string) (pods []proof.Pod) {
		for i := range n {
			pods = append(pods, proof.Pod{UID: types.UID(fmt.Sprintf("%s%035d", of, i)), Name: strings.Repeat("p", 253),
				Node: strings.Repeat("n", 253), Grace: 1 << 30})
		}
		return pods
	}
	o := in(v1alpha1.MovePreCopy)
	o.Writers = many(proof.MostPods, "w")
	step := decide.Next(o)
	require.Equal(t, v1alpha1.MovePreCopy, step.Saved().Phase)
	written, err := record.Encode(step.Saved())
	require.NoError(t, err)
	assert.Less(t, len(written), 512<<10, "of the 1 MiB that a Secret has")
	o.Writers = many(proof.MostPods+1, "w")
	step = decide.Next(o)
	assert.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase)
	assert.Contains(t, step.Saved().Why, "more than 500 pods use the volumes")

	// Pods from before the move are awaited in parts.
	o = in(v1alpha1.MoveFence)
	o.Unended = many(proof.MostPods+1, "u")
	step = decide.Next(o)
	require.Len(t, step.Saved().Pods, proof.MostPods)
	o.Record = step.Saved()
	step = decide.Next(o)
	assert.Equal(t, "Idle", step.Verb())
	assert.Contains(t, step.Say, "other pods like it: 500")
}

func TestTheLevelOfPodsIsRememberedForMoversThatAreMadeLater(t *testing.T) {
	o := in(v1alpha1.MovePrepare)
	o.Claims[0].Levels = []string{"s0:c3", "s0:c1,c2"}
	step := decide.Next(o)
	require.Equal(t, "Save", step.Verb())
	assert.Equal(t, "s0:c1,c2", step.Saved().Claims[0].Level)
	o.Record = touchEvery(t, step.Saved())
	assert.Equal(t, "HoldClaim", decide.Next(o).Verb(), "it is known")
	o.Claims[0].Levels = nil
	assert.Equal(t, "HoldClaim", decide.Next(o).Verb(), "the pods are gone")
	o.Claims[0].Levels = []string{"s0:c3"}
	assert.Equal(t, "s0:c3", decide.Next(o).Saved().Claims[0].Level, "others have the volume by now")
}

func TestAMoveWaitsForANodeThatDoesNotAnswer(t *testing.T) {
	node := proof.Node{Cluster: keys.Home, Name: "home-1"}
	o := in(v1alpha1.MovePreCopy)
	o.Users, o.Writers = []proof.Node{node, node}, []proof.Pod{runsAtHome}
	step := decide.Next(o)
	require.Equal(t, "Save", step.Verb(), "where pods run is recorded")
	require.Equal(t, []proof.Node{node}, step.Saved().Ran)
	require.Equal(t, o.Writers, step.Saved().Pods)

	// The pod is force-deleted while its node does not answer.
	gone := in(v1alpha1.MoveFence)
	gone.Record.Ran, gone.Record.Pods = step.Saved().Ran, step.Saved().Pods
	gone.Nodes = map[proof.Node]proof.Absence{node: {Why: "the node is not ready"}}
	waits := decide.Next(gone)
	assert.Equal(t, "Idle", waits.Verb())
	for _, says := range []string{"home-1", "not ready", "out-of-service"} {
		assert.Contains(t, waits.Say, says)
	}
	gone.Move.Spec.Action = v1alpha1.ActionAbort
	assert.Equal(t, v1alpha1.MoveRollBack, decide.Next(gone).Saved().Phase, "it can be aborted meanwhile")

	back := in(v1alpha1.MoveFence)
	back.Record.Ran, back.Record.Pods = step.Saved().Ran, step.Saved().Pods
	answers := decide.Next(back)
	require.Equal(t, "Save", answers.Verb())
	assert.Empty(t, answers.Saved().Ran, "it answers, and no pod is there")
	require.Len(t, answers.Saved().Pods, 1, "but its node has only just heard that it is to end")
	back.Record = answers.Saved()
	assert.Equal(t, "Idle", decide.Next(back).Verb())
	back.Nodes = map[proof.Node]proof.Absence{node: {Off: true}}
	off := decide.Next(back)
	require.Equal(t, "Save", off.Verb(), "it is said to be off")
	back.Record = off.Saved()
	assert.Equal(t, "DeleteVolume", decide.Next(back).Verb())
}
