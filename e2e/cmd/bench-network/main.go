// Command bench-network measures the network fabric in network namespaces: the whole way from a pod to one of another cluster beside
// a bare lane between two gateways, by TLS and by WireGuard, and beside plain routing, in the same run; what the loss of a gateway
// costs; all of it over a line with delay and loss; and what a cluster of 1,000 nodes costs each of them, in its kernel and in watches
// of a real API server. It prints one JSON object a measure and ends with status 1 if a budget is not kept. It needs root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
)

func main() {
	var b bench
	flag.IntVar(&b.rounds, "rounds", 5, "how many times each measure is taken")
	flag.DurationVar(&b.while, "while", 2*time.Second, "how long bulk is sent each time")
	flag.IntVar(&b.echoes, "echoes", 1000, "how many small messages are sent each time")
	flag.IntVar(&b.nodes, "nodes", 1000, "how many nodes the large cluster has; 0 leaves that out")
	flag.IntVar(&b.watches, "watches", 10, "how many nodes of the large cluster really watch it, on a control plane; 0 leaves that out")
	flag.StringVar(&b.only, "only", "", "measure this part alone: near, failover, far, kernels or watches")
	flag.Parse()
	command.Main(b.run)
}

type bench struct {
	rounds, echoes, nodes, watches int
	while                          time.Duration
	only                           string
}

// way is one way from a pod to another, in a lab of its own.
type way struct {
	name     string
	lab      *netlab.Lab
	from, to *netlab.Pod
	// rates are bytes a second, by the number of connections; cost is processor time for a GiB.
	rates  map[int][]float64
	cost   map[int][]float64
	echoes []time.Duration
}

// streams are how many connections send at once.
var streams = []int{1, 4}

func (b *bench) run(ctx context.Context) error {
	var results []measure.Result
	for _, part := range []struct {
		name    string
		measure func(context.Context) ([]measure.Result, error)
	}{{"near", b.near}, {"failover", b.failover}, {"far", b.far}, {"kernels", b.kernels}, {"watches", b.watching}} {
		if b.only != "" && b.only != part.name {
			continue
		}
		some, err := part.measure(ctx)
		if err != nil {
			return err
		}
		results = append(results, some...)
	}
	if len(results) == 0 {
		return fmt.Errorf("--only=%s: there is no such part, or it is left out", b.only)
	}
	return measure.Conclude(os.Stdout, results)
}

// near compares the ways where there is no distance.
func (b *bench) near(ctx context.Context) (results []measure.Result, err error) {
	ways, done, err := newWays(ctx, netlab.Settings{}, []string{"routing", "lane", "whole", "wireguard"})
	defer done()
	if err != nil {
		return nil, err
	}
	for range b.rounds {
		for _, n := range streams {
			for _, w := range ways {
				if err := w.bulk(n, b.while/4, b.while); err != nil {
					return nil, err
				}
			}
		}
		for _, w := range ways {
			took, err := netlab.Echoes(w.from.Namespace, w.to, b.echoes)
			if err != nil {
				return nil, fmt.Errorf("echo over %s: %w", w.name, err)
			}
			w.echoes = append(w.echoes, measure.Median(took))
		}
	}
	routing, lane, whole, wireGuard := ways[0], ways[1], ways[2], ways[3]
	for _, w := range ways {
		for _, n := range streams {
			results = append(results,
				measure.Figure(fmt.Sprintf("network-%s-rate-%d", w.name, n), median(w.rates[n])*8/1e9, "Gbit/s"),
				measure.Figure(fmt.Sprintf("network-%s-processor-%d", w.name, n), median(w.cost[n]), "s/GiB"))
		}
		results = append(results, measure.Figure("network-"+w.name+"-echo", float64(measure.Median(w.echoes).Microseconds()), "µs"))
	}
	// The budget is for wireguard-go, which takes the place of a kernel's.
	besideLane := func(measured string, value float64) measure.Result { return measure.AtMost(measured, value, 1./3, "x") }
	if wireGuard.lab.Nodes()[0].HasWireGuard() {
		besideLane = func(measured string, value float64) measure.Result { return measure.Figure(measured, value, "x") }
	}
	for _, n := range streams {
		results = append(results,
			measure.AtMost(fmt.Sprintf("network-lane-to-whole-rate-%d", n), ratio(lane.rates[n], whole.rates[n]), 1.33, "x"),
			measure.AtMost(fmt.Sprintf("network-whole-to-lane-processor-%d", n), ratio(whole.cost[n], lane.cost[n]), 1.5, "x"),
			measure.AtMost(fmt.Sprintf("network-routing-to-lane-rate-%d", n), ratio(routing.rates[n], lane.rates[n]), 5, "x"),
			besideLane(fmt.Sprintf("network-wireguard-to-lane-rate-%d", n), ratio(wireGuard.rates[n], lane.rates[n])))
	}
	return append(results, measure.AtMost("network-whole-to-lane-echo", measure.MedianRatio(whole.echoes, lane.echoes), 1.5, "x")), nil
}

// failover kills the gateways in turn, under a connection.
func (b *bench) failover(ctx context.Context) (results []measure.Result, err error) {
	ways, done, err := newWays(ctx, netlab.Settings{Strict: true}, []string{"whole"})
	defer done()
	if err != nil {
		return nil, err
	}
	w := ways[0]
	talk, err := netlab.NewTalk(w.from.Namespace, w.to)
	if err != nil {
		return nil, err
	}
	defer talk.Close()
	var packets, connection time.Duration
	lost := 0
	for range b.rounds {
		for _, c := range []*netlab.Cluster{w.lab.Home, w.lab.West} {
			for _, n := range c.Nodes[1:] {
				if err := awaitLanes(ctx, w.lab); err != nil {
					return nil, err
				}
				_, _ = talk.Gap()
				watching, stop := context.WithTimeout(ctx, 2*time.Second)
				time.AfterFunc(200*time.Millisecond, n.Kill)
				gap, err := netlab.Watch(watching, w.from.Namespace, w.to)
				stop()
				if err != nil {
					return nil, err
				}
				packets = max(packets, gap)
				gap, err = talk.Gap()
				if err != nil {
					lost++
				}
				connection = max(connection, gap)
				if err := w.lab.Start(n); err != nil {
					return nil, err
				}
			}
		}
	}
	const probes, more = 3 * 100, 200
	return []measure.Result{
		measure.AtMost("network-failover-gap", float64(packets.Milliseconds()), probes+more, "ms"),
		measure.Figure("network-failover-connection-gap", float64(connection.Milliseconds()), "ms"),
		measure.AtMost("network-failover-connections-lost", float64(lost), 0, ""),
	}, nil
}

// far compares the whole way with routing over a line of 20 ms on which one packet of 200 is lost, where pods have Reno.
func (b *bench) far(ctx context.Context) (results []measure.Result, err error) {
	line := netlab.Settings{Congestion: "reno", Delay: 10 * time.Millisecond, Loss: 0.005}
	ways, done, err := newWays(ctx, line, []string{"routing", "whole"})
	defer done()
	if err != nil {
		return nil, err
	}
	for range b.rounds {
		for _, n := range streams {
			for _, w := range ways {
				if err := w.bulk(n, b.while, 2*b.while); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, w := range ways {
		for _, n := range streams {
			results = append(results, measure.Figure(fmt.Sprintf("network-far-%s-rate-%d", w.name, n), median(w.rates[n])*8/1e6, "Mbit/s"))
		}
	}
	for _, n := range streams {
		results = append(results,
			measure.AtMost(fmt.Sprintf("network-far-routing-to-whole-rate-%d", n), ratio(ways[0].rates[n], ways[1].rates[n]), 0.2, "x"))
	}
	return results, nil
}

// newWays makes labs, and waits until packets go through. The caller must call done in any case.
func newWays(ctx context.Context, settings netlab.Settings, names []string) (ways []*way, done func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	done = func() {
		cancel()
		for _, w := range ways {
			w.lab.Close()
		}
	}
	for _, name := range names {
		settings.WireGuard = name == "wireguard"
		lab, err := netlab.New(ctx, settings)
		if err != nil {
			return ways, done, err
		}
		w := &way{name: name, lab: lab, rates: map[int][]float64{}, cost: map[int][]float64{}}
		ways = append(ways, w)
		node := 0
		switch name {
		case "routing":
			node, err = 1, lab.Plain()
		case "lane":
			node, err = 1, lab.JoinBare()
		case "wireguard": // a bare lane, too
			node, err = 1, errors.Join(lab.ProvideWireGuard(), lab.JoinBare())
		case "whole":
			err = lab.Join()
		}
		if err != nil {
			return ways, done, err
		}
		w.from, w.to = lab.Home.Nodes[node].Pods[0], lab.West.Nodes[node].Pods[0]
		if err := w.to.Serve(ctx); err != nil {
			return ways, done, err
		}
		if err := w.await(ctx); err != nil {
			return ways, done, err
		}
		if settings.WireGuard {
			if err := awaitWireGuard(ctx, lab); err != nil {
				return ways, done, err
			}
		}
	}
	return ways, done, nil
}

// awaitWireGuard waits until that carries what the only gateways send to each other.
func awaitWireGuard(ctx context.Context, lab *netlab.Lab) error {
	for began := time.Now(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if lab.Home.Nodes[1].Sends(plan.WireGuardDevice("west")) && lab.West.Nodes[1].Sends(plan.WireGuardDevice("home")) {
			return nil
		}
		if time.Since(began) > 30*time.Second {
			return errors.New("WireGuard does not carry packets\n" + lab.Logs())
		}
	}
	return ctx.Err()
}

func (w *way) await(ctx context.Context) error {
	for began := time.Now(); ctx.Err() == nil; {
		_, err := netlab.Ask(w.from.Namespace, "", w.to, []byte("there?"))
		if err == nil {
			return nil
		}
		if time.Since(began) > 30*time.Second {
			return fmt.Errorf("packets do not go over %s: %w\n%s", w.name, err, w.lab.Logs())
		}
	}
	return ctx.Err()
}

func awaitLanes(ctx context.Context, lab *netlab.Lab) error {
	for began := time.Now(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		up, gateways := 0, 0
		for _, c := range []*netlab.Cluster{lab.Home, lab.West} {
			for _, n := range c.Nodes[1:] {
				some, _ := n.Lanes() // an agent that does not answer yet has none
				up, gateways = up+some, gateways+1
			}
		}
		if up == 2*gateways {
			return nil
		}
		if time.Since(began) > 30*time.Second {
			return errors.New("not all lanes are up\n" + lab.Logs())
		}
	}
	return ctx.Err()
}

// bulk takes one measure of rate and cost.
func (w *way) bulk(streams int, warm, while time.Duration) error {
	var before, after time.Duration
	var problem error
	received, took, err := netlab.Bulk(w.from, w.to, streams, warm, while, func() { before, problem = w.used() })
	if err != nil || problem != nil {
		return errors.Join(fmt.Errorf("send over %s", w.name), err, problem)
	}
	if after, err = w.used(); err != nil {
		return err
	}
	if received == 0 {
		return fmt.Errorf("nothing arrived over %s", w.name)
	}
	w.rates[streams] = append(w.rates[streams], float64(received)/took.Seconds())
	w.cost[streams] = append(w.cost[streams], (after-before).Seconds()/(float64(received)/(1<<30)))
	return nil
}

// used is the processor time of all that takes part: this program, which has both pods, and the agents.
func (w *way) used() (sum time.Duration, err error) {
	pids := []int{os.Getpid()}
	for _, c := range []*netlab.Cluster{w.lab.Home, w.lab.West} {
		for _, n := range c.Nodes {
			if n.Agent != nil {
				pids = append(pids, n.Agent.Pid())
			}
		}
	}
	for _, pid := range pids {
		used, err := measure.ProcessorTime(pid)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// ratio is the median of a[i]/b[i], which were measured next to each other.
func ratio(a, b []float64) float64 {
	var ratios []float64
	for i := range a {
		ratios = append(ratios, a[i]/b[i])
	}
	return median(ratios)
}
