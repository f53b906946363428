// Package crash is the crash sweep: whatever the provisioner does for a claim, it
// is stopped, refused or cut off at each API call that it makes for it, in turn,
// and the claim must still end as its user asked.
//
// The provisioner runs as a process of its own and reaches both clusters through
// a Gate, a proxy that knows which claim each request is for. A Case is one claim
// in namespaces of its own, with one Fault at one Call of one Flow. Cases do not
// see each other, so one process serves many: a case whose provisioner is stopped
// gets nothing through any more, and once every case of the batch is that far the
// process is killed and another one started. To each case it is as if the program
// had died at its call.
//
// Counted are the calls that the provisioner makes for a claim since the user's
// act: every write, every read of one object, and each list of the pods of a namespace
// by which a move looks who uses a volume. Not counted are other lists, which name no
// claim, watches, leases, the regular looks at a remote cluster, and, except for answers
// that are errors, events: client-go writes those from a thread of its own, so
// that no step of a flow comes before or after one.
package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
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
				plan = append(plan, c.retry())
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
		again.Series = c.Series
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

// Discover returns the calls that each flow makes, found by runs without faults: all that
// were made, or those that each run made.
func (w *World) Discover(ctx context.Context, flows []Flow, always bool) (map[string][]Call, error) {
	var together []*Case
	calls, made := map[string][]Call{}, map[string]map[Call]int{}
	learn := func(cases []*Case, alone bool) error {
		wrong, err := w.runCases(ctx, cases, endures, alone)
		if err != nil {
			return err
		}
		for _, c := range cases {
			if wrong[c] != nil {
				return fmt.Errorf("flow %s does not even end well without a fault (namespace %s): %w", c.Flow.Name, c.Namespace, wrong[c])
			}
			if made[c.Flow.Name] == nil {
				made[c.Flow.Name] = map[Call]int{}
			}
			for _, call := range c.made() {
				if made[c.Flow.Name][call]++; made[c.Flow.Name][call] == 1 {
					calls[c.Flow.Name] = append(calls[c.Flow.Name], call)
				}
			}
		}
		return nil
	}
	for i := range flows {
		for range copies {
			c := newCase(&flows[i], "", Call{}, newName())
			if !flows[i].Alone {
				together = append(together, c)
			} else if err := learn([]*Case{c}, true); err != nil {
				return nil, err
			}
		}
	}
	for some := range batches(together, w.limits.size) {
		if err := learn(some, false); err != nil {
			return nil, err
		}
	}
	for flow := range calls {
		calls[flow] = slices.DeleteFunc(calls[flow], func(call Call) bool { return always && made[flow][call] < copies })
	}
	return calls, nil
}

// runCases runs cases on one program; alone is true for just one, to which what
// cases share belongs.
func (w *World) runCases(ctx context.Context, cases []*Case, kind kind, alone bool) (map[*Case]error, error) {
	// A case that ran alone before may have removed it.
	if err := w.restoreCluster(ctx); err != nil {
		return nil, err
	}
	if err := w.through(ctx, cases[0].Flow.Stored); err != nil {
		return nil, err
	}
	if alone {
		w.ledger.setAlone(cases[0])
		defer w.ledger.setAlone(nil)
	}
	return w.run(ctx, cases, kind)
}

// batches are cases that may run at once, in their order and no more than a size: what goes
// through an object store is apart from what does not.
func batches(cases []*Case, size int) iter.Seq[[]*Case] {
	return func(yield func([]*Case) bool) {
		for _, stored := range []bool{false, true} {
			some := slices.DeleteFunc(slices.Clone(cases), func(c *Case) bool { return c.Flow.Stored != stored })
			for batch := range slices.Chunk(some, size) {
				if !yield(batch) {
					return
				}
			}
		}
	}
}

func count(calls map[string][]Call) (n int) {
	for _, c := range calls {
		n += len(c)
	}
	return n
}

// every is how many of the faults of a flow a sample leaves out between two.
const every = 4

func (o Options) plan(flows []Flow, calls map[string][]Call) []*Case {
	wanted := o.Faults
	if len(wanted) == 0 {
		wanted = Faults()
		if flows[0].Moves {
			wanted = MoveFaults()
		}
	}
	var cases []*Case
	for i := range flows {
		for j, fault := range wanted {
			var possible []Call
			for _, call := range flows[i].few(calls[flows[i].Name], j) {
				if fault.meets(call) {
					possible = append(possible, call)
				}
			}
			info := fault.info()
			dies := info.kind != endures || info.mover
			if flows[i].Moves && dies {
				possible = callsThatMatter(possible, info.mover)
			}
			if info.lie != nil && !flows[i].Lied {
				continue
			}
			if flows[i].Moves && info.lie == nil && !o.Sample && o.Most == 0 {
				if dies {
					cases = append(cases, endedCases(&flows[i], fault, possible)...)
				} else {
					cases = append(cases, enduredCases(&flows[i], fault, possible)...)
				}
				continue
			}
			if o.Sample {
				possible = sample(i, j, flows[i].Alone, possible)
			}
			for _, call := range spread(possible, o.Most, j) {
				cases = append(cases, newCase(&flows[i], fault, call, newName()))
			}
		}
	}
	return cases
}

// few leaves out reads where a flow makes the same again and again: of each kind the first
// in each phase of a move, else some, and others for the turn of another fault.
func (f *Flow) few(calls []Call, turn int) []Call {
	if f.Reads == 0 {
		return calls
	}
	if f.Moves {
		turn = 0
	}
	kinds := map[Call][]Call{}
	for _, call := range calls {
		kind := call
		kind.Nth = 0
		kinds[kind] = append(kinds[kind], call)
	}
	return slices.DeleteFunc(slices.Clone(calls), func(call Call) bool {
		kind := call
		kind.Nth = 0
		return !call.writes() && !slices.Contains(spread(kinds[kind], f.Reads, turn), call)
	})
}

// sample chooses at most one of the calls that the j-th fault can happen at in the
// i-th flow: over the flows, all faults and all places in a flow are met. Of flows
// whose cases run alone, and so take long, it takes one fault.
func sample(i, j int, alone bool, possible []Call) []Call {
	if len(possible) == 0 || (i+j)%every != 0 || alone && j >= every {
		return nil
	}
	return possible[(i+3*j)%len(possible):][:1]
}

// spread chooses at most a number of calls, 0 for all, evenly; turn moves the choice.
func spread(calls []Call, most, turn int) []Call {
	if most == 0 || len(calls) <= most {
		return calls
	}
	var some []Call
	for k := range most {
		some = append(some, calls[(k*len(calls)/most+turn*len(calls)/(most*len(Faults())))%len(calls)])
	}
	return some
}

// Part is what of a sweep is done in one world.
type Part struct {
	Options
	// Start starts the world; say is told how the work goes on.
	Start func(ctx context.Context, say func(format string, args ...any)) (*World, error)
}

// Split returns the parts of a sweep, or the one of a case. Without flows all are swept that
// move volumes, or all others. The flows of the remote agent need a world of their own, and
// so do those that move volumes, and among these those between remote clusters.
func Split(o Options, one string, moves bool) ([]Part, error) {
	names := o.Flows
	if one != "" {
		name, _, _ := strings.Cut(one, ",")
		names = []string{name}
	}
	flows, err := flowsOf(names)
	if err != nil {
		return nil, err
	}
	if len(flows) == 0 {
		flows = slices.DeleteFunc(allFlows(), func(f Flow) bool { return f.Moves != moves })
	}
	claims, agents, moving, wide := Part{o, NewWorld}, Part{o, NewAgentWorld}, Part{o, NewMovesWorld}, Part{o, NewWideWorld}
	parts := []*Part{&claims, &agents, &moving, &wide}
	for _, part := range parts {
		part.Flows = nil
	}
	for _, f := range flows {
		part := &claims
		switch {
		case f.Moves != moves:
			return nil, fmt.Errorf("flow %s is one of make %s", f.Name, target(f.Name))
		case f.Wide:
			part = &wide
		case f.Moves:
			part = &moving
		case f.Of == Agent:
			part = &agents
		}
		part.Flows = append(part.Flows, f.Name)
	}
	var some []Part
	for _, part := range parts {
		if len(part.Flows) > 0 {
			some = append(some, *part)
		}
	}
	return some, nil
}

func flowsOf(names []string) (flows []Flow, err error) {
	for _, name := range names {
		f, wrong := FlowOf(name)
		if err = errors.Join(err, wrong); wrong == nil {
			flows = append(flows, *f)
		}
	}
	return flows, err
}
