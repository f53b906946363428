package largecluster

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// Growth is a measurement of a program with few, with half of many and with many pods.
type Growth struct {
	// Program is its name as Build takes it, Called what people call it.
	Program, Called string
	// Size says how large clusters with so many pods are.
	Size func(pods int) string
	// Few and Many are how many pods there are, Single how many single ones are measured.
	Few, Many, Single int
	// Memory is the most memory that the program may ever have with many, in MB.
	Memory float64
	// One says what is measured of one pod.
	One string
	// Start starts the program with so many pods.
	Start func(ctx context.Context, program string, pods int) (*Bed, Measured, error)
}

// Measured is how a started program is measured.
type Measured struct {
	// Settled says of the program's metrics that it has done what it had to.
	Settled func(metrics string) bool
	// Idle returns an error if the program wrote what it should not have to.
	Idle func() error
	// One makes one pod more, the n-th, and returns how long that took.
	One func(ctx context.Context, n int) (time.Duration, error)
}

const (
	// growthBudget is what twice the pods may need beyond what few do.
	growthBudget = 2.1
	// latencyBudget is how much longer one pod may take with many than with few.
	latencyBudget = 1.5
	// podTimeout bounds how long one pod takes.
	podTimeout = time.Minute
)

// Grow measures.
func Grow(ctx context.Context, g Growth) ([]measure.Result, error) {
	directory, err := os.MkdirTemp("", "bench-"+g.Program+"-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(directory)
	program, err := Build(ctx, directory, g.Program)
	if err != nil {
		return nil, err
	}
	var starts [3]measure.Startup
	var latencies [3]time.Duration
	for i, pods := range []int{g.Few, g.Many / 2, g.Many} {
		if starts[i], latencies[i], err = g.at(ctx, program, pods); err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%s with %d pods: %v; one pod %v\n", g.Called, pods, starts[i], latencies[i].Round(100*time.Microsecond))
	}
	base, half, whole := starts[0], starts[1], starts[2]
	what := g.Size(g.Many)
	return []measure.Result{
		measure.AtMost(fmt.Sprintf("most memory of the %s %s", g.Called, what), whole.Peak, g.Memory, "MB"),
		measure.AtMost("the same above that with few pods, to half the pods", (whole.Peak-base.Peak)/(half.Peak-base.Peak), growthBudget, "x"),
		measure.Figure(fmt.Sprintf("start of the %s until it is ready, %s", g.Called, what), whole.Ready.Seconds(), "s"),
		measure.Figure("the same, until all is looked at", whole.Calm.Seconds(), "s"),
		measure.Figure("processor time of that", whole.Used.Seconds(), "s"),
		measure.Figure(g.One+", "+what, float64(latencies[2].Microseconds())/1000, "ms"),
		measure.AtMost("the same, to that with few pods", float64(latencies[2])/float64(latencies[0]), latencyBudget, "x"),
	}, nil
}

// at measures with so many pods.
func (g Growth) at(ctx context.Context, program string, pods int) (s measure.Startup, latency time.Duration, err error) {
	bed, measured, err := g.Start(ctx, program, pods)
	defer bed.Stop()
	if err != nil {
		return s, 0, err
	}
	if s, err = bed.Program.AwaitCalm(ctx, bed.Status, measured.Settled); err != nil {
		return s, 0, err
	}
	if err := measured.Idle(); err != nil {
		return s, 0, err
	}
	var took []time.Duration
	for n := range g.Single + 1 {
		one, err := g.one(ctx, measured, n)
		if err != nil {
			return s, 0, bed.Program.Failed(err)
		}
		if n > 0 { // the first only warms up
			took = append(took, one)
		}
	}
	return s, measure.Median(took), nil
}

func (g Growth) one(ctx context.Context, measured Measured, n int) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, podTimeout, fmt.Errorf("after %v not done: %s", podTimeout, g.One))
	defer cancel()
	return measured.One(ctx, n)
}
