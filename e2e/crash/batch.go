package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// limits are the times of a kind of cases.
type limits struct {
	// often is how soon is looked again; calm is how long nothing must have been
	// asked for a case that has ended.
	often, calm time.Duration
	// setUp bounds a set-up, strike is how long a fault is waited for, end how long a
	// case may take to end as it must.
	setUp, strike, end time.Duration
	// makers is how many cases are set up or acted on at once, size how many one
	// program serves.
	makers, size int
}

var (
	ofClaims = limits{
		often: 50 * time.Millisecond, calm: 500 * time.Millisecond,
		setUp: 90 * time.Second, strike: 25 * time.Second, end: 60 * time.Second, makers: 16, size: 150,
	}
	// Applications and movers really run, two processes and more for each case, and a
	// move looks around for 10 seconds after it has let go.
	ofMoves = limits{
		often: 700 * time.Millisecond, calm: 500 * time.Millisecond,
		setUp: 10 * time.Minute, strike: 6 * time.Minute, end: 15 * time.Minute, makers: 10, size: 10,
	}
)

const often = 50 * time.Millisecond

// run runs cases whose faults are of one kind on one program, and returns what is
// wrong with the end of each, nil for nothing. The error is for what is no fault
// of a case.
func (w *World) run(ctx context.Context, cases []*Case, kind kind) (_ map[*Case]error, err error) {
	b := &batch{World: w, cases: cases, wrong: map[*Case]error{}}
	defer func() { err = errors.Join(err, b.stop(ctx)) }()
	// Beside a command the provisioner is the same all the time.
	replaces := kind == replaced && cases[0].Flow.subject() != Plugin
	if b.first, err = w.start(ctx, 1, replaces); err != nil {
		return nil, err
	}
	if replaces {
		// Else it might be the second that leads.
		if err := awaitLeader(ctx, b.first); err != nil {
			return nil, err
		}
		if b.second, err = w.start(ctx, 2, true); err != nil {
			return nil, err
		}
	}
	if err := b.setUp(ctx); err != nil {
		return nil, err
	}
	b.each(ctx, func(c *Case) error {
		c.act(w.view(c))
		if c.Flow.Act == nil {
			return nil
		}
		return c.Flow.Act(ctx, w, c)
	})
	strike, end := w.limits.strike, w.limits.end
	if cases[0].Flow.subject() != Provisioner {
		strike, end = patience, patience
	}
	for again := kind != endures; again; {
		b.await(ctx, strike, func(c *Case, v *View) error {
			if c.isCut() {
				return nil
			}
			return b.ended(c, v)
		}, false)
		if again = b.more(kind); !again && kind == stops {
			break
		}
		if err := b.strike(ctx, kind); err != nil {
			return nil, err
		}
	}
	b.await(ctx, end, b.ended, true)
	b.await(ctx, end, b.delivered, true)
	for _, program := range []*testbed.Program{b.first, b.second} {
		if program != nil && !program.Running() && (program != b.first || !replaces) {
			return nil, endOf(program)
		}
	}
	// What one case does must not have changed another's end.
	// The agent looks at namespaces again and again.
	b.await(ctx, w.limits.often, func(c *Case, v *View) error {
		if c.Flow.subject() == Agent {
			return c.Flow.Want(b.World, c, v)
		}
		return b.ended(c, v)
	}, true)
	for _, c := range cases {
		c.conclude()
	}
	if b.ledger.isAlone() || b.moves != nil {
		b.clear(ctx)
	}
	return b.wrong, ctx.Err()
}

// more says whether the program is to be ended once more: it was cut off from a case.
func (b *batch) more(kind kind) bool {
	return kind == stops && slices.ContainsFunc(b.cases, func(c *Case) bool { return c.isCut() && !b.failed(c) })
}

// batch is cases that run at once.
type batch struct {
	*World
	cases         []*Case
	first, second *testbed.Program

	mu    sync.Mutex
	wrong map[*Case]error
}

func (b *batch) fail(c *Case, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrong[c] == nil {
		b.wrong[c] = err
	}
}

func (b *batch) failed(c *Case) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wrong[c] != nil
}

// each does something for all cases that are well, some at once.
func (b *batch) each(ctx context.Context, do func(c *Case) error) {
	slots := make(chan struct{}, b.limits.makers)
	var running sync.WaitGroup
	for _, c := range b.cases {
		if ctx.Err() != nil || b.failed(c) {
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			if err := do(c); err != nil {
				b.fail(c, err)
			}
		})
	}
	running.Wait()
}

func (b *batch) setUp(ctx context.Context) error {
	for _, c := range b.cases {
		b.ledger.add(c)
	}
	b.each(ctx, func(c *Case) error { return b.newNamespaces(ctx, c) })
	b.each(ctx, func(c *Case) error {
		if err := b.awaitRights(ctx, c); err != nil || c.Flow.Setup == nil {
			return err
		}
		return c.Flow.Setup(ctx, b.World, c)
	})
	b.await(ctx, b.limits.setUp, func(c *Case, v *View) error {
		if c.Flow.Ready == nil {
			return nil
		}
		if err := c.Flow.Ready(b.World, c, v); err != nil {
			return fmt.Errorf("set-up: %w", err)
		}
		return b.resting(c)
	}, true)
	return ctx.Err()
}

func (w *World) resting(c *Case) error {
	if quiet := c.quiet(); quiet < w.limits.calm {
		return errors.New("the program does not rest")
	}
	return nil
}

// ended says what is missing to the end of a case.
func (b *batch) ended(c *Case, v *View) error {
	if err := c.Flow.Want(b.World, c, v); err != nil {
		return err
	}
	return b.resting(c)
}

// delivered has a request that is still held back carried out now, and waits until
// the case has ended in spite of that.
func (b *batch) delivered(c *Case, v *View) error {
	if late := c.release(); late != nil {
		late.send()
		return errors.New("the late call has only just arrived")
	}
	return b.ended(c, v)
}

// await waits until all cases are as they should be, while the world around them
// goes on. If required, a case that is not in time has failed.
func (b *batch) await(ctx context.Context, limit time.Duration, missing func(*Case, *View) error, required bool) {
	begun := time.Now()
	deadline := begun.Add(limit)
	var running sync.WaitGroup
	for _, c := range b.cases {
		if b.failed(c) {
			continue
		}
		running.Go(func() {
			for {
				view := b.view(c)
				if c.Flow.Play != nil && (c.Flow.Early || c.played()) {
					// What fails here is tried again with the next view.
					_ = c.Flow.Play(ctx, b.World, c, view)
				}
				err := missing(c, view)
				if err == nil || ctx.Err() != nil {
					c.took(time.Since(begun))
					return
				}
				if time.Now().After(deadline) {
					if required {
						b.fail(c, fmt.Errorf("after %v: %w", limit, err))
					}
					return
				}
				time.Sleep(b.limits.often)
			}
		})
	}
	running.Wait()
}
