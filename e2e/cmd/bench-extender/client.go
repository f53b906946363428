package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// client is the client that kube-scheduler has for its extenders, in a process of
// its own.
type client struct {
	*measure.Process
	jobs    *json.Encoder
	reports *json.Decoder
	input   io.Closer
}

// target is an extender as the client is told of it.
type target struct {
	URL        string `json:"url"`
	CAFile     string `json:"caFile,omitempty"`
	CertFile   string `json:"certFile,omitempty"`
	KeyFile    string `json:"keyFile,omitempty"`
	WholeNodes bool   `json:"wholeNodes,omitempty"`
}

// job is a number of calls that are alike.
type job struct {
	target
	Verb  string      `json:"verb"`
	Pod   *corev1.Pod `json:"pod"`
	Names []string    `json:"names"`
	// Node is what all nodes are like, where whole nodes are sent.
	Node  *corev1.Node `json:"node,omitempty"`
	Calls int          `json:"calls"`
}

// report is what the client says of a job; times in nanoseconds, the latencies in
// ascending order.
type report struct {
	Error     string          `json:"error"`
	CPU       time.Duration   `json:"cpu"`
	Latencies []time.Duration `json:"latencies"`
	Passed    int             `json:"passed"`
	Scored    int             `json:"scored"`
}

func startClient(ctx context.Context) (*client, error) {
	path, err := testbed.Binary(ctx, os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("find the scheduler's client: %w", err)
	}
	c := &client{}
	var problems error
	c.Process, err = measure.Start(ctx, func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, path, "extender-client")
		input, inputErr := cmd.StdinPipe()
		output, outputErr := cmd.StdoutPipe()
		problems = errors.Join(inputErr, outputErr)
		c.jobs, c.reports, c.input = json.NewEncoder(input), json.NewDecoder(output), input
		return cmd
	})
	if err := errors.Join(err, problems); err != nil {
		return nil, fmt.Errorf("start the scheduler's client: %w", err)
	}
	return c, nil
}

// do makes the calls of a job.
func (c *client) do(j job) (report, error) {
	var r report
	if err := c.jobs.Encode(j); err != nil {
		return r, c.Failed(fmt.Errorf("give the client a job: %w", err))
	}
	if err := c.reports.Decode(&r); err != nil {
		return r, c.Failed(fmt.Errorf("read the client's report: %w", err))
	}
	if r.Error != "" {
		return r, fmt.Errorf("call %s/%s: %s", j.URL, j.Verb, r.Error)
	}
	return r, nil
}

// cost is the processor time of one call.
type cost struct {
	client, server time.Duration
	report         report
}

func (c cost) sum() time.Duration { return c.client + c.server }

// cost measures the calls of a job that the process pid answers.
func (c *client) cost(pid int, j job) (cost, error) {
	before, err := measure.ProcessorTime(pid)
	if err != nil {
		return cost{}, err
	}
	r, err := c.do(j)
	if err != nil {
		return cost{}, err
	}
	after, err := measure.ProcessorTime(pid)
	if err != nil {
		return cost{}, err
	}
	calls := time.Duration(j.Calls)
	return cost{client: r.CPU / calls, server: (after - before) / calls, report: r}, nil
}

// slowest returns the time that 99 of 100 calls stay within.
func (r report) slowest() time.Duration { return r.Latencies[len(r.Latencies)*99/100] }

// connections counts what kube-scheduler's client needs for 1,000 calls.
func connections(ctx context.Context, b *bench, _ int) ([]measure.Result, error) {
	const calls = 1000
	ours, err := b.withMany(ctx)
	if err != nil {
		return nil, err
	}
	var opened [2]int64
	for i, t := range []target{ours.target, b.plain.target} {
		if opened[i], err = b.countConnections(ctx, t, calls); err != nil {
			return nil, err
		}
	}
	say("connections for 1,000 calls: %d, of encoding/json %d", opened[0], opened[1])
	return []measure.Result{
		measure.AtMost("connections for 1,000 filter calls", float64(opened[0]), 1, ""),
		measure.Figure("connections for 1,000 filter calls, encoding/json", float64(opened[1]), ""),
	}, nil
}

func (b *bench) countConnections(ctx context.Context, t target, calls int) (int64, error) {
	r, err := newRelay(ctx, t.URL)
	if err != nil {
		return 0, err
	}
	defer r.close()
	t.URL = r.url()
	j := newJob(t, 500, 1)
	j.Calls = calls
	if _, err := b.client.do(j); err != nil {
		return 0, err
	}
	return r.opened.Load(), nil
}

const (
	// changeRate is how many objects of a changing cluster change in a second; half
	// of them are claims, half volumes.
	changeRate = 1000
	// pace is the time between two lots of changes.
	pace = 10 * time.Millisecond
	// steady is how many claims, and volumes, never change: calls are about them.
	steady = 10
)

// underChange compares the slowest calls while 1,000 objects change a second with
// those of a cluster at rest.
func underChange(ctx context.Context, b *bench, rounds int) ([]measure.Result, error) {
	ours, err := b.withMany(ctx)
	if err != nil {
		return nil, err
	}
	changes := &changes{cluster: ours.cluster}
	var results []measure.Result
	for _, names := range []int{500, 5000} {
		j := newJob(ours.target, names, 1)
		// The slowest of what a second or so has room for.
		j.Calls = 600_000 / (names + 700)
		var idle, busy []time.Duration
		var changed int
		var during time.Duration
		for range rounds {
			calm, err := b.client.do(j)
			if err != nil {
				return nil, err
			}
			stop := changes.start(ctx)
			began := time.Now()
			moved, err := b.client.do(j)
			during += time.Since(began)
			n, changeErr := stop()
			if changed += n; err == nil {
				err = changeErr
			}
			if err != nil {
				return nil, err
			}
			idle, busy = append(idle, calm.slowest()), append(busy, moved.slowest())
		}
		ratio := measure.MedianRatio(busy, idle)
		rate := float64(changed) / during.Seconds()
		say("%d names, slowest hundredth of calls while %.0f objects/s change: %.0f µs, at rest %.0f µs, ratio %.2f", names, rate,
			microseconds(busy), microseconds(idle), ratio)
		results = append(results,
			measure.Figure(fmt.Sprintf("changes during filter calls, %d names", names), rate, "objects/s"),
			measure.AtMost(fmt.Sprintf("filter call, %d names, 1 claim, p99 while 1,000 objects/s change", names), ratio, 2, "x idle"))
	}
	return results, nil
}

// changes takes objects out of a cluster and puts them back, one after another.
type changes struct {
	cluster *largecluster.Cluster
	next    int
}

// start changes objects until it is stopped; stop says how many.
func (c *changes) start(ctx context.Context) (stop func() (int, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var changed int
	var problem error
	running.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for problem == nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for range changeRate / 2 * pace / time.Second {
				if problem = c.step(); problem != nil {
					return
				}
				changed += 2
			}
		}
	})
	return func() (int, error) {
		cancel()
		running.Wait()
		return changed, problem
	}
}

// step changes one claim and one volume: even steps take them out, odd ones put them
// back.
func (c *changes) step() error {
	what := watch.Deleted
	if c.next%2 == 1 {
		what = watch.Added
	}
	i := steady + c.next/2%(manyClaims-steady)
	c.next++
	for _, path := range []string{largecluster.ClaimsPath, largecluster.VolumesPath} {
		if err := c.cluster.Change(path, what, i); err != nil {
			return fmt.Errorf("change the cluster: %w", err)
		}
	}
	return nil
}

// relay passes connections on to a server, and counts them.
type relay struct {
	listener net.Listener
	server   string
	opened   atomic.Int64
	running  sync.WaitGroup

	mu    sync.Mutex
	ended bool
	open  []net.Conn
}

func newRelay(ctx context.Context, url string) (*relay, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	r := &relay{listener: listener, server: strings.TrimPrefix(url, "http://")}
	r.running.Go(func() {
		for {
			caller, err := listener.Accept()
			if err != nil {
				return
			}
			r.opened.Add(1)
			r.running.Go(func() { r.pass(ctx, caller) })
		}
	})
	return r, nil
}

func (r *relay) url() string { return "http://" + r.listener.Addr().String() }

// pass copies both ways until both ends are done, or the relay is closed.
func (r *relay) pass(ctx context.Context, caller net.Conn) {
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.server)
	if err != nil {
		_ = caller.Close()
		return
	}
	if !r.keep(caller, server) {
		return
	}
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{caller, server}, {server, caller}} {
		ways.Go(func() {
			// An end that is gone is noticed by the other.
			_, _ = io.Copy(way[1], way[0])
			_ = way[1].Close()
		})
	}
	ways.Wait()
}

// keep notes connections for close; false if that has been called.
func (r *relay) keep(connections ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, connections...)
	if r.ended {
		closeAll(r.open)
	}
	return !r.ended
}

func (r *relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.ended = true
	closeAll(r.open)
	r.mu.Unlock()
	r.running.Wait()
}

func closeAll(connections []net.Conn) {
	for _, c := range connections {
		_ = c.Close()
	}
}
