// Command bench-provisioning measures how long virtual claims take to be bound,
// beside the real class alone in the same run, on two control planes on
// loopback. It prints one JSON object a measure and ends with status 1 if a
// budget is not kept.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

func main() {
	single := flag.Int("single", 21, "how many single claims are measured on each route, and what is written for each is counted; 0 "+
		"leaves that out")
	burst := flag.Int("burst", 200, "how many claims are created at once, at the default request rate of kube-controller-manager; 0 "+
		"leaves that out")
	rounds := flag.Int("rounds", 5, "how many times the burst is measured")
	large := flag.Int("large", 2000, "how many claims are created at once, at 500 requests a second; 0 leaves that out")
	largeRounds := flag.Int("large-rounds", 3, "how many times that is measured")
	cached := flag.Int("cached", 50_000, "how many claims a provisioner has whose memory and start are measured; 0 leaves that out")
	moves := flag.Int("moves", 500, "how many moves of one tenant claims are measured beside; 0 leaves that out")
	movesRounds := flag.Int("moves-rounds", 7, "how many times that is measured")
	verbosity := flag.Int("v", -1, "log verbosity of the programs under test; below 0 they are silent")
	flag.Parse()
	logs := flag.NewFlagSet("logs", flag.ContinueOnError)
	klog.InitFlags(logs)
	_ = logs.Set("v", strconv.Itoa(*verbosity))
	if *verbosity < 0 {
		klog.SetLogger(logr.Discard())
	}
	command.Main(func(ctx context.Context) error {
		return run(ctx, *single, repeated{*burst, *rounds}, repeated{*large, *largeRounds}, repeated{*moves, *movesRounds}, *cached)
	})
}

// fast is a request rate at which kube-controller-manager holds nothing up. Its
// default, 20 a second, is what bounds a burst.
const fast = 500

// repeated is a number of claims that are created at once, or of moves, some times.
type repeated struct{ claims, rounds int }

func run(ctx context.Context, single int, burst, large, moves repeated, cached int) error {
	var results []measure.Result
	if cached > 0 {
		var err error
		if results, err = memory(ctx, cached); err != nil {
			return err
		}
	}
	if single > 0 || large.claims > 0 {
		more, err := fastBed(ctx, single, large)
		if err != nil {
			return err
		}
		results = append(results, more...)
	}
	if burst.claims > 0 {
		more, err := on(ctx, 0, func(b *bench) ([]measure.Result, error) { return b.bursts(ctx, burst.claims, burst.rounds) })
		if err != nil {
			return err
		}
		results = append(results, more...)
	}
	if moves.claims > 0 {
		more, err := on(ctx, fast, func(b *bench) ([]measure.Result, error) { return b.besideMoves(ctx, moves.claims, moves.rounds) })
		if err != nil {
			return err
		}
		results = append(results, more...)
	}
	return measure.Conclude(os.Stdout, results)
}

// fastBed measures where kube-controller-manager holds nothing up.
func fastBed(ctx context.Context, single int, large repeated) ([]measure.Result, error) {
	return on(ctx, fast, func(b *bench) (results []measure.Result, err error) {
		if single > 0 {
			if results, err = b.singles(ctx, single); err != nil {
				return nil, err
			}
			writes, err := b.writes(ctx)
			if err != nil {
				return nil, err
			}
			results = append(results, writes...)
		}
		if large.claims > 0 {
			more, err := b.bursts(ctx, large.claims, large.rounds)
			if err != nil {
				return nil, err
			}
			results = append(results, more...)
		}
		return results, nil
	})
}

// on measures on two new clusters whose controller managers have a request rate.
func on(ctx context.Context, rate float32, measured func(*bench) ([]measure.Result, error)) ([]measure.Result, error) {
	say("starting two control planes")
	bed, err := fabric.Start(ctx, fabric.Options{ControllerManagerQPS: rate, Audit: true})
	if err != nil {
		return nil, err
	}
	defer bed.Stop()
	provisioner, err := bed.StartProvisioner(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = provisioner.Stop() }()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() { end(fmt.Errorf("the provisioner ended by itself: %w", provisioner.Wait())) }()
	if err := bed.Peer(ctx); err != nil {
		return nil, err
	}
	b, err := newBench(ctx, bed)
	if err != nil {
		return nil, err
	}
	return measured(b)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
