package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/measure"
)

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

// valueOf returns the value of a metric.
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
