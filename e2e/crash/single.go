package crash

import (
	"context"
	"fmt"
	"slices"
)

// Run runs one case until its calls are made, as the flag --case names it: what is a call,
// or a volley.
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

// single returns the case of a fault at a call or at those of a volley.
func (w *World) single(ctx context.Context, f *Flow, fault Fault, what string) (*Case, error) {
	if what == reads || what == writes {
		calls, err := w.Discover(ctx, []Flow{*f}, true)
		if err != nil {
			return nil, err
		}
		for _, c := range (Options{Faults: []Fault{fault}}).plan([]Flow{*f}, calls) {
			if len(c.Volley) > 0 && sortOf(c.Volley) == what {
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
	c.Volley = calls
	return c, nil
}
