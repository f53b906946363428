package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// ExitCode is the exit code of the program.
type ExitCode int

const (
	// OK means that the command did, or found, what was asked for.
	OK ExitCode = 0
	// Failed means that it could not be done, or not yet; the same command may be tried again.
	Failed ExitCode = 1
	// Usage means that the command line is wrong.
	Usage ExitCode = 2
	// Refused means that it would harm data or an existing peering, so nothing was done.
	Refused ExitCode = 3
)

type exitError struct {
	error
	code ExitCode
}

func (c exitError) Unwrap() error { return c.error }

// Refuse returns an error with the exit code Refused, for a request that would do harm.
func Refuse(format string, args ...any) error {
	return exitError{error: fmt.Errorf(format, args...), code: Refused}
}

// Misuse returns the error of a wrong command line.
func Misuse(format string, args ...any) error {
	return exitError{error: fmt.Errorf(format, args...), code: Usage}
}

// ExitCodeOf returns the exit code of an error; OK of none.
func ExitCodeOf(err error) ExitCode {
	var c exitError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &c):
		return c.code
	}
	return Failed
}

const (
	// interval is how often Await polls. A user waits for the command, so seconds count, and one
	// user is no load for an API server.
	interval = 300 * time.Millisecond
	// firstLineAfter is how long Await waits before it writes a line, sameLineAfter how often it
	// repeats the line while nothing changes.
	firstLineAfter, sameLineAfter = time.Second, 10 * time.Second
)

// Reporter writes lines for a user who waits.
type Reporter struct{ Out io.Writer }

// Say writes one line.
func (r Reporter) Say(format string, args ...any) {
	fmt.Fprintf(r.Out, format+"\n", args...)
}

// Await calls look until it returns done or an error. Meanwhile it writes what is awaited, since
// when, and the state that look returned last. When ctx ends, the error contains what and that
// state.
func (r Reporter) Await(ctx context.Context, what string, look func(context.Context) (state string, done bool, err error)) error {
	begun := time.Now()
	var last string
	var said string
	var saidAt time.Time
	for {
		state, done, err := look(ctx)
		switch {
		case ctx.Err() != nil, err != nil && deadlinePassed(ctx):
			return timeoutError(ctx, what, last, time.Since(begun))
		case err != nil:
			return err
		case done:
			return nil
		}
		last = state
		waited := time.Since(begun)
		if waited >= firstLineAfter && (saidAt.IsZero() || said != state || time.Since(saidAt) >= sameLineAfter) {
			r.Say("waiting for %s (%s)%s", what, waited.Round(time.Second), stateSuffix(state))
			said, saidAt = state, time.Now()
		}
		select {
		case <-ctx.Done():
			return timeoutError(ctx, what, last, time.Since(begun))
		case <-time.After(interval):
		}
	}
}

// deadlinePassed reports whether the deadline of ctx is over. Clients compare the deadline with the
// clock and return errors of their own for it, sometimes a moment before ctx.Err does.
func deadlinePassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

func timeoutError(ctx context.Context, what, state string, waited time.Duration) error {
	if !errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("no longer waiting for %s after %s%s; run the same command again to go on", what, waited.Round(time.Second),
			stateSuffix(state))
	}
	return fmt.Errorf("stopped while waiting for %s%s; run the same command again to go on: %w", what, stateSuffix(state), ctx.Err())
}

func stateSuffix(state string) string {
	if state == "" {
		return ""
	}
	return ": " + state
}
