package crash

import (
	"context"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// strike ends the program that the faults have met.
func (b *batch) strike(ctx context.Context, kind kind) (err error) {
	if kind == stops {
		b.first.Kill()
		for _, c := range b.cases {
			c.revive()
		}
		b.first, err = b.start(ctx, 1, false)
		return err
	}
	// It is cut off for good, also from its lease: whether it lives on makes no
	// difference. What it had sent before is held back.
	b.gates[1].setShut(true)
	b.first.Kill()
	if err := b.lead(ctx, 2); err != nil {
		return err
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
	return b.lead(ctx, 1)
}
