package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCodeFollowsTheErrorThroughWraps(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want ExitCode
	}{
		"no error":          {want: OK},
		"a plain error":     {err: errors.New("no answer"), want: Failed},
		"a refusal":         {err: Refuse("volumes are there"), want: Refused},
		"a wrapped refusal": {err: fmt.Errorf("unpeer: %w", Refuse("volumes are there")), want: Refused},
		"a wrong flag":      {err: Misuse("no such flag"), want: Usage},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, ExitCodeOf(test.err)) })
	}
	assert.EqualError(t, Refuse("%d volumes", 3), "3 volumes")
	assert.ErrorIs(t, Refuse("stopped: %w", assert.AnError), assert.AnError)
}

func TestOnlyTheWordConfirms(t *testing.T) {
	for name, test := range map[string]struct {
		typed string
		yes   bool
		want  ExitCode
	}{
		"the word":                        {typed: "west\n"},
		"the word without an end of line": {typed: "west"},
		"the flag":                        {yes: true},
		"another word":                    {typed: "yes\n", want: Refused},
		"nothing":                         {want: Refused},
		"the word in capitals":            {typed: "West\n", want: Refused},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			assert.Equal(t, test.want, ExitCodeOf(Ask(t.Context(), strings.NewReader(test.typed), &out, test.yes, "west")))
			assert.Equal(t, !test.yes, strings.Contains(out.String(), "Type west to go on"))
		})
	}
}

// anyKey is of a value in a context.
type anyKey struct{}

func TestTheTimeOfAnAnswerDoesNotCount(t *testing.T) {
	const limit = 200 * time.Millisecond
	ctx, cancel := Within(t.Context(), limit)
	defer cancel()
	in, typed := io.Pipe()
	defer in.Close()
	go func() {
		time.Sleep(2 * limit) // somebody thinks
		_, _ = typed.Write([]byte("west\n"))
	}()
	require.NoError(t, Ask(context.WithValue(ctx, anyKey{}, 1), in, io.Discard, false, "west"))
	require.NoError(t, ctx.Err(), "there is time left for what was asked about")
	until, ok := ctx.Deadline()
	assert.True(t, ok && until.After(time.Now()))

	inner, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	<-inner.Done()
	assert.ErrorIs(t, inner.Err(), context.DeadlineExceeded, "then the time goes on")
	assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
}

func TestALimitEndsWithWhatItIsMadeOf(t *testing.T) {
	parent, stop := context.WithCancel(t.Context())
	ctx, cancel := Within(parent, time.Hour)
	stop()
	<-ctx.Done()
	assert.ErrorIs(t, ctx.Err(), context.Canceled)
	cancel()

	ctx, cancel = Within(t.Context(), time.Hour)
	cancel()
	<-ctx.Done()
	assert.ErrorIs(t, ctx.Err(), context.Canceled)
	over, cancel := Within(t.Context(), -time.Second)
	defer cancel()
	<-over.Done()
	assert.ErrorIs(t, over.Err(), context.DeadlineExceeded)
}

func TestACommandThatIsStoppedWaitsForNoAnswer(t *testing.T) {
	in, _ := io.Pipe()
	defer in.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	err := Ask(ctx, in, io.Discard, false, "west")
	assert.ErrorContains(t, err, `nothing was changed, because the command was stopped before "west" was typed`)
	assert.Equal(t, Refused, ExitCodeOf(err))
	assert.NoError(t, Ask(ctx, in, io.Discard, true, "west"))
}

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

// overdue is a context whose deadline is over and whose Err is still nil.
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
		return "1 claim is left", time.Since(begun) > firstLineAfter+2*interval, nil
	})
	assert.NoError(t, err)
	assert.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	assert.Contains(t, out.String(), "waiting for the volume (")
	assert.Contains(t, out.String(), ": 1 claim is left")
}
