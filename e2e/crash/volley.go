package crash

import (
	"errors"
	"slices"
	"strings"
)

// The sorts of volleys, as the flag --case takes them instead of a call.
const (
	reads  = "reads"
	writes = "writes"
)

// sortOf returns which volley calls make.
func sortOf(calls []Call) string {
	if calls[0].writes() {
		return writes
	}
	return reads
}

// volley is enter for a case of which each call of a volley meets the fault once. What is
// asked again since it was refused is the same call, and gets through: so no call hides
// another one. The case's lock is held.
func (c *Case) volley(gate int, kind, call Call) verdict {
	if c.met[call] || !slices.Contains(c.Volley, call) {
		return pass
	}
	c.met[call], c.reached = true, true
	info := c.Fault.info()
	if !info.carried && !info.mover {
		c.counts[gate][kind]--
	}
	c.cut = info.kind != endures
	return strike
}

// named is how the flag --case names a volley: by its sort, or by its calls.
func (c *Case) named() string {
	if info := c.Fault.info(); info.kind == endures && !info.mover {
		return sortOf(c.Volley)
	}
	var calls []string
	for _, call := range c.Volley {
		calls = append(calls, call.String())
	}
	return strings.Join(calls, then)
}

// then is between the calls of a volley that are given one by one.
const then = "+"

// parseCalls reads calls.
func parseCalls(text string) (calls []Call, err error) {
	for part := range strings.SplitSeq(text, then) {
		call, wrong := ParseCall(part)
		calls, err = append(calls, call), errors.Join(err, wrong)
	}
	return calls, err
}

// unmet returns the calls of a volley that were not made.
func (c *Case) unmet() (calls []Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.Volley {
		if !c.met[call] {
			calls = append(calls, call)
		}
	}
	return calls
}

// outcomes are what became of a case, one for each of its calls.
func (c *Case) outcomes(wrong error) (all []Outcome) {
	o := Outcome{Flow: c.Flow.Name, Fault: c.Fault, Call: c.Call, Phase: c.metAt(), Met: c.struck(), Err: wrong, Namespace: c.Namespace, Case: c.String()}
	if len(c.Volley) == 0 {
		return []Outcome{o}
	}
	unmet := c.unmet()
	for _, call := range c.Volley {
		o.Call, o.Phase, o.Met = call, call.Phase, !slices.Contains(unmet, call)
		all = append(all, o)
	}
	return all
}

// again returns the case that tries what was not met in a namespace of its own.
func (c *Case) again() *Case {
	fresh := newCase(c.Flow, c.Fault, c.Call, newName())
	fresh.Volley = c.unmet()
	return fresh
}

// volleys returns the cases of a fault that the program endures at calls: one move for all
// reads, and one for all writes.
func volleys(f *Flow, fault Fault, calls []Call) (cases []*Case) {
	for _, sort := range []string{reads, writes} {
		c := newCase(f, fault, Call{}, newName())
		for _, call := range calls {
			if call.writes() == (sort == writes) {
				c.Volley = append(c.Volley, call)
			}
		}
		if len(c.Volley) > 0 {
			cases = append(cases, c)
		}
	}
	return cases
}

// atMost is how many calls of one move at most meet a fault that ends the program or a
// mover: it goes on from each such end as from any other.
const atMost = 6

// series returns the cases of a fault that ends a program or a mover at calls: each move
// meets it several times, at calls that are far from each other.
func series(f *Flow, fault Fault, calls []Call) (cases []*Case) {
	moves := (len(calls) + atMost - 1) / atMost
	for i := range moves {
		c := newCase(f, fault, Call{}, newName())
		for j := i; j < len(calls); j += moves {
			c.Volley = append(c.Volley, calls[j])
		}
		cases = append(cases, c)
	}
	return cases
}

// reports is how many of a phase's reports of how far a copy is meet a fault of a mover.
const reports = 3

// telling returns the calls of a move at which it makes a difference that a program or a
// mover dies. A program that dies at a read leaves what the last write left, so one read of
// each phase does; and of the reports of how far a copy is, one of each phase, but a few for
// movers: they are what comes in the middle of a stream.
func telling(calls []Call, mover bool) (some []Call) {
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
