package progress

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAwaitEndsWithWhatIsAwaited(t *testing.T) {
	var out strings.Builder
	looks := 0
	err := Reporter{Out: &out}.Await(t.Context(), "the volume", func(context.Context) (string, bool, error) {
		looks++
		return "not yet", looks == 2, nil
	})
	assert.NoError(t, err)
	assert.Equal(t, 2, looks)
	assert.Empty(t, out.String(), "a short wait is not worth a line")
}

func TestAwaitEndsWithAnError(t *testing.T) {
	err := Reporter{Out: &strings.Builder{}}.Await(t.Context(), "the volume", func(context.Context) (string, bool, error) {
		return "", false, assert.AnError
	})
	assert.ErrorIs(t, err, assert.AnError)
}

func TestAwaitSaysWhatItWaitedForWhenTimeIsUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := Reporter{Out: &strings.Builder{}}.Await(ctx, "the volume", func(context.Context) (string, bool, error) {
		return "2 claims are left", false, nil
	})
	assert.ErrorContains(t, err, "no longer waiting for the volume")
	assert.ErrorContains(t, err, "2 claims are left")
}

// overdue is a context whose time is up, and which does not know yet.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestAwaitSaysThatTimeIsUpWhereAClientSawThatFirst(t *testing.T) {
	err := Reporter{Out: &strings.Builder{}}.Await(overdue{t.Context()}, "the volume", func(context.Context) (string, bool, error) {
		return "", false, errors.New("rate: Wait(n=1) would exceed context deadline")
	})
	assert.ErrorContains(t, err, "no longer waiting for the volume")
	assert.NotContains(t, err.Error(), "rate")
}

func TestAwaitSaysWhatItWaitedForWhenTheUserStopsIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := Reporter{Out: &strings.Builder{}}.Await(ctx, "the volume", func(context.Context) (string, bool, error) {
		cancel()
		return "", false, assert.AnError
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "run the same command again")
}

func TestAwaitSaysALineForALongWait(t *testing.T) {
	var out strings.Builder
	begun := time.Now()
	err := Reporter{Out: &out}.Await(t.Context(), "the volume", func(context.Context) (string, bool, error) {
		return "1 claim is left", time.Since(begun) > quiet+2*interval, nil
	})
	assert.NoError(t, err)
	assert.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	assert.Contains(t, out.String(), "waiting for the volume (")
	assert.Contains(t, out.String(), ": 1 claim is left")
}
