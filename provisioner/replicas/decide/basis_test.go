package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// beginning is a replica whose first point makes its head from the volume that a move keeps at the standby. All is ready at the source.
func beginning() decide.Observation {
	o := observation(0)
	o.Record.Head.UID = ""
	o.Record.Point = &record.Point{Number: 1, Stage: record.Cut, Since: o.Now, Cut: o.Now}
	o.Record.Point.Source = backing.Ref{Cluster: "home", UID: "s"}
	o.Record.Point.Basis = &record.Basis{Name: "basis", By: "by", Of: backing.Ref{Cluster: "west", Namespace: "shop", Name: "data", UID: "k"}}
	o.Claims[0].Origin = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "s"}}
	o.Claims[0].Clone = &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		DataSource: frozen.From(o.Record.PointName(0))}}
	o.Claims[0].Kept = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "k"}}
	return o
}

func TestAHeadBeginsWithWhatTheStandbyKeeps(t *testing.T) {
	o := beginning()
	assert.Equal(t, decide.TakeBasis{}, decide.Next(o).Action)
	o.Claims[0].Basis = decide.Snapshot{UID: "b", Exists: true}
	assert.Nil(t, decide.Next(o).Action, "it is waited for")
	o.Claims[0].Basis.Ready = true
	assert.Equal(t, decide.MakeHead{}, decide.Next(o).Action)

	// When the point is over, the snapshot goes, and the head stays.
	o.Claims[0].Head, o.Claims[0].HeadVolume = head("h1"), &corev1.PersistentVolume{}
	o.Record.Head.UID, o.Claims[0].Clone = "h1", nil
	for _, why := range []string{"", "it broke"} {
		o.Record.Point.Stage, o.Record.Point.Why = record.Clean, why
		assert.Equal(t, decide.DropBasis{}, decide.Next(o).Action)
		gone := o
		gone.Claims = []decide.Claim{o.Claims[0]}
		gone.Claims[0].Basis = decide.Snapshot{}
		next := saved(t, gone)
		assert.Nil(t, next.Point)
		assert.EqualValues(t, "h1", next.Head.UID)
		assert.False(t, next.Whole)
	}

	// A version stays.
	o.Record.Point.Basis = &record.Basis{Name: "v1"}
	assert.Nil(t, saved(t, o).Point)
}

// saved is the record that the next step saves.
func saved(t *testing.T, o decide.Observation) *record.Record {
	t.Helper()
	step := decide.Next(o)
	save, ok := step.Action.(decide.Save)
	require.True(t, ok, "%+v", step)
	return save.Record
}

func TestAHeadBeginsEmptyWhereWhatTheStandbyKeepsDoesNotServe(t *testing.T) {
	for name, row := range map[string]struct {
		tune func(*decide.Observation)
		why  string
	}{
		"it is gone":        {func(o *decide.Observation) { o.Claims[0].Kept = nil }, "real claim shop/data is gone, or another"},
		"it is another":     {func(o *decide.Observation) { o.Claims[0].Kept.UID = "other" }, "real claim shop/data is gone, or another"},
		"the snapshot goes": {func(o *decide.Observation) { o.Claims[0].Basis.Leaving = true }, "somebody deleted it"},
		"the snapshot is of something else": {func(o *decide.Observation) {
			o.Claims[0].Basis = decide.Snapshot{Exists: true, Wrong: true, Problem: "it is of another claim"}
		}, "it is of another claim"},
		"its driver fails": {func(o *decide.Observation) {
			o.Claims[0].Basis = decide.Snapshot{Exists: true, Problem: "no room"}
			o.Now = o.Now.Add(11 * time.Minute)
		}, "it was not ready within 11m0s: no room"},
		"no volume is made of it": {func(o *decide.Observation) {
			o.Claims[0].Head, o.Record.Head.UID = unmade("h1", "basis"), "h1"
			o.Record.Point.Stage = record.Copy
			o.Claims[0].Reader.Exists, o.Claims[0].Writer.Exists = true, true
			o.Now = o.Now.Add(11 * time.Minute)
		}, "the copy has stood still for 10m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			o := beginning()
			row.tune(&o)
			next := saved(t, o)
			assert.True(t, next.Whole)
			assert.Equal(t, record.Clean, next.Point.Stage)
			assert.Contains(t, next.Point.Why, row.why)
			assert.Contains(t, next.Point.Why, "cannot begin with snapshot basis at the standby")
			assert.Contains(t, next.Point.Why, "the next point copies all")
		})
	}
}

// unmade is a head that is to be made from a snapshot, and has no volume yet.
func unmade(uid types.UID, from string) *corev1.PersistentVolumeClaim {
	b := head(uid)
	b.Spec.DataSource = frozen.From(from)
	return b
}

func TestAHeadOfWhichNoVolumeWasMadeGoesBeforeTheNextPoint(t *testing.T) {
	for name, row := range map[string]struct {
		of    backing.Ref
		whole bool
	}{
		"what it was to begin with does not serve": {backing.Ref{UID: "k"}, true},
		"the point failed for another reason":      {backing.Ref{UID: "k"}, false},
		"it was to begin with a version":           {backing.Ref{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := beginning()
			o.Record.Point.Stage, o.Record.Point.Why, o.Record.Whole = record.Clean, "it failed", row.whole
			o.Record.Point.Basis.Of = row.of
			o.Claims[0].Head, o.Record.Head.UID, o.Claims[0].Clone = unmade("h1", "basis"), "h1", nil
			assert.Equal(t, decide.DropHead{}, decide.Next(o).Action)
			o.Claims[0].Head.DeletionTimestamp = &metav1.Time{Time: o.Now}
			assert.Nil(t, decide.Next(o).Action, "it is waited for")
			o.Claims[0].Head = nil
			next := saved(t, o)
			assert.Empty(t, next.Head.UID)
			assert.Equal(t, row.whole, next.Whole, "so the next one begins empty, or not")

			// One that has a volume has what was copied so far.
			o.Claims[0].Head, o.Claims[0].HeadVolume = unmade("h1", "basis"), &corev1.PersistentVolume{}
			assert.EqualValues(t, "h1", saved(t, o).Head.UID)
		})
	}
}

// TestAHeadThatIsMadeFromNothingIsGotOver: such heads were left by points that failed.
func TestAHeadThatIsMadeFromNothingIsGotOver(t *testing.T) {
	o := beginning()
	o.Record.Point.Basis, o.Record.Point.Stage, o.Record.Head.UID = nil, record.Copy, "h1"
	o.Claims[0].Head = unmade("h1", "gone")
	o.Claims[0].Reader.Exists, o.Claims[0].Writer.Exists = true, true
	o.Now = o.Now.Add(11 * time.Minute)
	next := saved(t, o)
	assert.Contains(t, next.Point.Why, "cannot begin with snapshot gone at the standby")
	o.Record, o.Claims[0].Reader, o.Claims[0].Writer, o.Claims[0].Clone = next, movers.State{}, movers.State{}, nil
	assert.Equal(t, decide.DropHead{}, decide.Next(o).Action)
}

func TestAHeadOfARequestThatCameLateGoes(t *testing.T) {
	o := beginning()
	o.Claims[0].Head = unmade("h1", "of another point")
	assert.Equal(t, decide.DropHead{}, decide.Next(o).Action)
	o.Claims[0].Head.DeletionTimestamp = &metav1.Time{Time: o.Now}
	assert.Nil(t, decide.Next(o).Action, "it is waited for")
	o.Claims[0].Head = unmade("h1", "basis")
	assert.EqualValues(t, "h1", saved(t, o).Head.UID, "its own stays")
}

func TestAPointThatFailsBecauseOfAVersionOrAHeadHasTheNextOneBeginWithAnother(t *testing.T) {
	for name, row := range map[string]struct {
		tune func(*decide.Observation)
		why  string
	}{
		"somebody deleted the version": {func(o *decide.Observation) { o.Record.Point.Basis = &record.Basis{Name: "v1"} },
			`somebody deleted VolumeSnapshot shop/v1 at the standby, which the copy of claim "data" was to begin with`},
		"the version is going": {func(o *decide.Observation) {
			o.Record.Point.Basis, o.Claims[0].Basis = &record.Basis{Name: "v1"}, decide.Snapshot{Exists: true, Leaving: true}
		}, "somebody deleted VolumeSnapshot shop/v1 at the standby"},
		"somebody deleted the head after the point had begun": {func(o *decide.Observation) {
			o.Record.Point.Basis, o.Record.Head.UID = nil, "h1"
		}, "somebody deleted real claim shop/replica-r1 at the standby: the next point makes it anew"},
	} {
		t.Run(name, func(t *testing.T) {
			o := beginning()
			row.tune(&o)
			next := saved(t, o)
			assert.Equal(t, record.Clean, next.Point.Stage)
			assert.Contains(t, next.Point.Why, row.why)
			assert.False(t, next.Whole)
			assert.Empty(t, next.Head.UID)
		})
	}
}

func TestTheTimeInWhichAClusterWasAwayDoesNotCount(t *testing.T) {
	for name, tune := range map[string]func(*decide.Observation){
		"the snapshot that the head begins with is asked for": func(*decide.Observation) {},
		"it is not ready": func(o *decide.Observation) {
			o.Claims[0].Basis = decide.Snapshot{Exists: true, Problem: "it takes its time"}
		},
		"the snapshot of the source is not ready": func(o *decide.Observation) {
			o.Claims[0].Clone, o.Claims[0].Snapshot = nil, decide.Snapshot{Exists: true, Problem: "it takes its time"}
		},
		"the volume of the head is made": func(o *decide.Observation) {
			o.Claims[0].Head, o.Record.Head.UID, o.Record.Point.Stage = unmade("h1", "basis"), "h1", record.Copy
			o.Claims[0].Reader.Exists, o.Claims[0].Writer.Exists = true, true
		},
		"the snapshot that seals is not ready": func(o *decide.Observation) {
			o.Record.Point.Stage, o.Claims[0].Seal = record.Seal, decide.Snapshot{Exists: true, Problem: "it takes its time"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := beginning()
			tune(&o)
			o.Now = o.Now.Add(2 * time.Hour)
			o.Reached = o.Now.Add(-time.Minute)
			step := decide.Next(o)
			if save, ok := step.Action.(decide.Save); ok {
				assert.NotEqual(t, record.Clean, save.Record.Point.Stage, "%s", step.Say)
			}
			o.Reached = time.Time{}
			assert.Equal(t, record.Clean, saved(t, o).Point.Stage)
		})
	}
}
