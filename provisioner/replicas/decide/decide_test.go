package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// observation is one of a replica with sealed versions, each a minute after the one before, the last at noon.
func observation(versions int) decide.Observation {
	r := &record.Record{UID: "r1", Namespace: "shop", Name: "data", Epoch: 1, Last: int64(versions),
		Part: record.Part{Claim: "data", ClaimUID: "c1", Head: backing.Ref{Cluster: "west", Namespace: "shop", Name: "replica-r1", UID: "h1"}}}
	o := decide.Observation{Now: noon.Add(time.Second), Record: r, MayBegin: true, Sealed: map[string]types.UID{},
		Claims: make([]decide.Claim, 1),
		Replica: &v1alpha1.VolumeReplica{
			ObjectMeta: metav1.ObjectMeta{UID: "r1", Finalizers: []string{keys.ReplicaFinalizer}},
			Spec: v1alpha1.VolumeReplicaSpec{Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "west"}},
				RPO: &metav1.Duration{Duration: 10 * time.Minute}, Versions: v1alpha1.ReplicaVersions{Keep: 2}},
		}}
	for i := range versions {
		name := fmt.Sprintf("v%d", i+1)
		r.Sealed = append(r.Sealed, record.Version{Number: int64(i + 1), Content: record.Content{Name: name, UID: types.UID(name)},
			Cut:  noon.Add(time.Duration(i-versions+1) * time.Minute),
			Took: 30 * time.Second})
		o.Sealed[name] = types.UID(name)
	}
	return o
}

func TestTheNextPointBeginsInTimeForTheRPO(t *testing.T) {
	for name, row := range map[string]struct {
		tune func(*decide.Observation)
		due  time.Time
	}{
		"it takes up to twice as long as the last one did": {func(*decide.Observation) {}, noon.Add(9 * time.Minute)},
		"no earlier than half of the RPO after the last": {func(o *decide.Observation) {
			o.Record.Sealed[1].Took = time.Hour
		}, noon.Add(5 * time.Minute)},
		"a version that goes does not count": {func(o *decide.Observation) { o.Record.Sealed[1].Going = true }, noon.Add(8 * time.Minute)},
		"the first one begins at once":       {func(o *decide.Observation) { o.Record.Sealed = nil }, time.Time{}},
		"after a failure it is tried again": {func(o *decide.Observation) {
			o.Record.Sealed, o.Record.Failures, o.Record.Failed = nil, 1, noon
		}, noon.Add(15 * time.Second)},
		"and later after more": {func(o *decide.Observation) {
			o.Record.Sealed, o.Record.Failures, o.Record.Failed = nil, 100, noon
		}, noon.Add(15 * time.Minute)},
		"a clock that was ahead puts nothing off": {func(o *decide.Observation) {
			o.Record.Sealed[1].Cut, o.Record.Failures, o.Record.Failed = noon.Add(time.Hour), 1, noon.Add(time.Hour)
		}, time.Time{}},
		"clocks differ a little": {func(o *decide.Observation) { o.Record.Sealed[1].Cut = noon.Add(10 * time.Second) },
			noon.Add(9*time.Minute + 10*time.Second)},
		"a failure makes nothing due earlier": {func(o *decide.Observation) { o.Record.Failures, o.Record.Failed = 1, noon },
			noon.Add(9 * time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation(2)
			row.tune(&o)
			assert.Equal(t, row.due, decide.Due(o))
		})
	}
}

func TestBetweenPoints(t *testing.T) {
	due := func(o *decide.Observation) { o.Now, o.Claims[0].Head = noon.Add(9*time.Minute), head("h1") }
	for name, row := range map[string]struct {
		tune   func(*decide.Observation)
		action decide.Action
		reason string
	}{
		"the next one is due": {due, decide.BeginPoint{}, ""},
		"there is no head yet": {func(o *decide.Observation) {
			due(o)
			o.Record.Head.UID, o.Claims[0].Head = "", nil
		}, decide.BeginPoint{}, ""},
		"it is not":                    {func(*decide.Observation) {}, nil, ""},
		"nobody wants one":             {func(o *decide.Observation) { due(o); o.Replica.Spec.Paused = true }, nil, decide.Paused},
		"a move holds the claim":       {func(o *decide.Observation) { due(o); o.Moving = true }, nil, decide.Moving},
		"as many are made as may be":   {func(o *decide.Observation) { due(o); o.MayBegin = false }, nil, decide.Waiting},
		"the last one failed just now": {func(o *decide.Observation) { o.Record.Failures, o.Record.Failed = 1, noon }, nil, decide.PointFailed},
		"it was refused just now": {func(o *decide.Observation) {
			due(o)
			o.Refused, o.RefusedAt = decide.Refusal{Reason: decide.SameCluster, Text: "no"}, o.Now
		}, nil, decide.SameCluster},
		"it was refused a while ago": {func(o *decide.Observation) {
			due(o)
			o.Refused, o.RefusedAt = decide.Refusal{Reason: decide.SameCluster, Text: "no"}, o.Now.Add(-time.Minute)
		}, decide.BeginPoint{}, ""},
		"it was refused a while ago, and as many are made as may be": {func(o *decide.Observation) {
			due(o)
			o.MayBegin, o.Refused, o.RefusedAt = false, decide.Refusal{Reason: decide.ClusterAway, Text: "away"}, o.Now.Add(-time.Minute)
		}, nil, decide.Waiting},
		"it has no finalizer": {func(o *decide.Observation) { o.Record, o.Replica.Finalizers = nil, nil }, decide.Adopt{}, ""},
		"it has not begun":    {func(o *decide.Observation) { o.Record = nil }, decide.Begin{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation(2)
			row.tune(&o)
			step := decide.Next(o)
			assert.Equal(t, row.action, step.Action)
			assert.Equal(t, row.reason, step.Reason)
			assert.Equal(t, row.reason == "", step.Say == "", "what is wrong is said")
		})
	}
}

func goingOf(r *record.Record) (going []bool) {
	for _, version := range r.Sealed {
		going = append(going, version.Going)
	}
	return going
}

func TestOnlyTheOldestVersionGoesOnceEnoughNewerOnesAreThere(t *testing.T) {
	o := observation(3)
	step := decide.Next(o)
	save, ok := step.Action.(decide.Save)
	require.True(t, ok, "it is written down first: %v", step)
	assert.True(t, save.Record.Sealed[0].Going)
	assert.False(t, save.Record.Sealed[1].Going)
	o.Record = save.Record
	assert.Equal(t, decide.DropVersion{Name: "v1", UID: "v1"}, decide.Next(o).Action)
	delete(o.Sealed, "v1")
	save, ok = decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Len(t, save.Record.Sealed, 2)
	o.Record = save.Record
	assert.Nil(t, decide.Next(o).Action)

	// A claim is to be made from the oldest: the next one goes in its place, and never the newest.
	o = observation(4)
	o.Used = []string{"v1", "v4"}
	save, ok = decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Equal(t, []bool{false, true, false, false}, goingOf(save.Record))
	o.Record = save.Record
	assert.Equal(t, decide.DropVersion{Name: "v2", UID: "v2"}, decide.Next(o).Action)
	o = observation(4)
	o.Used = []string{"v1", "v2"}
	assert.Nil(t, decide.Next(o).Action)
	o.Used = o.Used[1:]
	save, ok = decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Equal(t, []bool{true, false, false, false}, goingOf(save.Record))

	// One of the newer ones is gone: then the oldest stays.
	o = observation(3)
	delete(o.Sealed, "v3")
	step = decide.Next(o)
	assert.Equal(t, decide.VersionLost, step.Reason)
	save, ok = step.Action.(decide.Save)
	require.True(t, ok)
	o.Record = save.Record
	for _, version := range o.Record.Sealed {
		assert.False(t, version.Going)
	}
	assert.Nil(t, decide.Next(o).Action, "two are wanted, and two are there")

	// Another snapshot of its name is not it.
	o = observation(2)
	o.Sealed["v2"] = "another"
	assert.Equal(t, decide.VersionLost, decide.Next(o).Reason)

	// One that is there has no content any more: no claim can be made of it.
	o = observation(3)
	o.Faults = map[string]decide.Fault{"v3": {Why: "its content is gone", Gone: true}}
	step = decide.Next(o)
	assert.Equal(t, decide.VersionLost, step.Reason)
	assert.Contains(t, step.Say, "somebody deleted its VolumeSnapshotContent")
	save, ok = step.Action.(decide.Save)
	require.True(t, ok)
	assert.Equal(t, []bool{false, false, true}, goingOf(save.Record))
	o.Record = save.Record
	assert.Equal(t, decide.DropVersion{Name: "v3", UID: "v3"}, decide.Next(o).Action, "what is left of it goes, and the oldest stays")

	// What was not looked at is not judged.
	o = observation(3)
	o.Sealed, o.Standby.Unusable = nil, "cluster west does not answer"
	assert.Nil(t, decide.Next(o).Action)
}

func TestAVersionThatCannotBeUsedDoesNotCountUntilItCan(t *testing.T) {
	o := observation(3)
	o.Replica.Spec.Versions.Keep = 3
	o.Faults = map[string]decide.Fault{"v3": {Why: "its content is not ready"}}
	step := decide.Next(o)
	assert.Equal(t, decide.VersionLost, step.Reason)
	assert.Contains(t, step.Say, "the version of 2026-03-01T12:00:00Z at the standby cannot be used now, and does not count until it can: "+
		"VolumeSnapshot shop/v3: its content is not ready")
	save, ok := step.Action.(decide.Save)
	require.True(t, ok)
	o.Record = save.Record
	assert.Equal(t, "v2", o.Record.Newest().Name)
	assert.Nil(t, o.Record.Version("v3"))
	assert.Equal(t, []bool{false, false, false}, goingOf(o.Record), "it may be all right again")
	assert.Equal(t, noon.Add(8*time.Minute), decide.Due(o), "the next point is due by the version before it")
	step = decide.Next(o)
	assert.Nil(t, step.Action)
	assert.Equal(t, decide.VersionLost, step.Reason, "the condition says so as long as it stays")

	// What was not looked at again is as it was.
	o.Faults = nil
	assert.Nil(t, decide.Next(o).Action)
	assert.Equal(t, "v2", o.Record.Newest().Name)

	// Of as many as are wanted none goes that counts for it, and it goes itself once as many newer ones do.
	o.Replica.Spec.Versions.Keep = 2
	assert.Empty(t, decide.Surplus(o))
	o.Replica.Spec.Versions.Keep = 1
	assert.Equal(t, []int{0}, decide.Surplus(o))
	o.Record.Sealed[2].Unready, o.Record.Sealed[0].Unready = "", "v1: no"
	o.Replica.Spec.Versions.Keep = 2
	assert.Equal(t, []int{0}, decide.Surplus(o))

	o = observation(3)
	o.Replica.Spec.Versions.Keep = 3
	o.Record.Sealed[2].Unready, o.Faults = "v3: no", map[string]decide.Fault{"v3": {}}
	save, ok = decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Equal(t, "v3", save.Record.Newest().Name, "it can be used again")
}

func TestAllGoesWithTheReplica(t *testing.T) {
	deleted := func(o *decide.Observation) { o.Replica.DeletionTimestamp = &metav1.Time{Time: noon} }
	t.Run("a standby that does not answer is waited for", func(t *testing.T) {
		o := observation(1)
		deleted(&o)
		o.Sealed, o.Standby.Unusable = nil, "cluster west does not answer"
		step := decide.Next(o)
		assert.Nil(t, step.Action)
		assert.Equal(t, decide.BeingRemoved, step.Reason)
		assert.Contains(t, step.Say, "cluster west does not answer; bring it back, or delete its RemoteCluster")
	})
	t.Run("one that has no RemoteCluster any more is not", func(t *testing.T) {
		o := observation(1)
		deleted(&o)
		o.Sealed, o.Standby = nil, decide.Cluster{Unusable: "there is no RemoteCluster west", Gone: true}
		assert.Equal(t, decide.Forget{}, decide.Next(o).Action)
	})
	t.Run("versions that could not be looked for are waited for", func(t *testing.T) {
		o := observation(1)
		deleted(&o)
		o.Sealed = nil
		assert.Nil(t, decide.Next(o).Action)
	})
	t.Run("a claim at the standby that is not ours stays", func(t *testing.T) {
		o := observation(0)
		deleted(&o)
		o.Claims[0].Head = head("another")
		assert.Equal(t, decide.Forget{}, decide.Next(o).Action)
		o.Claims[0].Head = head("h1")
		o.Claims[0].Head.Labels = nil
		assert.Equal(t, decide.Forget{}, decide.Next(o).Action)
		o.Claims[0].Head = head("h1")
		assert.Equal(t, decide.DropHead{}, decide.Next(o).Action)
	})
	t.Run("nobody took our finalizer off by hand", func(t *testing.T) {
		o := observation(0)
		o.Replica, o.Record = nil, nil
		assert.True(t, decide.Next(o).Over)
	})
}

// copies is an observation of a point whose movers run, and do a task.
func copies(task *moverapi.TaskStatus) decide.Observation {
	o := observation(1)
	o.Record.Point = &record.Point{Number: 2, Stage: record.Copy, Since: noon, Cut: noon,
		Session: record.Session{Expect: []byte(`"s"`), Copied: true}}
	o.Claims[0] = decide.Claim{Head: head("h1"), Clone: &corev1.PersistentVolumeClaim{},
		Reader: movers.State{Exists: true, Running: true}, Writer: movers.State{Exists: true, Running: true},
		Copy: &moverapi.Status{Connected: true, Task: task}, Advanced: noon}
	return o
}

func TestWhatIsNotWholeIsNotSealed(t *testing.T) {
	verified := func(v moverapi.Verified) *moverapi.TaskStatus {
		return &moverapi.TaskStatus{Task: moverapi.Task{ID: "verify"}, State: moverapi.Done, Verified: &v}
	}
	long := strings.Repeat("a", 2000)
	for name, row := range map[string]struct {
		o     decide.Observation
		tune  func(*decide.Observation)
		stage record.Stage
		why   string
	}{
		"both are the same": {o: copies(verified(moverapi.Verified{Equal: true, SourceRoot: "a", TargetRoot: "a"})), stage: record.Settle},
		"they differ": {o: copies(verified(moverapi.Verified{SourceRoot: "a", TargetRoot: "a",
			Differences: []moverapi.Difference{{Path: "x", What: "its content differs"}}})), stage: record.Clean,
			why: "differs from what was copied: x: its content differs"},
		"they differ, whatever is said": {o: copies(verified(moverapi.Verified{Equal: true, SourceRoot: "a", TargetRoot: "b"})),
			stage: record.Clean, why: "differs from what was copied"},
		"more is said than there is room for": {o: copies(verified(moverapi.Verified{Equal: true, SourceRoot: long, TargetRoot: long})),
			stage: record.Clean, why: "differs from what was copied"},
		"nothing says that": {o: copies(&moverapi.TaskStatus{Task: moverapi.Task{ID: "verify"}, State: moverapi.Done}), stage: record.Clean,
			why: "differs from what was copied"},
		"the mover gave up": {o: copies(&moverapi.TaskStatus{Task: moverapi.Task{ID: "verify"}, State: moverapi.Failed, Error: "no room"}),
			stage: record.Clean, why: "the mover gave up: no room"},
		"the head was deleted": {o: copies(nil), tune: func(o *decide.Observation) { o.Claims[0].Head = nil }, stage: record.Clean,
			why: "somebody deleted real claim shop/replica-r1 at the standby"},
		"it stands still": {o: copies(nil), tune: func(o *decide.Observation) {
			o.Claims[0].Copy.Connected, o.Now = false, noon.Add(11*time.Minute)
		},
			stage: record.Clean, why: "the copy has stood still for 10m0s: waiting until the movers reach each other"},
		"its cluster is gone for good": {o: copies(nil), tune: func(o *decide.Observation) {
			o.Source = decide.Cluster{Unusable: "there is no RemoteCluster east", Gone: true}
		}, stage: record.Clean, why: "there is no RemoteCluster east"},
	} {
		t.Run(name, func(t *testing.T) {
			if row.tune != nil {
				row.tune(&row.o)
			}
			save, ok := decide.Next(row.o).Action.(decide.Save)
			require.True(t, ok)
			assert.Equal(t, row.stage, save.Record.Point.Stage)
			assert.Contains(t, save.Record.Point.Why, row.why)
			assert.Equal(t, row.why == "", save.Record.Point.Why == "")
			assert.Len(t, save.Record.Sealed, 1, "what is sealed stays")
		})
	}
	o := copies(nil)
	o.Claims[0].Copy.Connected, o.Now, o.Claims[0].Advanced = false, noon.Add(time.Hour), noon.Add(55*time.Minute)
	assert.Nil(t, decide.Next(o).Action, "it got further, or was first seen, a moment ago")
	o = copies(nil)
	o.Standby.Unusable = "cluster west does not answer"
	step := decide.Next(o)
	assert.Nil(t, step.Action)
	assert.Equal(t, decide.ClusterAway, step.Reason)
}

func TestAVersionThatItsClusterKeepsStaysAndGoesLater(t *testing.T) {
	o := observation(5) // of which 2 are wanted
	o.Kept = map[string]string{"v1": "cluster west: its owner keeps it"}
	require.Equal(t, []int{0, 1, 2}, decide.Surplus(o))
	save, ok := decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Equal(t, []bool{false, true, false, false, false}, goingOf(save.Record), "others go")

	o.Kept["v2"], o.Kept["v3"] = o.Kept["v1"], o.Kept["v1"]
	step := decide.Next(o)
	assert.Nil(t, step.Action)
	assert.Empty(t, step.Reason, "nothing is wrong")
	assert.LessOrEqual(t, step.After, decide.KeptFor, "it is looked at again")
	assert.Equal(t, "v1", o.Record.Version("v1").Name, "and can be used")
	o.Replica.Spec.Paused = true
	assert.LessOrEqual(t, decide.Next(o).After, decide.KeptFor)

	// One that was to go before it was kept goes later, and counts as none meanwhile.
	o = observation(3)
	o.Record.Sealed[1].Going, o.Kept = true, map[string]string{"v2": "kept"}
	assert.Empty(t, decide.Surplus(o))
	assert.Nil(t, decide.Next(o).Action)
	o.Kept = nil
	assert.Equal(t, decide.DropVersion{Name: "v2", UID: "v2"}, decide.Next(o).Action)
}

func TestAFailoverCountsAsAnotherPrimaryOnce(t *testing.T) {
	o := observation(2)
	o.FailedOver, o.At = noon, "east"
	_, ok := decide.Next(o).Action.(decide.Save)
	assert.False(t, ok, "it is not committed")
	o.At = "west"
	save, ok := decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.EqualValues(t, 2, save.Record.Epoch)
	o.Record = save.Record
	_, again := decide.Next(o).Action.(decide.Save)
	assert.False(t, again)
}

func TestARemovalThatWaitsForALostSourceSaysHowItEnds(t *testing.T) {
	o := observation(1)
	o.Replica.DeletionTimestamp = &metav1.Time{Time: noon}
	o.Record.Last, o.Record.Point = 2, &record.Point{Number: 2, Stage: record.Clean, Cut: noon, Why: "the VolumeReplica was deleted"}
	o.Source.Unusable = "cluster east does not answer"
	step := decide.Next(o)
	assert.Nil(t, step.Action)
	assert.Equal(t, decide.BeingRemoved, step.Reason)
	assert.Contains(t, step.Say, "delete its RemoteCluster if it is gone for good")
}

func TestARecordIsFullBeforeItsSecretIs(t *testing.T) {
	o := observation(0)
	for i := range 2000 {
		name := fmt.Sprintf("v%d-%s", i, strings.Repeat("x", 200))
		o.Record.Sealed = append(o.Record.Sealed, record.Version{Content: record.Content{Name: name, UID: types.UID(name)}, Cut: noon})
		if i%10 == 0 && o.Record.Full() { // it is encoded each time
			break
		}
	}
	assert.Greater(t, len(o.Record.Sealed), 100)
	assert.Less(t, len(o.Record.Sealed), 1500)
	o.Now, o.Sealed = noon.Add(time.Hour), nil
	assert.Equal(t, decide.Refused, decide.Next(o).Reason)
	assert.Contains(t, decide.Next(o).Say, "which cluster west does not let go")
	for i := range o.Record.Sealed {
		o.Record.Sealed[i].Pinned = true
	}
	assert.Contains(t, decide.Next(o).Say, "which spec.versions asks for, or which are pinned", "a longer RPO is of no use")
}

func TestARemovalSaysWhichVersionsTheirClusterKeeps(t *testing.T) {
	o := observation(2)
	o.Replica.DeletionTimestamp = &metav1.Time{Time: noon}
	o.Claims[0].Head = head("h1")
	o.Kept = map[string]string{"v2": "cluster west: its owner keeps it until noon"}
	assert.Equal(t, decide.DropVersion{Name: "v1", UID: "v1"}, decide.Next(o).Action)
	delete(o.Sealed, "v1")
	assert.Equal(t, decide.DropHead{}, decide.Next(o).Action)
	o.Claims[0].Head = nil
	step := decide.Next(o)
	assert.Nil(t, step.Action)
	assert.Equal(t, decide.BeingRemoved, step.Reason)
	assert.Equal(t, "the versions that are left (1) are removed once they may be; VolumeSnapshot shop/v2: cluster west: its owner keeps it "+
		"until noon; take the finalizer lodestone.dev/replica off if the VolumeReplica is to go now, they are removed all the same", step.Say)
	assert.Equal(t, decide.KeptFor, step.After, "without haste")
	o.Replica = nil
	assert.Equal(t, step, decide.Next(o), "and so without the VolumeReplica")
	o.Kept = nil
	assert.Equal(t, decide.DropVersion{Name: "v2", UID: "v2"}, decide.Next(o).Action)
}

func TestAPointThatFailsLeavesWhatItsClusterKeeps(t *testing.T) {
	o := observation(1)
	o.Record.Last, o.Record.Point = 2, &record.Point{Number: 2, Stage: record.Clean, Cut: noon, Why: "no room"}
	name := o.Record.SealName(0)
	o.Claims[0].Seal = decide.Snapshot{Exists: true, UID: "s2"}
	assert.Equal(t, decide.DropVersion{Name: name, UID: "s2"}, decide.Next(o).Action)
	o.Kept = map[string]string{name: "kept"}
	step := decide.Next(o)
	assert.Nil(t, step.Action, "it may still be taken, and then it is of what the head has")
	assert.Equal(t, decide.PointFailed, step.Reason)
	assert.Contains(t, step.Say, "may still be taken")
	o.Claims[0].Seal.Taken = true
	save, ok := decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Nil(t, save.Record.Point)
	assert.Equal(t, 1, save.Record.Failures)
	assert.Equal(t, []bool{false, true}, goingOf(save.Record), "it counts as no version")
}
