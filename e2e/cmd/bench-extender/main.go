// Command bench-extender measures what a call of kube-scheduler costs: its own
// client on one side of a loopback connection, the extender's program on the other,
// fed by a server that streams a large cluster. Beside it, in the same run, stands a
// handler that only decodes and encodes with encoding/json. It prints one JSON
// object a measure and ends with status 1 if a budget is not kept.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

func main() {
	rounds := flag.Int("rounds", 7, "how many times each measure is taken")
	yardstick := flag.Bool("yardstick", false, "be the plain handler, in a process of its own, until the input ends")
	only := flag.String("only", "", "take one measure alone: costs, growth, tls, change, connections or memory")
	extender := flag.String("extender", "", "path of the extender's program; empty: it is built from this tree")
	var other rival
	flag.StringVar(&other.url, "rival", "", "prefix of the verbs of another extender: compare whole nodes with it, and nothing else")
	flag.IntVar(&other.pid, "rival-pid", 0, "its process, to read processor time from; 0: leave that out")
	flag.StringVar(&other.annotation, "rival-annotation", "", "key=value of an annotation that it expects on pods and nodes")
	flag.Parse()
	command.Main(func(ctx context.Context) error {
		if *yardstick {
			return measure.Serve(ctx, http.HandlerFunc(echo))
		}
		return run(ctx, *rounds, *only, *extender, other)
	})
}

// measurement takes one kind of measure, so many times.
type measurement func(ctx context.Context, b *bench, rounds int) ([]measure.Result, error)

func run(ctx context.Context, rounds int, only, extender string, other rival) error {
	b, err := newBench(ctx, extender)
	if err != nil {
		return err
	}
	defer b.close()
	if other.url != "" {
		results, err := other.compare(ctx, b, rounds)
		if err != nil {
			return err
		}
		return measure.Conclude(os.Stdout, results)
	}
	measurements := []struct {
		name string
		take measurement
	}{
		{"costs", callCosts}, {"growth", growth}, {"tls", overTLS}, {"change", underChange}, {"connections", connections}, {"memory", memory},
	}
	var results []measure.Result
	for _, m := range measurements {
		if only != "" && only != m.name {
			continue
		}
		more, err := m.take(ctx, b, rounds)
		if err != nil {
			return err
		}
		results = append(results, more...)
	}
	if len(results) == 0 {
		return fmt.Errorf("-only=%s: there is no such measure", only)
	}
	return measure.Conclude(os.Stdout, results)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// bench is what all measures share.
type bench struct {
	directory string
	extender  string
	client    *client
	plain     *yardstick

	many, few   *program
	kubeconfigs int
}

// newBench starts what all measures need. The extender is built unless its path is
// given.
func newBench(ctx context.Context, extender string) (*bench, error) {
	directory, err := os.MkdirTemp("", "bench-extender-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	b := &bench{directory: directory, extender: extender}
	if extender == "" {
		if b.extender, err = largecluster.Build(ctx, directory, "extender"); err != nil {
			b.close()
			return nil, err
		}
	}
	if b.client, err = startClient(ctx); err != nil {
		b.close()
		return nil, err
	}
	if b.plain, err = startYardstick(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// withMany returns the program that knows many claims; it is started once.
func (b *bench) withMany(ctx context.Context) (_ *program, err error) {
	if b.many == nil {
		b.many, err = b.startProgram(ctx, manyClaims)
	}
	return b.many, err
}

// withFew is withMany for few claims.
func (b *bench) withFew(ctx context.Context) (_ *program, err error) {
	if b.few == nil {
		b.few, err = b.startProgram(ctx, fewClaims)
	}
	return b.few, err
}

func (b *bench) close() {
	for _, p := range []*program{b.many, b.few} {
		if p != nil {
			p.Stop()
		}
	}
	if b.client != nil {
		b.client.Stop()
	}
	if b.plain != nil {
		b.plain.Stop()
	}
	_ = os.RemoveAll(b.directory)
}
