// Command soak-extender drives the extender's program with as many requests as a
// cluster makes in a day, as fast as it can, while objects change, connections are
// lost and some requests are malformed. It watches the program's memory, goroutines
// and files, prints one JSON object a measure, and ends with status 1 if one grew or
// if a request got another answer than it should.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// day is how many requests a cluster makes in one: it starts 5 pods in a second, and
// kube-scheduler filters and prioritizes for each of them.
const day = 24 * 60 * 60 * 5 * 2

func main() {
	var s soak
	flag.IntVar(&s.requests, "requests", day, "how many requests to make; the default is that of a day with 5 new pods in a second")
	flag.IntVar(&s.names, "names", 100, "how many nodes each request names")
	flag.IntVar(&s.claims, "claims", 10_000, "how many claims the cluster has")
	flag.IntVar(&s.workers, "workers", 4, "how many requests are made at once")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, &s) })
}

func run(ctx context.Context, s *soak) error {
	directory, err := os.MkdirTemp("", "soak-extender-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(directory)
	extender, err := startExtender(ctx, directory, s.claims)
	if err != nil {
		return err
	}
	defer extender.stop()
	return s.run(ctx, extender)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

const (
	// changeEvery is the pace of changes: one of each kind at a time.
	changeEvery = 4 * time.Millisecond
	// outages is how often in a run all connections to the API server are lost.
	outages = 16
	// settleTimeout bounds the wait for the end of what the run has left behind. The
	// extender keeps idle connections to its API server for 90 s.
	settleTimeout = 100 * time.Second
	// settleTime is longer than the extender waits for the rest of a request.
	settleTime = 6 * time.Second
)

// soak is one run.
type soak struct {
	requests, names, claims, workers int

	templates templates
	extender  *extender
	next      atomic.Int64
	// outage asks for a loss of all connections to the API server.
	outage chan struct{}

	mu    sync.Mutex
	wrong []error
}

func (s *soak) run(ctx context.Context, e *extender) error {
	var err error
	if s.templates, err = newTemplates(s.names, s.claims); err != nil {
		return err
	}
	s.extender, s.outage = e, make(chan struct{}, 1)
	// What is made once stays: the first requests make it.
	if err := s.load(ctx, min(s.requests/100+1, 1000)); err != nil {
		return err
	}
	if err := pause(ctx, settleTime); err != nil {
		return err
	}
	before, err := s.settled(ctx, math.Inf(1), math.Inf(1))
	if err != nil {
		return err
	}
	say("%d requests of %d names each, %d claims; before: %s", s.requests, s.names, s.claims, before)

	started := time.Now()
	sampling, stopSampling := context.WithCancel(ctx)
	defer stopSampling()
	taken := make(chan []sample, 1)
	go func() { taken <- e.sampleUntil(sampling) }()
	if err := s.load(ctx, s.requests); err != nil {
		return err
	}
	took := time.Since(started)
	stopSampling()
	samples := <-taken
	after, err := s.settled(ctx, before.goroutines, before.files)
	if err != nil {
		return err
	}
	say("%d requests in %s; after: %s", s.requests, took.Round(time.Second), after)
	results, err := s.judge(ctx, before, after, samples)
	if err != nil {
		return err
	}
	results = append(results,
		measure.Figure("requests", float64(s.requests), ""),
		measure.Figure("requests in a second", float64(s.requests)/took.Seconds(), "1/s"))
	return errors.Join(measure.Conclude(os.Stdout, results), errors.Join(s.wrong...))
}

// load makes so many requests while the cluster changes.
func (s *soak) load(ctx context.Context, requests int) error {
	s.next.Store(0)
	changing, stop := context.WithCancel(ctx)
	var changes, workers sync.WaitGroup
	changes.Go(func() { s.change(changing) })
	for range s.workers {
		workers.Go(func() {
			w := newWorker(s)
			defer w.client.CloseIdleConnections()
			for i := s.next.Add(1); i <= int64(requests) && ctx.Err() == nil; i = s.next.Add(1) {
				if i%(int64(s.requests)/outages+1) == 0 {
					select {
					case s.outage <- struct{}{}:
					case <-ctx.Done():
						return
					}
				}
				if err := w.request(ctx, int(i)); err != nil && ctx.Err() == nil {
					s.fail(fmt.Errorf("request %d: %w", i, err))
				}
			}
		})
	}
	workers.Wait()
	stop()
	changes.Wait()
	return ctx.Err()
}

// change changes, adds and deletes claims and volumes, and loses connections when
// asked to.
func (s *soak) change(ctx context.Context) {
	ticker := time.NewTicker(changeEvery)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-s.outage:
			s.extender.api.CloseClientConnections()
		case <-ticker.C:
			// Beyond those that are always there, a few come and go.
			extra := s.claims + i/2%100
			what := [2]watch.EventType{watch.Added, watch.Deleted}[i%2]
			for _, path := range []string{largecluster.ClaimsPath, largecluster.VolumesPath} {
				if err := errors.Join(s.extender.cluster.Change(path, watch.Modified, i%s.claims),
					s.extender.cluster.Change(path, what, extra)); err != nil {
					s.fail(err)
				}
			}
		}
	}
}

// fail keeps the first few failures.
func (s *soak) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) < 5 {
		s.wrong = append(s.wrong, err)
	}
}

// settled waits until changes of all kinds arrive and no more goroutines and files
// are left than there may be, or for as long as that may take, and says how things
// are.
func (s *soak) settled(ctx context.Context, goroutines, files float64) (sample, error) {
	deadline := time.Now().Add(settleTimeout)
	for {
		now, err := s.extender.sample(ctx)
		if err != nil {
			return now, err
		}
		if (now.watching && now.goroutines <= goroutines && now.files <= files) || time.Now().After(deadline) {
			return now, nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return now, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
