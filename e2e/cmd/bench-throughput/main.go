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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
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
	flag.IntVar(&o.frozen, "frozen", 300, "how many pods without claims are there in a round before the scheduler may place the first; 0 "+
		"leaves that out")
	flag.StringVar(&o.extender, "extender", "", "path of the extender's program; empty: it is built from this tree")
	flag.StringVar(&o.provisioner, "provisioner", "", "path of the provisioner's program; empty: it is built from this tree")
	instant := flag.Bool("instant", false, "be the extender that answers at once, in a process of its own, until the input ends")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	command.Main(func(ctx context.Context) error {
		if *instant {
			return measure.Serve(ctx, http.HandlerFunc(answerInstantly))
		}
		return run(ctx, o)
	})
}

func run(ctx context.Context, o options) error {
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

// The budgets of pods a second are 0.9 and 0.8 times the yardstick's; these are the
// times for the same pods. Where a volume is made for each pod, two claims are bound
// instead of one, and the budget is that of many claims at once.
const (
	withoutClaimsBudget = 1 / 0.9
	withClaimsBudget    = 1 / 0.8
	newClaimsBudget     = 2.3
)

// withoutClaims compares schedulers with an extender to one without, for pods that
// have no claims.
func withoutClaims(ctx context.Context, b *bed, o options) ([]measure.Result, error) {
	if o.pods == 0 {
		return nil, nil
	}
	settings := []setting{
		{name: "no extender"},
		{name: "an extender that answers at once", extender: b.instant},
		{name: "Lodestone", extender: b.ours},
		{name: "Lodestone, asked about marked pods alone", extender: b.ours, marked: true},
	}
	took, used, err := b.interleaved(ctx, settings, o.pods, o.rounds)
	if err != nil {
		return nil, err
	}
	results := figures("pods without claims", settings, took, used, o.pods)
	return append(results,
		measure.Figure("time for pods without claims, an extender that answers at once", measure.MedianRatio(took[1], took[0]), "x no extender"),
		measure.AtMost("time for pods without claims, Lodestone", measure.MedianRatio(took[2], took[0]), withoutClaimsBudget, "x no extender"),
		measure.AtMost("time for pods without claims, Lodestone, asked about marked pods alone", measure.MedianRatio(took[3], took[0]),
			withoutClaimsBudget, "x no extender")), nil
}

// frozen is withoutClaims with all pods there before the scheduler may place the first:
// nothing but the scheduler then holds it up. No cluster creates pods that fast, so
// there is no budget.
func frozen(ctx context.Context, b *bed, o options) ([]measure.Result, error) {
	if o.frozen == 0 {
		return nil, nil
	}
	settings := []setting{
		{name: "no extender", frozen: true},
		{name: "an extender that answers at once", extender: b.instant, frozen: true},
		{name: "Lodestone", extender: b.ours, frozen: true},
	}
	took, used, err := b.interleaved(ctx, settings, o.frozen, o.rounds)
	if err != nil {
		return nil, err
	}
	results := figures("pods without claims, all there at once", settings, took, used, o.frozen)
	return append(results,
		measure.Figure("time for pods without claims, all there at once, an extender that answers at once", measure.MedianRatio(took[1], took[0]),
			"x no extender"),
		measure.Figure("time for pods without claims, all there at once, Lodestone", measure.MedianRatio(took[2], took[0]), "x no extender")), nil
}

// withClaims compares a stock scheduler and the real class alone to Lodestone, for
// pods with one claim each.
func withClaims(ctx context.Context, b *bed, o options) ([]measure.Result, error) {
	if o.claims == 0 {
		return nil, nil
	}
	var results []measure.Result
	for _, claims := range []struct {
		what   string
		bound  bool
		budget float64
	}{
		{what: "pods with one claim that has its volume", bound: true, budget: withClaimsBudget},
		{what: "pods with one new claim", budget: newClaimsBudget},
	} {
		settings := []setting{
			{name: "stock scheduler, real class", class: realClass, bound: claims.bound},
			{name: "Lodestone, virtual class", extender: b.ours, class: fabric.Class, bound: claims.bound},
		}
		took, used, err := b.interleaved(ctx, settings, o.claims, o.rounds)
		if err != nil {
			return nil, err
		}
		results = append(results, figures(claims.what, settings, took, used, o.claims)...)
		results = append(results, measure.AtMost("time for "+claims.what+", Lodestone", measure.MedianRatio(took[1], took[0]), claims.budget,
			"x stock scheduler, real class"))
	}
	return results, nil
}

// interleaved takes each setting in turn, each round beginning with another one, so
// that none always comes after the same. It returns their times, and how much
// processor time all programs together used.
func (b *bed) interleaved(ctx context.Context, settings []setting, pods, rounds int) (took, used [][]time.Duration, err error) {
	took, used = make([][]time.Duration, len(settings)), make([][]time.Duration, len(settings))
	for round := range rounds {
		for k := range settings {
			i := (round + k) % len(settings)
			s := settings[i]
			one, err := b.round(ctx, s, pods)
			if err != nil {
				return nil, nil, err
			}
			took[i], used[i] = append(took[i], one.took), append(used[i], one.used.total())
			say("round %d, %s: %d pods in %.2f s; processor time for each: %s", round+1, s.name, pods, one.took.Seconds(), one.used.perPod(pods))
		}
	}
	return took, used, nil
}

// figures says how many pods a second each setting places, and how much processor
// time of all programs one takes.
func figures(what string, settings []setting, took, used [][]time.Duration, pods int) []measure.Result {
	var results []measure.Result
	for i, s := range settings {
		perSecond := float64(pods) / measure.Median(took[i]).Seconds()
		each := float64(measure.Median(used[i]).Microseconds()) / 1000 / float64(pods)
		say("%s, %s: %.0f pods/s, processor time %.2f ms a pod, %.2f x %s", what, s.name, perSecond, each, measure.MedianRatio(used[i], used[0]),
			settings[0].name)
		results = append(results,
			measure.Figure(fmt.Sprintf("%s, %s", what, s.name), perSecond, "pods/s"),
			measure.Figure(fmt.Sprintf("%s, %s, processor time of all programs", what, s.name), each, "ms a pod"))
	}
	return results
}
