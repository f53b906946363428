package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

const (
	manyClaims = 50_000
	fewClaims  = 1_000

	// noMore is the budget of a ratio that should be 1, with room for noise.
	noMore = 1.2
)

// callCosts measures calls of several sizes, each beside the yardstick: the
// extender decides and must still cost no more than a handler that does not.
func callCosts(ctx context.Context, rounds int) ([]measure.Result, error) {
	ours, err := listen(ctx, newServer(newView(manyClaims)).Handler())
	if err != nil {
		return nil, err
	}
	defer ours.close()
	yardstick, err := listen(ctx, http.HandlerFunc(echo))
	if err != nil {
		return nil, err
	}
	defer yardstick.close()

	say("%9s  %6s  %12s  %12s  %6s", "nodes", "claims", "extender", "encoding/json", "ratio")
	var results []measure.Result
	for _, nodes := range []int{1, 100, 500, 5000} {
		for _, claims := range []int{0, 1, 4} {
			costs, err := sideBySide(ctx, ours, yardstick, nodes, claims, rounds)
			if err != nil {
				return nil, err
			}
			ratio := measure.MedianRatio(costs[0], costs[1])
			say("%9d  %6d  %12s  %12s  %6.2f", nodes, claims, micro(costs[0]), micro(costs[1]), ratio)
			results = append(results, measure.AtMost(fmt.Sprintf("filter call, %d nodes, %d claims, to plain encoding/json", nodes, claims), ratio, noMore, "x"))
		}
	}
	return results, nil
}

// growth compares calls with few and with many cached claims.
func growth(ctx context.Context, rounds int) ([]measure.Result, error) {
	many, err := listen(ctx, newServer(newView(manyClaims)).Handler())
	if err != nil {
		return nil, err
	}
	defer many.close()
	few, err := listen(ctx, newServer(newView(fewClaims)).Handler())
	if err != nil {
		return nil, err
	}
	defer few.close()
	costs, err := sideBySide(ctx, many, few, 500, 4, rounds)
	if err != nil {
		return nil, err
	}
	ratio := measure.MedianRatio(costs[0], costs[1])
	say("50,000 cached claims to 1,000: %s to %s, ratio %.2f", micro(costs[0]), micro(costs[1]), ratio)
	return []measure.Result{measure.AtMost("filter call, 50,000 cached claims to 1,000", ratio, noMore, "x")}, nil
}

// pairs is how many pairs of short measurements make a round: the closer two
// measurements are to each other, the less a busy machine parts them.
const pairs = 3

// sideBySide returns the costs of calls to a and to b, taken in turn.
func sideBySide(ctx context.Context, a, b *target, nodes, claims, rounds int) ([2][]time.Duration, error) {
	pod, names := newPod(claims), nodeNames(nodes)
	calls := max(20, 20_000/(nodes+40))
	var costs [2][]time.Duration
	for pair := range (rounds + 1) * pairs {
		for i, t := range []*target{a, b} {
			// Or the one would pay for what the other left behind.
			runtime.GC()
			cost, err := t.cost(ctx, pod, names, calls)
			if err != nil {
				return costs, err
			}
			// The first round only warms up.
			if pair >= pairs {
				costs[i] = append(costs[i], cost)
			}
		}
	}
	return costs, nil
}

func nodeNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = largecluster.NodeName(i)
	}
	return names
}

func micro(costs []time.Duration) string {
	return measure.Median(costs).Round(time.Microsecond).String()
}
