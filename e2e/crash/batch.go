package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// limits are the times of a kind of cases.
type limits struct {
	// often is how soon is looked again; calm is how long nothing must have been
	// asked for a case that has ended.
	often, calm time.Duration
	// setUp bounds a set-up, faultWait is how long a fault is waited for, end how long a
	// case may take to end as it must.
	setUp, faultWait, end time.Duration
	// makers is how many cases are set up or acted on at once, size how many one
	// program serves.
	makers, size int
}

var (
	ofClaims = limits{
		often: 50 * time.Millisecond, calm: 500 * time.Millisecond,
		setUp: 90 * time.Second, faultWait: 25 * time.Second, end: 60 * time.Second, makers: 16, size: 150,
	}
	// Applications and movers really run, two processes and more for each case, and a
	// move looks around for 10 seconds after it has let go.
	ofMoves = limits{
		often: 700 * time.Millisecond, calm: 500 * time.Millisecond,
		setUp: 10 * time.Minute, faultWait: 6 * time.Minute, end: 15 * time.Minute, makers: 10, size: 10,
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
	strike, end := w.limits.faultWait, w.limits.end
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
		if err := b.endProgram(ctx, kind); err != nil {
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
	// What one case does must not have changed another's end. A program may look again, as for a probe.
	b.await(ctx, w.limits.often, func(c *Case, v *View) error { return c.Flow.Want(b.World, c, v) }, true)
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

// warnings are those that home says of a case, for the reader of an error.
func (b *batch) warnings(ctx context.Context, c *Case) string {
	events, err := b.Bed.Home.Client().CoreV1().Events(c.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		return "; " + err.Error()
	}
	var text strings.Builder
	for _, e := range events.Items {
		fmt.Fprintf(&text, "; %s/%s %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	return text.String()
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
				if c.Flow.Play != nil && (c.Flow.Early || c.hasActed()) {
					// What fails here is tried again with the next view.
					_ = c.Flow.Play(ctx, b.World, c, view)
				}
				err := missing(c, view)
				if err == nil || ctx.Err() != nil {
					c.noteWait(time.Since(begun))
					return
				}
				if time.Now().After(deadline) {
					if required {
						b.fail(c, fmt.Errorf("after %v: %w%s", limit, err, b.warnings(ctx, c)))
					}
					return
				}
				time.Sleep(b.limits.often)
			}
		})
	}
	running.Wait()
}

// endProgram ends the program that the faults have met.
func (b *batch) endProgram(ctx context.Context, kind kind) (err error) {
	if b.cases[0].Flow.subject() == Plugin {
		// A command was killed by its call. The next one after a takeover has a gate of
		// its own.
		for _, c := range b.cases {
			if kind == stops {
				c.readmit()
			}
		}
		return nil
	}
	if kind == stops {
		b.first.Kill()
		for _, c := range b.cases {
			c.readmit()
		}
		b.first, err = b.start(ctx, 1, false)
		return err
	}
	// It is cut off for good, also from its lease: whether it lives on makes no
	// difference. What it had sent before is held back.
	b.gates[1].setShut(true)
	b.first.Kill()
	if b.agent == "" {
		if err := b.lead(ctx, 2); err != nil {
			return err
		}
	}
	err = awaitLeader(ctx, b.second)
	if err != nil && !b.second.Running() {
		return endOf(b.second)
	}
	return err
}

// stop ends the programs and puts back what the batch changed.
func (b *batch) stop(ctx context.Context) error {
	for _, program := range []*testbed.Program{b.first, b.second} {
		if program != nil {
			program.Kill()
		}
	}
	if !b.gates[1].shut.Load() {
		return nil
	}
	b.gates[1].setShut(false)
	if b.agent != "" {
		return nil
	}
	return b.lead(ctx, 1)
}

// clear removes what is left of cases: of one that ran alone, so that the next finds
// the RemoteCluster as if there had been none, of those with applications, so that
// these end.
func (b *batch) clear(ctx context.Context) {
	b.each(ctx, func(c *Case) error {
		if err := b.undeploy(ctx, c); err != nil {
			return err
		}
		err := b.Bed.Home.Client().CoreV1().PersistentVolumeClaims(c.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("delete the claims of %s: %w", c.Namespace, err)
		}
		return nil
	})
	b.await(ctx, b.limits.end, func(c *Case, v *View) error { return b.gone(c, v) }, true)
}

// Run runs one case until its calls are made, as the flag --case names it: what is a call,
// or a series.
func (w *World) Run(ctx context.Context, flow string, fault Fault, what string) ([]Outcome, error) {
	f, err := FlowOf(flow)
	if err != nil {
		return nil, err
	}
	c, err := w.single(ctx, f, fault, what)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		done, err := w.conclude(ctx, []*Case{c}, fault.info().kind, f.Alone)
		if err != nil {
			return nil, err
		}
		outcomes := done[0].outcomes
		unmet := slices.ContainsFunc(outcomes, func(o Outcome) bool { return !o.Met && o.Err == nil })
		if !unmet || attempt == attempts {
			return outcomes, nil
		}
		c = anew([]*Case{c})[0]
	}
}

// single returns the case of a fault at a call or at those of a series.
func (w *World) single(ctx context.Context, f *Flow, fault Fault, what string) (*Case, error) {
	if what == reads || what == writes {
		calls, err := w.Discover(ctx, []Flow{*f}, true)
		if err != nil {
			return nil, err
		}
		for _, c := range (Options{Faults: []Fault{fault}}).plan([]Flow{*f}, calls) {
			if len(c.Series) > 0 && seriesKind(c.Series) == what {
				return c, nil
			}
		}
		return nil, fmt.Errorf("there is no volley of %s of fault %q in flow %s", what, fault, f.Name)
	}
	calls, err := parseCalls(what)
	if err != nil {
		return nil, err
	}
	for _, call := range calls {
		if !fault.Known() || !fault.meets(call) {
			return nil, fmt.Errorf("fault %q cannot happen at %s", fault, call)
		}
	}
	if len(calls) == 1 {
		return newCase(f, fault, calls[0], newName()), nil
	}
	c := newCase(f, fault, Call{}, newName())
	c.Series = calls
	return c, nil
}
