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
	"os/signal"
	"strconv"
	"syscall"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

func main() {
	single := flag.Int("single", 15, "how many single claims are measured on each route")
	burst := flag.Int("burst", 200, "how many claims are created at once; 0 leaves that out")
	rounds := flag.Int("rounds", 5, "how many times the burst is measured")
	qps := flag.Float64("controller-manager-qps", 0, "request rate of kube-controller-manager; 0 means its default")
	logs := flag.NewFlagSet("logs", flag.ContinueOnError)
	klog.InitFlags(logs)
	verbosity := flag.Int("v", -1, "log verbosity of the programs under test; below 0 they are silent")
	flag.Parse()
	_ = logs.Set("v", strconv.Itoa(*verbosity))
	if *verbosity < 0 {
		klog.SetLogger(logr.Discard())
	}
	if err := run(*single, *burst, *rounds, float32(*qps)); err != nil {
		fmt.Fprintln(os.Stderr, "bench-provisioning:", err)
		os.Exit(1)
	}
}

func run(single, burst, rounds int, qps float32) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	say("starting two control planes")
	bed, err := fabric.Start(ctx, fabric.Options{ControllerManagerQPS: qps, Audit: true})
	if err != nil {
		return err
	}
	defer bed.Stop()
	if _, err := bed.StartProvisioner(ctx); err != nil {
		return err
	}
	if err := bed.Peer(ctx); err != nil {
		return err
	}
	if err := bed.AwaitReady(ctx, "west", metav1.ConditionTrue); err != nil {
		return err
	}
	b, err := newBench(ctx, bed)
	if err != nil {
		return err
	}
	results, err := b.singles(ctx, single)
	if err != nil {
		return err
	}
	writes, err := b.writes(ctx)
	if err != nil {
		return err
	}
	results = append(results, writes...)
	if burst > 0 {
		more, err := b.bursts(ctx, burst, rounds)
		if err != nil {
			return err
		}
		results = append(results, more...)
	}
	return conclude(results)
}

func conclude(results []measure.Result) error {
	missed := 0
	for _, r := range results {
		if err := r.Write(os.Stdout); err != nil {
			return err
		}
		if !r.OK {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d measures are over their budget", missed, len(results))
	}
	return nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
