package story

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

const (
	// often is how often a check looks.
	often = 50 * time.Millisecond

	// sayAfter is when a check that waits says so.
	sayAfter = 4 * time.Second
)

// act is one thing that happens in a step. Its error ends the story.
type act func(context.Context) error

// probe returns nil if something is as it should be, otherwise how it is instead.
type probe func(context.Context) error

// errCheck is the error of a check that failed and was shown.
var errCheck = errors.New("a check failed")

// until checks that a probe succeeds before long.
func (s *story) until(text string, holds probe) act {
	return func(ctx context.Context) error {
		started := time.Now()
		said := false
		waiting, cancel := context.WithTimeout(ctx, s.patience)
		defer cancel()
		var last error
		for {
			err := holds(waiting)
			switch {
			case err == nil:
				return s.passed(text, time.Since(started))
			case ctx.Err() != nil:
				return ctx.Err()
			case last == nil || waiting.Err() == nil:
				last = err // what the end of the time itself brings about says nothing
			}
			if waiting.Err() != nil {
				return s.failed(text, fmt.Errorf("not so after %v: %w", s.patience, last))
			}
			if !said && time.Since(started) > sayAfter {
				said = true
				s.console.waiting(text)
			}
			sleep(waiting, often)
		}
	}
}

// throughout checks that a probe succeeds now and for a while, and still after
// it: a slow machine may have no time for a look in between.
func (s *story) throughout(text string, holds probe) act {
	return func(ctx context.Context) error {
		started := time.Now()
		for over := false; !over; sleep(ctx, often) {
			over = time.Since(started) >= s.consistently
			if err := holds(ctx); ctx.Err() != nil {
				return ctx.Err()
			} else if err != nil {
				return s.failed(text, fmt.Errorf("no longer so after %.1f s: %w", time.Since(started).Seconds(), err))
			}
		}
		return s.passed(fmt.Sprintf("%s, watched for %v", text, s.consistently), 0)
	}
}

// now checks that a probe succeeds.
func (s *story) now(text string, holds probe) act {
	return func(ctx context.Context) error {
		if err := holds(ctx); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			return s.failed(text, err)
		}
		return s.passed(text, 0)
	}
}

func (s *story) passed(text string, took time.Duration) error {
	s.passes++
	s.console.ok(text, took)
	return nil
}

func (s *story) failed(text string, err error) error {
	s.failures++
	s.console.failed(text, err)
	return errCheck
}

// kubectl runs a command in a cluster and shows it as a user would type it, with
// its output.
func (s *story) kubectl(in where, args ...string) act {
	return func(ctx context.Context) error {
		s.console.command(string(in), s.typed(args))
		output, err := s.cluster(in).Kubectl(ctx, "", args...)
		if err != nil {
			return err
		}
		s.console.output(output)
		return nil
	}
}

// apply applies a file of the source tree at home.
func (s *story) apply(file string) act {
	return s.kubectl(home, "apply", "-f", filepath.Join(fabric.Root(), file))
}

// do does what no command does.
func (s *story) do(text string, work func(context.Context) error) act {
	return func(ctx context.Context) error {
		s.console.tell("")
		s.console.note(text)
		return work(ctx)
	}
}

// say tells something between other acts.
func (s *story) say(text string) act {
	return s.do(text, func(context.Context) error { return nil })
}

// where names one of the two clusters.
type where string

const (
	home where = "home"
	west where = "west"
)

func (s *story) cluster(in where) *testbed.Cluster {
	if in == home {
		return s.fabric.Home
	}
	return s.fabric.West
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_./:=,@+-]+$`)

// typed is a kubectl command as one would type it at the root of the source tree.
func (s *story) typed(args []string) string {
	words := []string{"kubectl"}
	for _, arg := range args {
		arg = strings.TrimPrefix(arg, fabric.Root()+string(filepath.Separator))
		if !plain.MatchString(arg) {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
