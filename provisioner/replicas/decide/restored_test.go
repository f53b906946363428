package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// restored is an observation of a point in a stage, as home knows it that was restored from a backup, and confirmed: later points may have
// written to the head.
func restored(stage record.Stage) decide.Observation {
	o := copies(&moverapi.TaskStatus{Task: moverapi.Task{ID: "verify"}, State: moverapi.Done,
		Verified: &moverapi.Verified{Equal: true, SourceRoot: "a", TargetRoot: "a"}})
	o.Record.Point.Stage, o.Record.Point.HomeEpoch, o.Standby.Epoch = stage, 1, 2
	o.Claims[0].HeadVolume, o.Claims[0].SealBy = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{}}}}, "by"
	o.Claims[0].Writer = movers.State{}
	if stage == record.Copy {
		o.Claims[0].Writer = movers.State{Exists: true, Running: true}
	}
	return o
}

func TestNothingIsSealedOfAHeadThatARestoredHomeKnowsNoMore(t *testing.T) {
	for _, stage := range []record.Stage{record.Copy, record.Settle, record.Seal} {
		t.Run(string(stage), func(t *testing.T) {
			save, gives := decide.Next(restored(stage)).Action.(decide.Save)
			require.True(t, gives)
			assert.Equal(t, record.Clean, save.Record.Point.Stage)
			assert.Contains(t, save.Record.Point.Why, "restored from a backup")
			for name, tune := range map[string]func(o *decide.Observation){
				"it is the same home":                 func(o *decide.Observation) { o.Standby.Epoch = 1 },
				"it is not known":                     func(o *decide.Observation) { o.Standby.Epoch = 0 },
				"it was not known when it was copied": func(o *decide.Observation) { o.Record.Point.HomeEpoch = 0 },
			} {
				o := restored(stage)
				tune(&o)
				save, gives := decide.Next(o).Action.(decide.Save)
				assert.False(t, gives && save.Record.Point.Why != "", name)
			}
		})
	}

	// What the home before has sealed was compared, and nobody had written to it.
	o := restored(record.Seal)
	o.Claims[0].Seal = decide.Snapshot{Exists: true, Ready: true, UID: "seal"}
	save, ok := decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.EqualValues(t, "seal", save.Record.Newest().UID)

	o = inSlots(t)
	o.Record.Point = &record.Point{Number: 3, Stage: record.Seal, Cut: noon, Since: noon, HomeEpoch: 1,
		Session: record.Session{Root: "a"}}
	o.Standby.Epoch = 2
	save, ok = decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Contains(t, save.Record.Point.Why, "restored from a backup")
	o.Claims[0].Head.Annotations[keys.Seal] = sealed(t, 3, noon, "a")
	save, ok = decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.EqualValues(t, 3, save.Record.Newest().Number)
}

func TestAPointKnowsInWhichEpochOfHomeItWrites(t *testing.T) {
	o := copies(nil)
	o.Record.Point.Stage, o.Record.Point.Source.UID, o.Standby.Epoch = record.Cut, "s", 7
	o.Claims[0].Origin = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "s"}}
	o.Claims[0].Clone.Spec.DataSource = frozen.From(o.Record.PointName(0))
	save, ok := decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Equal(t, record.Copy, save.Record.Point.Stage)
	assert.EqualValues(t, 7, save.Record.Point.HomeEpoch)
}
