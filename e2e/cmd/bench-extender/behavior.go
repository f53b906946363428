package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// connections counts what kube-scheduler's client needs for 1,000 calls.
func connections(ctx context.Context, _ int) ([]measure.Result, error) {
	t, err := listen(ctx, newServer(newView(fewClaims)).Handler())
	if err != nil {
		return nil, err
	}
	defer t.close()
	for range 1000 {
		if err := t.filter(ctx, newPod(1), nodeNames(100)); err != nil {
			return nil, err
		}
	}
	say("connections for 1,000 calls: %d", t.opened.Load())
	return []measure.Result{measure.AtMost("connections for 1,000 filter calls", float64(t.opened.Load()), 1, "")}, nil
}

// underChange compares the slowest calls while 1,000 objects change a second with
// those of a view at rest.
func underChange(ctx context.Context, rounds int) ([]measure.Result, error) {
	view := newView(manyClaims)
	t, err := listen(ctx, newServer(view).Handler())
	if err != nil {
		return nil, err
	}
	defer t.close()
	var idle, busy []time.Duration
	for range rounds {
		slow, err := slowest(ctx, t)
		if err != nil {
			return nil, err
		}
		idle = append(idle, slow)
		stop := change(ctx, view)
		slow, err = slowest(ctx, t)
		stop()
		if err != nil {
			return nil, err
		}
		busy = append(busy, slow)
	}
	ratio := measure.MedianRatio(busy, idle)
	say("slowest hundredth of calls while 1,000 objects/s change: %s, at rest %s, ratio %.2f", micro(busy), micro(idle), ratio)
	return []measure.Result{measure.AtMost("filter call, p99 while 1,000 objects/s change, to idle", ratio, 2, "x")}, nil
}

// slowest returns the time that 99 of 100 calls stay within.
func slowest(ctx context.Context, t *target) (time.Duration, error) {
	pod, names := newPod(4), nodeNames(500)
	var times []time.Duration
	for range 500 {
		started := time.Now()
		if err := t.filter(ctx, pod, names); err != nil {
			return 0, err
		}
		times = append(times, time.Since(started))
	}
	slices.Sort(times)
	return times[len(times)*99/100], nil
}

// change rewrites claims, 1,000 objects a second, until it is stopped.
func change(ctx context.Context, view *snapshot.Snapshot) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i += 10 {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				for j := range 10 {
					set(view, (i+j)%manyClaims)
				}
			}
		}
	})
	return func() { cancel(); running.Wait() }
}
