package crash

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// strike ends the program that the faults have met.
func (b *batch) strike(ctx context.Context, kind kind) (err error) {
	if b.cases[0].Flow.subject() == Plugin {
		// A command was killed by its call. The next one after a takeover has a gate of
		// its own.
		for _, c := range b.cases {
			if kind == stops {
				c.revive()
			}
		}
		return nil
	}
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
		err := b.Bed.Home.Client().CoreV1().PersistentVolumeClaims(c.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("delete the claims of %s: %w", c.Namespace, err)
		}
		return nil
	})
	b.await(ctx, b.limits.end, func(c *Case, v *View) error { return b.gone(c, v) }, true)
}
