package crash

import (
	"errors"
	"slices"
	"strings"
)

// The kinds of series, as the flag --case takes them instead of a call.
const (
	reads  = "reads"
	writes = "writes"
)

// seriesKind says what sort of series calls are.
func seriesKind(calls []Call) string {
	if calls[0].writes() {
		return writes
	}
	return reads
}

// enterSeries is enter for a case of which each call of a series meets the fault once. What is
// asked again since it was refused is the same call, and gets through: so no call hides
// another one. The case's lock is held.
func (c *Case) enterSeries(gate int, kind, call Call) verdict {
	if c.met[call] || !slices.Contains(c.Series, call) {
		return pass
	}
	c.met[call], c.reached = true, true
	info := c.Fault.info()
	if !info.carried && !info.mover {
		c.counts[gate][kind]--
	}
	c.cut = info.kind != endures
	return meetFault
}

// seriesName is how the flag --case names a series: by its kind, or by its calls.
func (c *Case) seriesName() string {
	if info := c.Fault.info(); info.kind == endures && !info.mover {
		return seriesKind(c.Series)
	}
	var calls []string
	for _, call := range c.Series {
		calls = append(calls, call.String())
	}
	return strings.Join(calls, seriesSeparator)
}

// seriesSeparator is between the calls of a series that are given one by one.
const seriesSeparator = "+"

func parseCalls(text string) (calls []Call, err error) {
	for part := range strings.SplitSeq(text, seriesSeparator) {
		call, wrong := ParseCall(part)
		calls, err = append(calls, call), errors.Join(err, wrong)
	}
	return calls, err
}

// unmet returns the calls of a series that were not made.
func (c *Case) unmet() (calls []Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.Series {
		if !c.met[call] {
			calls = append(calls, call)
		}
	}
	return calls
}

// outcomes are what became of a case, one for each of its calls.
func (c *Case) outcomes(wrong error) (all []Outcome) {
	o := Outcome{Flow: c.Flow.Name, Fault: c.Fault, Call: c.Call, Phase: c.metAt(), Met: c.faultHappened(), Err: wrong, Namespace: c.Namespace,
		Case: c.String()}
	if len(c.Series) == 0 {
		return []Outcome{o}
	}
	unmet := c.unmet()
	for _, call := range c.Series {
		o.Call, o.Phase, o.Met = call, call.Phase, !slices.Contains(unmet, call)
		all = append(all, o)
	}
	return all
}

// retry returns the case that tries what was not met in a namespace of its own.
func (c *Case) retry() *Case {
	fresh := newCase(c.Flow, c.Fault, c.Call, newName())
	fresh.Series = c.unmet()
	return fresh
}

// enduredCases returns the cases of a fault that the program endures at calls: one move for all
// reads, and one for all writes.
func enduredCases(f *Flow, fault Fault, calls []Call) (cases []*Case) {
	for _, sort := range []string{reads, writes} {
		c := newCase(f, fault, Call{}, newName())
		for _, call := range calls {
			if call.writes() == (sort == writes) {
				c.Series = append(c.Series, call)
			}
		}
		if len(c.Series) > 0 {
			cases = append(cases, c)
		}
	}
	return cases
}

// maxEndsPerMove is how many calls of one move at most meet a fault that ends the program or a
// mover: it goes on from each such end as from any other.
const maxEndsPerMove = 6

// endedCases returns the cases of a fault that ends a program or a mover at calls: each move
// meets it several times, at calls that are far from each other.
func endedCases(f *Flow, fault Fault, calls []Call) (cases []*Case) {
	moves := (len(calls) + maxEndsPerMove - 1) / maxEndsPerMove
	for i := range moves {
		c := newCase(f, fault, Call{}, newName())
		for j := i; j < len(calls); j += moves {
			c.Series = append(c.Series, calls[j])
		}
		cases = append(cases, c)
	}
	return cases
}

// reports is how many of a phase's reports of how far a copy is meet a fault of a mover.
const reports = 3

// callsThatMatter returns the calls of a move at which it makes a difference that a program or a
// mover dies. A program that dies at a read leaves what the last write left, so one read of
// each phase does; and of the reports of how far a copy is, one of each phase, but a few for
// movers: they are what comes in the middle of a stream.
func callsThatMatter(calls []Call, mover bool) (some []Call) {
	read, most := map[string]bool{}, 1
	if mover {
		most = reports
	}
	for _, call := range calls {
		switch {
		case call.Object == "volumemove.status" && call.Nth > most, !call.writes() && read[call.Phase]:
			continue
		case !call.writes():
			read[call.Phase] = true
		}
		some = append(some, call)
	}
	return some
}
