// Package progress waits for what others do, and says meanwhile what it waits
// for.
package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// interval is how often is looked. A user waits with the command, so seconds
	// count, and one user does not burden an API server.
	interval = 300 * time.Millisecond
	// quiet is how long a wait is not worth a line, repeat how often a line is
	// repeated while nothing changes.
	quiet, repeat = time.Second, 10 * time.Second
)

// Reporter writes lines for a user who waits.
type Reporter struct{ Out io.Writer }

// Say writes one line.
func (r Reporter) Say(format string, args ...any) {
	fmt.Fprintf(r.Out, format+"\n", args...)
}

// Await calls look until it says done or returns an error, and says what is
// awaited, since when, and the state that look returned last. When ctx ends, the
// error names both.
func (r Reporter) Await(ctx context.Context, what string, look func(context.Context) (state string, done bool, err error)) error {
	begun := time.Now()
	var last string
	var said string
	var saidAt time.Time
	for {
		state, done, err := look(ctx)
		switch {
		case ctx.Err() != nil, err != nil && past(ctx):
			return late(ctx, what, last, time.Since(begun))
		case err != nil:
			return err
		case done:
			return nil
		}
		last = state
		waited := time.Since(begun)
		if waited >= quiet && (saidAt.IsZero() || said != state || time.Since(saidAt) >= repeat) {
			r.Say("waiting for %s (%s)%s", what, waited.Round(time.Second), now(state))
			said, saidAt = state, time.Now()
		}
		select {
		case <-ctx.Done():
			return late(ctx, what, last, time.Since(begun))
		case <-time.After(interval):
		}
	}
}

// past says whether the time is up. Clients look at the clock and say so in words of their own;
// the context may be told a moment later.
func past(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

func late(ctx context.Context, what, state string, waited time.Duration) error {
	if !errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("no longer waiting for %s after %s%s; run the same command again to go on", what, waited.Round(time.Second), now(state))
	}
	return fmt.Errorf("stopped while waiting for %s%s; run the same command again to go on: %w", what, now(state), ctx.Err())
}

func now(state string) string {
	if state == "" {
		return ""
	}
	return ": " + state
}
