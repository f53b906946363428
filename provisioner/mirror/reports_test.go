package mirror

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAClusterThatSaysSomethingNewAtEveryMomentIsNotWrittenDownEachTime(t *testing.T) {
	var r reports
	written := 0
	for range 10_000 {
		if r.may("content") {
			written++
		}
	}
	assert.GreaterOrEqual(t, written, reportsInARow)
	assert.Less(t, written, reportsInARow+5)
	assert.True(t, r.may("another"), "each has its own")
	r.forget("content")
	assert.True(t, r.may("content"))
}
