package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// noMore is the budget of a ratio that should be 1, with room for noise.
const noMore = 1.1

// budgets are what a call may cost of what the yardstick costs, by the number of
// names. Where none is written down, it must not cost more.
type budgets struct{ sum, server float64 }

func budgetsOf(names int) budgets {
	switch names {
	case 500:
		return budgets{sum: 0.62, server: 0.216}
	case 5000:
		return budgets{sum: 0.77, server: 0.39}
	default:
		return budgets{sum: noMore, server: noMore}
	}
}

// callCosts measures filter calls of several sizes, each beside the yardstick: the
// extender decides, and must still cost less than a handler that does not.
func callCosts(ctx context.Context, b *bench, rounds int) ([]measure.Result, error) {
	ours, err := b.withMany(ctx)
	if err != nil {
		return nil, err
	}
	say("%6s  %6s  %34s  %34s  %14s", "names", "claims", "extender: client + server = sum", "encoding/json", "ratio (server)")
	var results []measure.Result
	for _, names := range []int{1, 100, 500, 5000} {
		for _, claims := range []int{0, 1, 4} {
			ourCosts, plainCosts, err := b.sideBySide(
				side{ours.Pid(), newJob(ours.target, names, claims)},
				side{b.plain.Pid(), newJob(b.plain.target, names, claims)}, rounds)
			if err != nil {
				return nil, err
			}
			if passed, want := ourCosts[0].report.Passed, passing(names, claims); passed != want {
				return nil, fmt.Errorf("with %d names and %d claims, %d nodes pass instead of %d: the extender does not decide what is measured", names,
					claims, passed, want)
			}
			sum := measure.MedianRatio(ourCosts.sums(), plainCosts.sums())
			server := measure.MedianRatio(ourCosts.servers(), plainCosts.servers())
			say("%6d  %6d  %34s  %34s  %5.2f (%5.2f)", names, claims, ourCosts, plainCosts, sum, server)
			budget := budgetsOf(names)
			what := fmt.Sprintf("filter call, %d names, %d claims", names, claims)
			results = append(results,
				measure.Figure(what, microseconds(ourCosts.sums()), "us client and server"),
				measure.AtMost(what+", client and server", sum, budget.sum, "x encoding/json"),
				measure.AtMost(what+", server", server, budget.server, "x encoding/json"))
		}
	}
	return results, nil
}

// growth compares calls with many and with few cached claims.
func growth(ctx context.Context, b *bench, rounds int) ([]measure.Result, error) {
	many, err := b.withMany(ctx)
	if err != nil {
		return nil, err
	}
	few, err := b.withFew(ctx)
	if err != nil {
		return nil, err
	}
	var results []measure.Result
	for _, names := range []int{500, 5000} {
		manyCosts, fewCosts, err := b.sideBySide(
			side{many.Pid(), newJob(many.target, names, 1)},
			side{few.Pid(), newJob(few.target, names, 1)}, rounds)
		if err != nil {
			return nil, err
		}
		ratio := measure.MedianRatio(manyCosts.sums(), fewCosts.sums())
		say("%d names, 50,000 cached claims to 1,000: %s to %s, ratio %.2f", names, manyCosts, fewCosts, ratio)
		results = append(results, measure.AtMost(fmt.Sprintf("filter call, %d names, 1 claim, 50,000 cached claims", names), ratio, noMore,
			"x 1,000 cached claims"))
	}
	return results, nil
}

// newJob returns filter calls with enough repetitions to be measured.
func newJob(t target, names, claims int) job {
	return job{target: t, Verb: "filter", Pod: newPod(claims), Names: nodeNames(names), Calls: max(20, 20_000/(names+40))}
}

// side is one of two that are compared.
type side struct {
	pid int
	job job
}

// pairs is how many pairs of short measurements make a round: the closer two
// measurements are to each other, the less a busy machine parts them.
const pairs = 3

// sideBySide returns the costs of a and of b, taken in turn.
func (b *bench) sideBySide(a, other side, rounds int) (costs, costs, error) {
	var taken [2]costs
	for pair := range (rounds + 1) * pairs {
		for i, s := range []side{a, other} {
			cost, err := b.client.cost(s.pid, s.job)
			if err != nil {
				return nil, nil, err
			}
			// The first round only warms up.
			if pair >= pairs {
				taken[i] = append(taken[i], cost)
			}
		}
	}
	return taken[0], taken[1], nil
}

type costs []cost

func (c costs) of(part func(cost) time.Duration) []time.Duration {
	parts := make([]time.Duration, len(c))
	for i := range c {
		parts[i] = part(c[i])
	}
	return parts
}

func (c costs) sums() []time.Duration    { return c.of(cost.sum) }
func (c costs) servers() []time.Duration { return c.of(func(c cost) time.Duration { return c.server }) }
func (c costs) clients() []time.Duration { return c.of(func(c cost) time.Duration { return c.client }) }

// String tells the medians of client, server and sum.
func (c costs) String() string {
	return fmt.Sprintf("%.0f + %.0f = %.0f µs", microseconds(c.clients()), microseconds(c.servers()), microseconds(c.sums()))
}

func microseconds(durations []time.Duration) float64 {
	return float64(measure.Median(durations).Nanoseconds()) / 1000
}

// memoryBudget is in MB.
const memoryBudget = 300

// memory measures the most that an extender ever holds, with its start counted, by
// the number of claims.
func memory(ctx context.Context, b *bench, _ int) ([]measure.Result, error) {
	var results []measure.Result
	for _, claims := range []int{fewClaims, manyClaims / 2, manyClaims} {
		p, err := b.startProgram(ctx, claims)
		if err != nil {
			return nil, fmt.Errorf("measure memory with %d claims: %w", claims, err)
		}
		peak, err := measure.MostResident(p.Pid())
		p.Stop()
		if err != nil {
			return nil, err
		}
		say("most memory with %d claims, 5,000 nodes, 10 remote clusters: %.0f MB", claims, peak)
		results = append(results, measure.AtMost(fmt.Sprintf("most memory with %d claims", claims), peak, memoryBudget, "MB"))
	}
	return results, nil
}
