package crash

import "slices"

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
	if !c.Fault.info().carried {
		c.counts[gate][kind]--
	}
	return strike
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

// telling returns the calls of a move at which it makes a difference that a program or a
// mover dies. One that dies at a read leaves what the last write left, so one read of each
// phase does; and of the reports of how far a copy is, one of each phase.
func telling(calls []Call) (some []Call) {
	read := map[string]bool{}
	for _, call := range calls {
		switch {
		case call.Object == "volumemove.status" && call.Nth > 1, !call.writes() && read[call.Phase]:
			continue
		case !call.writes():
			read[call.Phase] = true
		}
		some = append(some, call)
	}
	return some
}
