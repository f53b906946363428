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
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// runsAtHome is a pod of a claim as a record remembers it.
var runsAtHome = record.Pod{UID: "p1", Name: "db-0", Node: homeNode.Name, Grace: 30}

// forcedIn returns what is seen in a phase once a pod that the record has is gone and
// nobody saw it end; and the step of that moment was taken.
func forcedIn(t *testing.T, phase v1alpha1.MovePhase) decide.Observation {
	t.Helper()
	o := in(phase)
	o.Margin = time.Minute
	o.Record.Claims[0].Settled = true
	if phase == v1alpha1.MoveFinalSync || phase == v1alpha1.MoveVerifying {
		o.Record.Stalled = o.Now // there are no movers
	}
	o.Record.Pods = []record.Pod{runsAtHome}
	noted := decide.Next(o)
	require.Equal(t, decide.Save, noted.Verb)
	require.Equal(t, o.Now, noted.Record.Pods[0].Gone)
	o.Record = again(t, noted.Record)
	return o
}

// again is a record as a provisioner that is started anew reads it.
func again(t *testing.T, r *record.Record) *record.Record {
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
	require.Equal(t, decide.Idle, waits.Verb)
	for _, says := range []string{"pod db-0", "node home-1", "30s", "1m0s", "until " + began.Add(90*time.Second).UTC().Format(time.RFC3339)} {
		assert.Contains(t, waits.Say, says)
	}
	o.Now = began.Add(89 * time.Second)
	assert.Equal(t, waits, decide.Next(o), "what it says stays the same")
	late := o
	late.Now = began.Add(90 * time.Second)
	step := decide.Next(late)
	require.Equal(t, decide.Save, step.Verb)
	assert.Empty(t, step.Record.Pods)
	late.Record = step.Record
	assert.Equal(t, decide.DeleteVolume, decide.Next(late).Verb)

	abort := o
	abort.Move = o.Move.DeepCopy()
	abort.Move.Spec.Action = v1alpha1.ActionAbort
	assert.Equal(t, v1alpha1.MoveRollBack, decide.Next(abort).Record.Phase)
	abort.Record = decide.Next(abort).Record
	assert.NotContains(t, decide.Next(abort).Say, "db-0", "who goes back does not wait for it")
}

func TestTheTimeOfAPodThatIsGoneCountsOnlyWhileItsNodeIsReady(t *testing.T) {
	o := forcedIn(t, v1alpha1.MoveFence)
	o.Now = o.Now.Add(80 * time.Second)
	o.Away = map[record.Node]string{homeNode: "the node is not ready"}
	step := decide.Next(o)
	require.Equal(t, decide.Save, step.Verb)
	require.True(t, step.Record.Pods[0].Gone.IsZero())
	o.Record = step.Record
	o.Now = o.Now.Add(time.Hour)
	assert.Contains(t, decide.Next(o).Say, "nobody writes on node home-1")
	assert.Equal(t, decide.NodeAway, decide.Next(o).Need)

	o.Away = nil
	step = decide.Next(o)
	require.Equal(t, decide.Save, step.Verb)
	require.Equal(t, o.Now, step.Record.Pods[0].Gone)
	o.Record = step.Record
	o.Now = o.Now.Add(89 * time.Second)
	assert.Contains(t, decide.Next(o).Say, "pod db-0")
	o.Now = o.Now.Add(-time.Hour)
	assert.Equal(t, o.Now, decide.Next(o).Record.Pods[0].Gone, "the clock was set back")
}

func TestAPodOfARemoteClusterIsRememberedToo(t *testing.T) {
	there := record.Node{Cluster: "west", Name: "west-1"}
	o := in(v1alpha1.MoveFence)
	o.Margin = time.Minute
	o.Record.Pods = []record.Pod{{Cluster: "west", UID: "p1", Name: "db-0", Node: "west-1", Grace: 30}}
	// While its cluster cannot be asked nobody knows whether it is there.
	o.Unusable[record.Source] = "west does not answer"
	assert.Contains(t, decide.Next(o).Say, "west does not answer")
	o.Now = o.Now.Add(time.Hour)
	delete(o.Unusable, record.Source)
	step := decide.Next(o)
	require.Equal(t, o.Now, step.Record.Pods[0].Gone)
	o.Record = step.Record
	assert.Contains(t, decide.Next(o).Say, "pod db-0, which may still write on node west-1 of west")
	o.Away = map[record.Node]string{there: "the node is not ready"}
	o.Record = decide.Next(o).Record
	assert.True(t, o.Record.Pods[0].Gone.IsZero())
	assert.Contains(t, decide.Next(o).Say, "nobody writes on node west-1 of west")
	o.Away, o.Off = nil, map[record.Node]bool{there: true}
	o.Record = decide.Next(o).Record
	assert.Empty(t, o.Record.Pods)
	assert.Equal(t, decide.DeleteVolume, decide.Next(o).Verb)
}

func TestAPodThatIsKnownToHaveEndedIsNotWaitedFor(t *testing.T) {
	for name, know := range map[string]func(*decide.Observation){
		"it was seen to end":              func(o *decide.Observation) { o.Ended = map[types.UID]bool{"p1": true} },
		"its node is gone or said so off": func(o *decide.Observation) { o.Off = map[record.Node]bool{homeNode: true} },
	} {
		for _, noticed := range []bool{false, true} {
			o := in(v1alpha1.MoveFence)
			if noticed {
				o = forcedIn(t, v1alpha1.MoveFence)
			}
			o.Record.Pods = []record.Pod{runsAtHome}
			know(&o)
			step := decide.Next(o)
			require.Equal(t, decide.Save, step.Verb, name)
			o.Record = step.Record
			assert.Equal(t, decide.DeleteVolume, decide.Next(o).Verb, name)
		}
	}
	other := forcedIn(t, v1alpha1.MoveFence)
	other.Ended = map[types.UID]bool{"p2": true}
	assert.Equal(t, decide.Idle, decide.Next(other).Verb, "a successor of its name is another pod")
}

func TestAPodThatWasGoneBeforeItsMoveSawItIsWaitedForToo(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MovePrepare, v1alpha1.MovePreCopy, v1alpha1.MoveFence} {
		o := in(phase)
		o.Unended = []record.Pod{runsAtHome}
		step := decide.Next(o)
		require.Equal(t, decide.Save, step.Verb, "%s", phase)
		require.Len(t, step.Record.Pods, 1)
		assert.Equal(t, o.Now, step.Record.Pods[0].Gone)
		o.Record = step.Record
		assert.NotEqual(t, decide.Save, decide.Next(o).Verb, "%s: it is not noted again", phase)
	}
}

func TestNothingIsStoppedWhileAPodThatIsGoneMayRun(t *testing.T) {
	for _, offline := range []bool{false, true} {
		o := forcedIn(t, v1alpha1.MovePreCopy)
		running := decide.Mover{Exists: true, Running: true}
		o.Record.Claims[0].Offline = offline
		with := single(v1alpha1.MoveFinalSync)
		o.Claims[0].Source.Mover, o.Claims[0].Target, o.Claims[0].Copy = running, with.Claims[0].Target, with.Claims[0].Copy
		step := decide.Next(o)
		require.Equal(t, decide.Idle, step.Verb)
		assert.Contains(t, step.Say, "pod db-0")
		o.Now = o.Now.Add(2 * time.Minute)
		o.Record = decide.Next(o).Record
		assert.Equal(t, v1alpha1.MoveQuiesce, decide.Next(o).Record.Phase)
	}
}

func TestAPodThatGoesByForceInTheStopHasAllCopiedOnceMore(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying} {
		o := forcedIn(t, phase)
		noted := decide.Next(o)
		require.Equal(t, decide.Save, noted.Verb)
		require.True(t, noted.Record.Intruded)
		o.Record = noted.Record
		require.Contains(t, decide.Next(o).Say, "pod db-0")
		o.Now = o.Now.Add(2 * time.Minute)
		o.Record = decide.Next(o).Record
		require.Empty(t, o.Record.Pods)
		step := decide.Next(o)
		assert.Equal(t, v1alpha1.MoveFinalSync, step.Record.Phase)
		assert.Equal(t, o.Record.Claims[0].Try+1, step.Record.Claims[0].Try)
	}
}

func TestARecordHasRoomForItsPods(t *testing.T) {
	many := func(n int, of string) (pods []record.Pod) {
		for i := range n {
			pods = append(pods, record.Pod{UID: types.UID(fmt.Sprintf("%s%035d", of, i)), Name: strings.Repeat("p", 253), Node: strings.Repeat("n", 253), Grace: 1 << 30})
		}
		return pods
	}
	o := in(v1alpha1.MovePreCopy)
	o.Writers = many(record.MostPods, "w")
	step := decide.Next(o)
	require.Equal(t, v1alpha1.MovePreCopy, step.Record.Phase)
	written, err := record.Encode(step.Record)
	require.NoError(t, err)
	assert.Less(t, len(written), 512<<10, "of the 1 MiB that a Secret has")
	o.Writers = many(record.MostPods+1, "w")
	step = decide.Next(o)
	assert.Equal(t, v1alpha1.MoveRollBack, step.Record.Phase)
	assert.Contains(t, step.Record.Why, "more than 500 pods use the volumes")

	// Those of before the move are waited for a part at a time.
	o = in(v1alpha1.MoveFence)
	o.Unended = many(record.MostPods+1, "u")
	step = decide.Next(o)
	require.Len(t, step.Record.Pods, record.MostPods)
	o.Record = step.Record
	step = decide.Next(o)
	assert.Equal(t, decide.Idle, step.Verb)
	assert.Contains(t, step.Say, "other pods like it: 500")
}

func TestTheLevelOfPodsIsRememberedForMoversThatAreMadeLater(t *testing.T) {
	o := in(v1alpha1.MovePrepare)
	o.Claims[0].Levels = []string{"s0:c3", "s0:c1,c2"}
	step := decide.Next(o)
	require.Equal(t, decide.Save, step.Verb)
	assert.Equal(t, "s0:c1,c2", step.Record.Claims[0].Level)
	o.Record = again(t, step.Record)
	assert.Equal(t, decide.HoldClaim, decide.Next(o).Verb, "it is known")
	o.Claims[0].Levels = nil
	assert.Equal(t, decide.HoldClaim, decide.Next(o).Verb, "the pods are gone")
	o.Claims[0].Levels = []string{"s0:c3"}
	assert.Equal(t, "s0:c3", decide.Next(o).Record.Claims[0].Level, "others have the volume by now")
}
