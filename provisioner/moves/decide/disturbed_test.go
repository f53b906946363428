package decide_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestWhatSomebodyMayHaveWrittenToIsCopiedAgain(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying} {
		o := in(phase)
		o.Record.Stalled = o.Now // there are no movers
		c := &o.Record.Claims[0]
		c.Instance, c.SourceRoot, c.TargetRoot, c.Try = "i1", "root", "root", 3
		o.Others = []string{"pod shell in west"}
		noted := decide.Next(o)
		require.Equal(t, decide.Save, noted.Verb)
		require.True(t, noted.Record.Intruded, "a provisioner that is killed now still knows")
		require.Contains(t, noted.Say, "pod shell in west")

		o.Record = noted.Record
		waits := decide.Next(o)
		require.Equal(t, decide.Idle, waits.Verb)
		require.Contains(t, waits.Say, "pod shell in west")

		o.Others = nil
		again := decide.Next(o)
		require.Equal(t, decide.Save, again.Verb)
		assert.Equal(t, v1alpha1.MoveFinalSync, again.Record.Phase)
		assert.False(t, again.Record.Intruded)
		claim := again.Record.Claims[0]
		assert.Equal(t, 4, claim.Try)
		assert.Empty(t, claim.Instance+claim.SourceRoot+claim.TargetRoot)
	}
}

func TestOthersWordsDoNotMakeARecordTooLarge(t *testing.T) {
	o := in(v1alpha1.MoveFinalSync)
	o.Record.Stalled = o.Now.Add(-time.Hour)
	o.Unusable[record.Target] = strings.Repeat("<", 2<<20)
	step := decide.Next(o)
	require.Equal(t, decide.Save, step.Verb)
	require.Equal(t, v1alpha1.MoveRollBack, step.Record.Phase)
	written, err := record.Encode(step.Record)
	require.NoError(t, err)
	assert.Less(t, len(written), 64<<10)

	// A mover says what its source is, and that becomes part of the record.
	tells := in(v1alpha1.MoveFinalSync)
	tells.Record.Claims[0].Offline = true
	tells.Record.Claims[0].Target.Ref.UID = ref(record.Target, 0).UID
	running := decide.Side{Mover: decide.Mover{Exists: true, Running: true}}
	tells.Claims[0].Source, tells.Claims[0].Target = running, running
	for size, want := range map[int]v1alpha1.MovePhase{200: v1alpha1.MoveFinalSync, 5 << 10: v1alpha1.MoveRollBack} {
		tells.Claims[0].Copy = &movecontrol.Status{Connected: true, Task: &movecontrol.TaskStatus{
			Task: movecontrol.Task{ID: "prepare"}, State: movecontrol.Done, Prepared: &movecontrol.Prepared{Source: []byte(`"` + strings.Repeat("x", size) + `"`)},
		}}
		step := decide.Next(tells)
		require.Equal(t, decide.Save, step.Verb)
		assert.Equal(t, want, step.Record.Phase)
		assert.Equal(t, want == v1alpha1.MoveRollBack, strings.Contains(step.Record.Why, "says more of what its source is"), step.Record.Why)
	}

	// Whatever a remote cluster says, the record of a move that goes back can be written.
	for _, phase := range beforeCommit {
		many := in(phase)
		for i := range record.MostPods {
			name := strings.Repeat("<", 250) + strconv.Itoa(i)
			many.Writers = append(many.Writers, record.Pod{Cluster: "west", UID: types.UID(strconv.Itoa(i)), Name: name, Node: name})
			many.Users = append(many.Users, record.Node{Cluster: "west", Name: name})
		}
		step := decide.Next(many)
		require.Equal(t, decide.Save, step.Verb)
		require.Equal(t, v1alpha1.MoveRollBack, step.Record.Phase, phase)
		assert.Equal(t, record.TooMuch, step.Record.Cause)
		assert.True(t, step.Record.Fits())
	}
}

func TestAMoverThatOnlyReadsHoldsNobodyUp(t *testing.T) {
	ending := decide.Mover{Exists: true, Leaving: true}
	o := in(v1alpha1.MoveCommit)
	o.Claims[0].Target.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Target, 0).UID}}
	o.Claims[0].Volume, o.Record.Claims[0].New = nil, virtual(0, record.Target)
	o.Claims[0].Source.Mover = decide.Mover{Exists: true, Running: true}
	assert.Equal(t, decide.DropMover, decide.Next(o).Verb, "it is told to end")
	o.Claims[0].Source.Mover = ending
	assert.Equal(t, decide.MakeVolume, decide.Next(o).Verb, "its node may be gone")
	o.Claims[0].Target.Mover = ending
	assert.Equal(t, decide.Idle, decide.Next(o).Verb, "that at the target writes")

	back := in(v1alpha1.MoveRollBack)
	back.Record.Claims[0].Volume = virtual(0, record.Source)
	back.Claims[0].Volume, back.Claims[0].Source.Mover = nil, ending
	back.Record.Began[v1alpha1.MoveRollBack] = back.Now
	assert.Equal(t, decide.Idle, decide.Next(back).Verb)
	back.Now = back.Now.Add(time.Minute)
	assert.Equal(t, decide.MakeVolume, decide.Next(back).Verb)
}

func TestACopyIsKeptUntilPodsAreReadyAlsoIfTheMoveIsDeleted(t *testing.T) {
	o := in(v1alpha1.MoveRetain)
	o.Claims[0].Claim.Annotations, o.Claims[0].Claim.Labels = nil, nil
	o.Claims[0].Source.Backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID, Labels: map[string]string{keys.MoveOf: string(moveUID)}}}
	o.Move.DeletionTimestamp = &metav1.Time{Time: o.Now}
	o.Pods = []decide.Pod{{Name: "db-0", Bound: true}}
	waits := decide.Next(o)
	assert.Equal(t, decide.Idle, waits.Verb)
	assert.Contains(t, waits.Say, "pod db-0 is ready")
	finalize := o
	finalize.Move = o.Move.DeepCopy()
	finalize.Move.Spec.Action = v1alpha1.ActionFinalize
	assert.Equal(t, v1alpha1.MoveFinalize, decide.Next(finalize).Record.Phase)
	o.Pods[0].Ready = true
	assert.Equal(t, v1alpha1.MoveFinalize, decide.Next(o).Record.Phase, "it is not kept for as long as was asked")
}
