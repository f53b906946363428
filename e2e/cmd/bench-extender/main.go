// Command bench-extender measures what one filter call costs, with the client of
// kube-scheduler rebuilt on the other side of a loopback connection, beside a
// handler that only decodes and encodes with encoding/json in the same run. It
// prints one JSON object a measure and ends with status 1 if a budget is not
// kept.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/lodestone-storage/lodestone/e2e/measure"
)

func main() {
	rounds := flag.Int("rounds", 7, "how many times each measure is taken")
	child := flag.String("watch", "", "for the measure of memory: run an extender against the API server of this URL until the input ends")
	flag.Parse()
	if *child != "" {
		if err := watchUntilInputEnds(*child); err != nil {
			fmt.Fprintln(os.Stderr, "bench-extender:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench-extender:", err)
		os.Exit(1)
	}
}

func run(rounds int) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var results []measure.Result
	for _, measurement := range []func(context.Context, int) ([]measure.Result, error){
		callCosts, growth, connections, underChange, memory,
	} {
		more, err := measurement(ctx, rounds)
		if err != nil {
			return err
		}
		results = append(results, more...)
	}
	return measure.Conclude(os.Stdout, results)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
