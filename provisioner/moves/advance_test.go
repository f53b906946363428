package moves

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestACopyThatBeginsAgainAdvancesOnlyBeyondWhereItWas(t *testing.T) {
	var a advance
	start := time.Now()
	at := func(seconds int, task string, bytes int64) time.Duration {
		o := decide.Observation{
			Now: start.Add(time.Duration(seconds) * time.Second), Record: &record.Record{Phase: v1alpha1.MoveFinalSync},
			Claims: []decide.Claim{{Copy: &movecontrol.Status{Task: &movecontrol.TaskStatus{
				Task: movecontrol.Task{ID: task}, State: movecontrol.Running, Progress: movecontrol.Progress{BytesDone: bytes}}}}},
		}
		return a.see(o).Sub(start)
	}
	assert.Equal(t, 0*time.Second, at(0, "final-0", 0))
	assert.Equal(t, 1*time.Second, at(1, "final-0", 10))
	assert.Equal(t, 1*time.Second, at(2, "final-0", 10))
	assert.Equal(t, 1*time.Second, at(3, "final-0", 0), "it was started again")
	assert.Equal(t, 1*time.Second, at(4, "final-0", 10))
	assert.Equal(t, 5*time.Second, at(5, "final-0", 11))
	assert.Equal(t, 6*time.Second, at(6, "final-1", 0), "another task")
	lost := decide.Observation{Now: start.Add(time.Minute), Record: &record.Record{Phase: v1alpha1.MoveFinalSync}, Claims: []decide.Claim{{}}}
	assert.Equal(t, 6*time.Second, a.see(lost).Sub(start))
	lost.Record = &record.Record{Phase: v1alpha1.MoveVerifying}
	assert.Equal(t, time.Minute, a.see(lost).Sub(start), "a phase begins with patience")
}
