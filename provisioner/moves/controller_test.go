package moves

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

func TestAStepThatChangesNothingIsTakenEverMoreSeldom(t *testing.T) {
	var last repeated
	o := steps.Observation{Record: &record.Record{Phase: v1alpha1.MoveCommit}}
	drop := steps.Step{Action: steps.DropMover{End: record.Target}}
	assert.Equal(t, time.Nanosecond, last.pause(o, drop))
	assert.Equal(t, firstPause, last.pause(o, drop))
	assert.Equal(t, 2*firstPause, last.pause(o, drop))
	for range 100 {
		last.pause(o, drop)
	}
	assert.Equal(t, longestPause, last.pause(o, drop))
	assert.Equal(t, time.Nanosecond, last.pause(o, steps.Step{Action: steps.DropMover{End: record.Source}}), "another step")
	assert.Equal(t, time.Nanosecond, last.pause(o, drop), "something was done meanwhile")
	save := steps.Step{Action: steps.Save{Record: &record.Record{}}}
	for range 3 {
		assert.Equal(t, time.Nanosecond, last.pause(o, save), "a record that is saved is another one")
	}
}

func TestOnlyStepsThatFailInARowCount(t *testing.T) {
	var f failing
	began := time.Now()
	f.note(began, errors.New("first"))
	f.note(began.Add(time.Minute), errors.New("second"))
	assert.Equal(t, failing{since: began, why: "second"}, f)
	f.note(began.Add(2*time.Minute), nil)
	assert.Equal(t, failing{}, f)
}
