package main

import (
	"context"

	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// connections counts what kube-scheduler's client needs for 1,000 calls.
func connections(ctx context.Context, b *bench, _ int) ([]measure.Result, error) {
	const calls = 1000
	ours, err := b.withMany(ctx)
	if err != nil {
		return nil, err
	}
	var opened [2]int64
	for i, t := range []target{ours.target, b.plain.target} {
		if opened[i], err = b.countConnections(ctx, t, calls); err != nil {
			return nil, err
		}
	}
	say("connections for 1,000 calls: %d, of encoding/json %d", opened[0], opened[1])
	return []measure.Result{
		measure.AtMost("connections for 1,000 filter calls", float64(opened[0]), 1, ""),
		measure.Figure("connections for 1,000 filter calls, encoding/json", float64(opened[1]), ""),
	}, nil
}

func (b *bench) countConnections(ctx context.Context, t target, calls int) (int64, error) {
	r, err := newRelay(ctx, t.URL)
	if err != nil {
		return 0, err
	}
	defer r.close()
	t.URL = r.url()
	j := newJob(t, 500, 1)
	j.Calls = calls
	if _, err := b.client.do(j); err != nil {
		return 0, err
	}
	return r.opened.Load(), nil
}
