package crash

import (
	"context"
	"fmt"
	"iter"
	"slices"
)

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
