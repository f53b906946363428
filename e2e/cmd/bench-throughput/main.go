// Command bench-throughput measures how many pods a second kube-scheduler places on
// 1,000 nodes, with and without the extender, and with and without claims: a whole
// control plane on loopback, and Lodestone's programs as processes beside it. It
// prints one JSON object a measure and ends with status 1 if a budget is not kept.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// options say how much is measured.
type options struct {
	rounds, pods, frozen, claims, nodes int
	extender, provisioner               string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how many times each measure is taken")
	flag.IntVar(&o.pods, "pods", 300, "how many pods without claims are placed in a round; 0 leaves that out")
	flag.IntVar(&o.claims, "claims", 100, "how many pods with one claim each are placed in a round; 0 leaves that out")
	flag.IntVar(&o.nodes, "nodes", 1000, "how many nodes there are")
	flag.IntVar(&o.frozen, "frozen", 300, "how many pods without claims are there in a round before the scheduler may place the first; 0 leaves that out")
	flag.StringVar(&o.extender, "extender", "", "path of the extender's program; empty: it is built from this tree")
	flag.StringVar(&o.provisioner, "provisioner", "", "path of the provisioner's program; empty: it is built from this tree")
	instant := flag.Bool("instant", false, "be the extender that answers at once, in a process of its own, until the input ends")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	var err error
	if *instant {
		err = measure.Serve(http.HandlerFunc(answerInstantly))
	} else {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-throughput:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := newBed(ctx, o)
	if err != nil {
		return err
	}
	defer b.stop()
	var results []measure.Result
	for _, measured := range []func(context.Context, *bed, options) ([]measure.Result, error){withoutClaims, frozen, withClaims} {
		more, err := measured(ctx, b, o)
		if err != nil {
			return err
		}
		results = append(results, more...)
	}
	return measure.Conclude(os.Stdout, results)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
