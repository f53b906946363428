package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// copies is how many claims are watched to learn which calls a flow makes;
	// not each makes all of them.
	copies = 3
	// attempts is how often a case is tried until its call is made.
	attempts = 3
)

// Options say which cases are swept.
type Options struct {
	// Flows and Faults are swept; of faults all if there are none.
	Flows  []string
	Faults []Fault
	// Sample sweeps a fixed choice of the calls, at least one of each flow and
	// of each fault.
	Sample bool
	// Most, if not 0, is how many cases are swept of each fault at most, chosen evenly
	// from the whole of what a flow asks for.
	Most int
	// AtOnce, if not 0, is how many cases one program serves.
	AtOnce int
}

// Outcome is what became of one case.
type Outcome struct {
	Flow  string
	Fault Fault
	Call  Call
	// Phase is that of a move when the fault met it; empty where nothing is moved.
	Phase string
	// Met is false if the program never made the call in this run.
	Met bool
	// Err says what is wrong with the end, nil if the case survived.
	Err error
	// Namespace is where what is left of the case can be seen.
	Namespace string
	// Case is how the flag --case runs it again.
	Case string
}

// String is one line that says what is wrong and how to run just this case again.
func (o Outcome) String() string {
	return fmt.Sprintf("%s: %s at %s, in namespace %s: %v\n  again: make %s ARGS='--case=%s'",
		o.Flow, o.Fault.info().says, o.Call, o.Namespace, o.Err, target(o.Flow), o.Case)
}

// Sweep runs all cases of the options and returns what became of each; with an error,
// of those that were over by then.
func (w *World) Sweep(ctx context.Context, o Options) ([]Outcome, error) {
	flows, err := flowsOf(o.Flows)
	if err != nil {
		return nil, err
	}
	if o.AtOnce > 0 {
		w.limits.size = o.AtOnce
	}
	begun := time.Now()
	var alone, together, few []Flow
	for _, f := range flows {
		switch {
		case f.Alone:
			alone = append(alone, f)
		case f.Few:
			few = append(few, f)
		default:
			together = append(together, f)
		}
	}
	// First those alone: what others leave in west keeps its RemoteCluster.
	outcomes, err := w.sweep(ctx, o, alone, 1)
	for _, part := range []struct {
		flows []Flow
		size  int
	}{{together, w.limits.size}, {few, min(atOnce, w.limits.size)}} {
		if err != nil {
			return outcomes, err
		}
		var more []Outcome
		more, err = w.sweep(ctx, o, part.flows, part.size)
		outcomes = append(outcomes, more...)
	}
	if err != nil {
		return outcomes, err
	}
	w.say("%d cases took %v", len(outcomes), time.Since(begun).Round(time.Second))
	return outcomes, nil
}

// sweep sweeps flows in batches of a size.
func (w *World) sweep(ctx context.Context, o Options, flows []Flow, size int) ([]Outcome, error) {
	if len(flows) == 0 {
		return nil, nil
	}
	// A sample waits in vain for no call. A move reports and waits as often as its copy takes
	// long, so there as well only what each run does counts.
	calls, err := w.Discover(ctx, flows, o.Sample || w.moves != nil)
	if err != nil {
		return nil, err
	}
	plan := o.plan(flows, calls)
	w.say("%d flows make %d calls, which gives %d cases", len(flows), count(calls), len(plan))
	var outcomes []Outcome
	for attempt := 1; len(plan) > 0; attempt++ {
		done, failed := w.sweepOnce(ctx, plan, size)
		plan = nil
		for _, c := range done {
			unmet := slices.ContainsFunc(c.outcomes, func(o Outcome) bool { return !o.Met && o.Err == nil })
			if again := failed == nil && unmet && attempt < attempts; again {
				plan = append(plan, c.again())
				c.outcomes = slices.DeleteFunc(c.outcomes, func(o Outcome) bool { return !o.Met })
			} else if unmet {
				w.say("not met: %v", c)
			}
			outcomes = append(outcomes, c.outcomes...)
		}
		if failed != nil {
			return outcomes, failed
		}
	}
	return outcomes, nil
}

type ended struct {
	*Case
	outcomes []Outcome
}

// sweepOnce runs cases in batches, each of one kind of fault.
func (w *World) sweepOnce(ctx context.Context, plan []*Case, size int) ([]ended, error) {
	var done []ended
	for _, kind := range []kind{endures, stops, replaced} {
		var those []*Case
		for _, c := range plan {
			if c.Fault.info().kind == kind {
				those = append(those, c)
			}
		}
		for cases := range batches(those, size) {
			some, err := w.conclude(ctx, cases, kind, cases[0].Flow.Alone)
			for again := 1; errors.Is(err, errDeposed) && again < attempts; again++ {
				w.say("%v: %d cases are run anew", err, len(cases))
				some, err = w.conclude(ctx, anew(cases), kind, cases[0].Flow.Alone)
			}
			if err != nil {
				return done, err
			}
			done = append(done, some...)
		}
	}
	return done, nil
}

// anew returns the same cases in namespaces of their own.
func anew(cases []*Case) []*Case {
	var fresh []*Case
	for _, c := range cases {
		again := newCase(c.Flow, c.Fault, c.Call, newName())
		again.Volley = c.Volley
		fresh = append(fresh, again)
	}
	return fresh
}

func (w *World) conclude(ctx context.Context, cases []*Case, kind kind, alone bool) ([]ended, error) {
	begun := time.Now()
	wrong, err := w.runCases(ctx, cases, kind, alone)
	if err != nil {
		return nil, err
	}
	var done []ended
	for _, c := range cases {
		done = append(done, ended{c, c.outcomes(wrong[c])})
		if wrong[c] != nil {
			made := c.made()
			w.say("did not survive: %v\n  calls, the last of %d: %v", done[len(done)-1].outcomes[0], len(made), made[max(0, len(made)-60):])
		}
	}
	if len(cases) > 1 {
		slowest := slices.MaxFunc(cases, func(a, b *Case) int { return cmp.Compare(a.slowest, b.slowest) })
		w.say("%d cases in %v (%s; log %d; %v took %v)", len(cases), time.Since(begun).Round(time.Second/10), kindNames[kind], w.started,
			slowest, slowest.slowest.Round(time.Second/10))
	}
	return done, nil
}

var kindNames = map[kind]string{endures: "the program goes on", stops: "the program is killed", replaced: "a second replica takes over"}
