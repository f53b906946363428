package moves

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

func TestACopyThatBeginsAgainAdvancesOnlyBeyondWhereItWas(t *testing.T) {
	var a progress
	start := time.Now()
	at := func(seconds int, task string, bytes int64) time.Duration {
		o := steps.Observation{
			Now: start.Add(time.Duration(seconds) * time.Second), Record: &record.Record{Phase: v1alpha1.MoveFinalSync},
			Claims: []steps.Claim{{Copy: &moverapi.Status{Task: &moverapi.TaskStatus{
				Task: moverapi.Task{ID: task}, State: moverapi.Running, Progress: moverapi.Progress{BytesDone: bytes}}}}},
		}
		return a.note(o).Sub(start)
	}
	assert.Equal(t, 0*time.Second, at(0, "final-0", 0))
	assert.Equal(t, 1*time.Second, at(1, "final-0", 10))
	assert.Equal(t, 1*time.Second, at(2, "final-0", 10))
	assert.Equal(t, 1*time.Second, at(3, "final-0", 0), "it was started again")
	assert.Equal(t, 1*time.Second, at(4, "final-0", 10))
	assert.Equal(t, 5*time.Second, at(5, "final-0", 11))
	assert.Equal(t, 6*time.Second, at(6, "final-1", 0), "another task")
	lost := steps.Observation{Now: start.Add(time.Minute), Record: &record.Record{Phase: v1alpha1.MoveFinalSync}, Claims: []steps.Claim{{}}}
	assert.Equal(t, 6*time.Second, a.note(lost).Sub(start))
	lost.Record = &record.Record{Phase: v1alpha1.MoveVerifying}
	assert.Equal(t, time.Minute, a.note(lost).Sub(start), "a phase begins with patience")
}

func TestHowDataTravelsStaysInTheStatusWhileMoversAreApart(t *testing.T) {
	way := transport.Connection{Transport: v1alpha1.TransportSpliced, Why: "apart",
		Legs: &v1alpha1.MoveLegs{Source: v1alpha1.LegAddress, Target: v1alpha1.LegAPIServer}}
	o := steps.Observation{Move: &v1alpha1.VolumeMove{}, Record: &record.Record{Claims: []record.Claim{{Name: "data"}}},
		Claims: []steps.Claim{{Connection: way}}}
	told := claimsOf(o)[0]
	assert.Equal(t, way.Transport, told.Transport)
	assert.Equal(t, way.Legs, told.Legs)
	assert.Equal(t, way.Why, told.TransportMessage)
	o.Move.Status.Claims, o.Claims[0].Connection = []v1alpha1.MovedClaim{told}, transport.Connection{}
	assert.Equal(t, told, claimsOf(o)[0])
}
