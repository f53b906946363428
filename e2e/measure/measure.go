// Package measure holds what the benchmarks have in common: medians, ratios to a
// yardstick measured in the same run, and the lines that say how they compare to
// their budgets.
package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Result is one measure as benchmarks print it, one JSON object a line.
type Result struct {
	Measure string  `json:"measure"`
	Value   float64 `json:"value"`
	// Budget is the largest allowed value; 0 where there is none.
	Budget float64 `json:"budget"`
	Unit   string  `json:"unit"`
	OK     bool    `json:"ok"`
}

// AtMost returns a result that is in order while value is at most budget.
func AtMost(measure string, value, budget float64, unit string) Result {
	return Result{Measure: measure, Value: value, Budget: budget, Unit: unit, OK: value <= budget}
}

// Figure returns a result that has no budget.
func Figure(measure string, value float64, unit string) Result {
	return Result{Measure: measure, Value: value, Unit: unit, OK: true}
}

// Write writes the result as a line.
func (r Result) Write(w io.Writer) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode measure %s: %w", r.Measure, err)
	}
	_, err = fmt.Fprintln(w, string(line))
	return err
}

// Conclude writes all results and returns an error if one is over its budget.
func Conclude(w io.Writer, results []Result) error {
	missed := 0
	for _, r := range results {
		if err := r.Write(w); err != nil {
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

// Median returns the median of durations, 0 for none.
func Median(durations []time.Duration) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// MedianRatio returns the median of a[i]/b[i]: pairs measured next to each other
// keep their ratio when the machine's speed drifts.
func MedianRatio(a, b []time.Duration) float64 {
	ratios := make([]float64, 0, len(a))
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			ratios = append(ratios, float64(a[i])/float64(b[i]))
		}
	}
	if len(ratios) == 0 {
		return 0
	}
	slices.Sort(ratios)
	middle := len(ratios) / 2
	if len(ratios)%2 == 0 {
		return (ratios[middle-1] + ratios[middle]) / 2
	}
	return ratios[middle]
}
