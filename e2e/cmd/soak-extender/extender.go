package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// readyTimeout bounds the start of the program, endTimeout its end.
const (
	readyTimeout = 2 * time.Minute
	endTimeout   = 10 * time.Second
)

// extender is the program, as it is shipped, on a large cluster of its own.
type extender struct {
	cmd     *exec.Cmd
	log     bytes.Buffer
	ended   chan struct{}
	cluster *largecluster.Cluster
	api     *httptest.Server
	// verbs is host and port that kube-scheduler would call, status the URL of the
	// other address.
	verbs, status string
}

// startExtender builds and starts the program and waits until it is ready.
func startExtender(ctx context.Context, directory string, claims int) (*extender, error) {
	binary, err := largecluster.Build(ctx, directory, "extender")
	if err != nil {
		return nil, err
	}
	e := &extender{cluster: largecluster.New(claims), ended: make(chan struct{})}
	e.api = httptest.NewServer(e.cluster)
	kubeconfig := filepath.Join(directory, "kubeconfig")
	if err := largecluster.WriteKubeconfig(kubeconfig, e.api.URL); err != nil {
		e.closeAPI()
		return nil, err
	}
	addresses, err := largecluster.FreeAddresses(ctx, 2)
	if err != nil {
		e.closeAPI()
		return nil, err
	}
	e.verbs, e.status = addresses[0], "http://"+addresses[1]
	e.cmd = exec.CommandContext(ctx, binary, "--kubeconfig="+kubeconfig, "--listen="+addresses[0], "--http-address="+addresses[1],
		"--shutdown-grace=0s")
	e.cmd.Stderr = &e.log
	if err := e.cmd.Start(); err != nil {
		e.closeAPI()
		return nil, fmt.Errorf("start the extender: %w", err)
	}
	go func() {
		defer close(e.ended)
		_ = e.cmd.Wait()
	}()
	if err := e.awaitReady(ctx); err != nil {
		e.stop()
		return nil, fmt.Errorf("%w; its log:\n%s", err, e.log.String())
	}
	return e, nil
}

func (e *extender) pid() int { return e.cmd.Process.Pid }

func (e *extender) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("the extender is not ready after %s", readyTimeout))
	defer cancel()
	for {
		if _, err := e.get(ctx, "/readyz"); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.ended:
			return errors.New("the extender has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// get returns what the status address answers.
func (e *extender) get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.status+path, nil)
	if err != nil {
		return "", fmt.Errorf("make request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask the extender: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("read the extender's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the extender answers %s: %s", response.Status, body)
	}
	return string(body), nil
}

// stop ends the program, and then its cluster.
func (e *extender) stop() {
	// A program that has ended needs no signal.
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.ended:
	case <-time.After(endTimeout):
		_ = e.cmd.Process.Kill()
		<-e.ended
	}
	e.closeAPI()
}

func (e *extender) closeAPI() {
	e.api.CloseClientConnections()
	e.api.Close()
}

const (
	sampleEvery = 250 * time.Millisecond
	// fewSamples are too few for medians of quarters.
	fewSamples = 16
	// flat is how much more memory the last quarter may need than the second.
	flat = 1.1
	// leftOver is how many goroutines and files may be left: those of connections
	// that come and go by themselves.
	leftOver = 4
)

// sample is what the program holds at a moment.
type sample struct {
	// resident is in MB, and so is heap: the size at which the heap will be cleared
	// next, which follows what is in use without its ups and downs.
	resident, heap    float64
	goroutines, files float64
	// watching says that changes of all kinds arrive.
	watching bool
}

func (s sample) String() string {
	return fmt.Sprintf("%.0f MB resident, %.0f MB heap, %.0f goroutines, %.0f files", s.resident, s.heap, s.goroutines, s.files)
}

// sampleUntil takes samples until ctx ends.
func (e *extender) sampleUntil(ctx context.Context) []sample {
	var samples []sample
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return samples
		case <-ticker.C:
			// A sample that fails is missed when they are judged.
			if s, err := e.sample(ctx); err == nil {
				samples = append(samples, s)
			}
		}
	}
}

func (e *extender) sample(ctx context.Context) (sample, error) {
	metrics, err := e.get(ctx, "/metrics")
	if err != nil {
		return sample{}, err
	}
	var s sample
	for _, figure := range []struct {
		name string
		in   *float64
		unit float64
	}{
		{name: "process_resident_memory_bytes", in: &s.resident, unit: 1e6},
		{name: "go_memstats_next_gc_bytes", in: &s.heap, unit: 1e6},
		{name: "go_goroutines", in: &s.goroutines, unit: 1},
	} {
		value, err := valueOf(metrics, figure.name)
		if err != nil {
			return sample{}, err
		}
		*figure.in = value / figure.unit
	}
	s.watching = !disconnected.MatchString(metrics)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", e.pid()))
	if err != nil {
		return sample{}, fmt.Errorf("count open files: %w", err)
	}
	s.files = float64(len(files))
	return s, nil
}

var disconnected = regexp.MustCompile(`(?m)^lodestone_extender_watch_connected\{.*\} 0$`)

func valueOf(metrics, name string) (float64, error) {
	for line := range strings.Lines(metrics) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			var value float64
			if _, err := fmt.Sscan(text, &value); err != nil {
				return 0, fmt.Errorf("read metric %s: %w", name, err)
			}
			return value, nil
		}
	}
	return 0, fmt.Errorf("read metric %s: the extender does not expose it", name)
}

// judge compares the quarters of a run, and what is left after it.
func (s *soak) judge(ctx context.Context, before, after sample, samples []sample) ([]measure.Result, error) {
	if len(samples) < fewSamples {
		return nil, fmt.Errorf("there are only %d samples: make more requests", len(samples))
	}
	metrics, err := s.extender.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	panics, err := valueOf(metrics, "lodestone_extender_panics_total")
	if err != nil {
		return nil, err
	}
	quarter := len(samples) / 4
	median := func(quarterth int, of func(sample) float64) float64 {
		var values []float64
		for _, s := range samples[(quarterth-1)*quarter : quarterth*quarter] {
			values = append(values, of(s))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	resident := func(s sample) float64 { return s.resident }
	heap := func(s sample) float64 { return s.heap }
	most := slices.MaxFunc(samples, func(a, b sample) int { return int(a.resident - b.resident) })
	return []measure.Result{
		measure.AtMost("resident memory, last quarter to second", median(4, resident)/median(2, resident), flat, "×"),
		measure.AtMost("heap, last quarter to second", median(4, heap)/median(2, heap), flat, "×"),
		measure.Figure("resident memory, median of the last quarter", median(4, resident), "MB"),
		measure.Figure("most resident memory", most.resident, "MB"),
		measure.Figure("heap, median of the last quarter", median(4, heap), "MB"),
		measure.AtMost("goroutines left over", after.goroutines-before.goroutines, leftOver, ""),
		measure.AtMost("open files left over", after.files-before.files, leftOver, ""),
		measure.AtMost("panics", panics, 0, ""),
		measure.AtMost("wrong answers", float64(len(s.wrong)), 0, ""),
	}, nil
}
