package outcome

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCodeFollowsTheErrorThroughWraps(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want Code
	}{
		"no error":          {want: OK},
		"a plain error":     {err: errors.New("no answer"), want: Failed},
		"a refusal":         {err: Refuse("volumes are there"), want: Refused},
		"a wrapped refusal": {err: fmt.Errorf("unpeer: %w", Refuse("volumes are there")), want: Refused},
		"a wrong flag":      {err: Misuse("no such flag"), want: Usage},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, Of(test.err)) })
	}
	assert.EqualError(t, Refuse("%d volumes", 3), "3 volumes")
	assert.ErrorIs(t, Refuse("stopped: %w", assert.AnError), assert.AnError)
}
