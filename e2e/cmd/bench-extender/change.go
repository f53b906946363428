package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

const (
	// changeRate is how many objects of a changing cluster change in a second; half
	// of them are claims, half volumes.
	changeRate = 1000
	// pace is the time between two lots of changes.
	pace = 10 * time.Millisecond
	// steady is how many claims, and volumes, never change: calls are about them.
	steady = 10
)

// underChange compares the slowest calls while 1,000 objects change a second with
// those of a cluster at rest.
func underChange(ctx context.Context, b *bench, rounds int) ([]measure.Result, error) {
	ours, err := b.withMany(ctx)
	if err != nil {
		return nil, err
	}
	changes := &changes{cluster: ours.cluster}
	var results []measure.Result
	for _, names := range []int{500, 5000} {
		j := newJob(ours.target, names, 1)
		// The slowest of what a second or so has room for.
		j.Calls = 600_000 / (names + 700)
		var idle, busy []time.Duration
		var changed int
		var during time.Duration
		for range rounds {
			calm, err := b.client.do(j)
			if err != nil {
				return nil, err
			}
			stop := changes.start(ctx)
			began := time.Now()
			moved, err := b.client.do(j)
			during += time.Since(began)
			n, changeErr := stop()
			if changed += n; err == nil {
				err = changeErr
			}
			if err != nil {
				return nil, err
			}
			idle, busy = append(idle, calm.slowest()), append(busy, moved.slowest())
		}
		ratio := measure.MedianRatio(busy, idle)
		rate := float64(changed) / during.Seconds()
		say("%d names, slowest hundredth of calls while %.0f objects/s change: %.0f µs, at rest %.0f µs, ratio %.2f", names, rate, microseconds(busy), microseconds(idle), ratio)
		results = append(results,
			measure.Figure(fmt.Sprintf("changes during filter calls, %d names", names), rate, "objects/s"),
			measure.AtMost(fmt.Sprintf("filter call, %d names, 1 claim, p99 while 1,000 objects/s change", names), ratio, 2, "x idle"))
	}
	return results, nil
}

// changes takes objects out of a cluster and puts them back, one after another.
type changes struct {
	cluster *largecluster.Cluster
	next    int
}

// start changes objects until it is stopped; stop says how many.
func (c *changes) start(ctx context.Context) (stop func() (int, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var changed int
	var problem error
	running.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for problem == nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for range changeRate / 2 * pace / time.Second {
				if problem = c.step(); problem != nil {
					return
				}
				changed += 2
			}
		}
	})
	return func() (int, error) {
		cancel()
		running.Wait()
		return changed, problem
	}
}

// step changes one claim and one volume: even steps take them out, odd ones put them
// back.
func (c *changes) step() error {
	what := watch.Deleted
	if c.next%2 == 1 {
		what = watch.Added
	}
	i := steady + c.next/2%(manyClaims-steady)
	c.next++
	for _, path := range []string{largecluster.ClaimsPath, largecluster.VolumesPath} {
		if err := c.cluster.Change(path, what, i); err != nil {
			return fmt.Errorf("change the cluster: %w", err)
		}
	}
	return nil
}
