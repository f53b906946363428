package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
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
		"it is gone":             {func(o *decide.Observation) { o.Claims[0].Kept = nil }, "real claim shop/data is gone, or another"},
		"it is another":          {func(o *decide.Observation) { o.Claims[0].Kept.UID = "other" }, "real claim shop/data is gone, or another"},
		"the snapshot goes":      {func(o *decide.Observation) { o.Claims[0].Basis.Leaving = true }, "somebody deleted it"},
		"the version is deleted": {func(o *decide.Observation) { o.Record.Point.Basis.Of = backing.Ref{} }, "somebody deleted it"},
		"the snapshot is of something else": {func(o *decide.Observation) {
			o.Claims[0].Basis = decide.Snapshot{Exists: true, Wrong: true, Problem: "it is of another claim"}
		}, "it is of another claim"},
		"its driver fails": {func(o *decide.Observation) {
			o.Claims[0].Basis = decide.Snapshot{Exists: true, Problem: "no room"}
			o.Now = o.Now.Add(11 * time.Minute)
		}, "it was not ready within 11m0s: no room"},
		"no volume is made of it": {func(o *decide.Observation) {
			o.Claims[0].Head, o.Record.Head.UID = head("h1"), "h1"
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
			assert.Contains(t, next.Point.Why, "the next point copies all")
		})
	}
}

func TestAHeadOfWhichNoVolumeWasMadeGoesBeforeTheNextPoint(t *testing.T) {
	o := beginning()
	o.Record.Point.Stage, o.Record.Point.Why, o.Record.Whole = record.Clean, "it stood still", true
	o.Claims[0].Head, o.Record.Head.UID, o.Claims[0].Clone = head("h1"), "h1", nil
	assert.Equal(t, decide.DropHead{}, decide.Next(o).Action)
	o.Claims[0].Head.DeletionTimestamp = &metav1.Time{Time: o.Now}
	assert.Nil(t, decide.Next(o).Action, "it is waited for")
	o.Claims[0].Head = nil
	next := saved(t, o)
	assert.Empty(t, next.Head.UID)
	assert.True(t, next.Whole, "the next one begins empty")

	// One that has a volume has what was copied so far.
	o.Claims[0].Head, o.Claims[0].HeadVolume = head("h1"), &corev1.PersistentVolume{}
	assert.EqualValues(t, "h1", saved(t, o).Head.UID)
}
