package main

import (
	"context"
	"fmt"
	"time"

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

// underChange compares the slowest calls while 1,000 objects change a second with
// those of a cluster at rest.
func underChange(ctx context.Context, b *bench, rounds int) ([]measure.Result, error) {
	ours, err := b.withMany(ctx)
	if err != nil {
		return nil, err
	}
	var results []measure.Result
	for _, names := range []int{500, 5000} {
		j := newJob(ours.target, names, 1)
		// Slowest of what a second or so has room for.
		j.Calls = 600_000 / (names + 700)
		var idle, busy []time.Duration
		var rates []time.Duration
		for range rounds {
			calm, err := b.client.do(j)
			if err != nil {
				return nil, err
			}
			changed, began := ours.cluster.changed.Load(), time.Now()
			ours.cluster.changing.Store(true)
			moved, err := b.client.do(j)
			ours.cluster.changing.Store(false)
			if err != nil {
				return nil, err
			}
			if n := ours.cluster.changed.Load() - changed; n > 0 {
				rates = append(rates, time.Since(began)/time.Duration(n))
			}
			idle, busy = append(idle, calm.slowest()), append(busy, moved.slowest())
		}
		ratio := measure.MedianRatio(busy, idle)
		rate := float64(time.Second) / float64(max(1, measure.Median(rates)))
		say("%d names, slowest hundredth of calls while %.0f objects/s change: %.0f µs, at rest %.0f µs, ratio %.2f", names, rate, microseconds(busy), microseconds(idle), ratio)
		results = append(results,
			measure.Figure(fmt.Sprintf("changes during filter calls, %d names", names), rate, "objects/s"),
			measure.AtMost(fmt.Sprintf("filter call, %d names, 1 claim, p99 while 1,000 objects/s change", names), ratio, 2, "x idle"))
	}
	return results, nil
}
