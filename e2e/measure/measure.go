// Package measure holds what the benchmarks have in common: medians, ratios to a
// yardstick measured in the same run, and the lines that say how they compare to
// their budgets.
package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
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

// Process is a program that runs beside this one.
type Process struct {
	cmd  *exec.Cmd
	log  lockedBuffer
	done chan struct{}
}

// Start starts a command that ends with ctx at the latest. Its standard error is
// kept for messages.
func Start(ctx context.Context, cmd func(context.Context) *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd(ctx), done: make(chan struct{})}
	p.cmd.Stderr = &p.log
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 2 * time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(p.cmd.Path), err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop ends the process and waits for its end.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// Failed adds what the process has said to an error.
func (p *Process) Failed(err error) error {
	log := strings.Split(strings.TrimSpace(p.log.String()), "\n")
	return fmt.Errorf("%w; the end of the log of %s:\n%s", err, filepath.Base(p.cmd.Path), strings.Join(log[max(0, len(log)-10):], "\n"))
}

// ProcessorTime returns what a process has used so far. The system counts it for
// each thread in nanoseconds; what it tells of a whole process is in hundredths of
// a second. Process 0 is nobody.
func ProcessorTime(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, errors.Join(errors.New("read processor time: the system does not tell, or the process has ended"), err)
	}
	var sum time.Duration
	for _, thread := range threads {
		content, err := os.ReadFile(thread)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		var used time.Duration
		if _, err := fmt.Sscan(string(content), &used); err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		sum += used
	}
	return sum, nil
}

// MostResident returns the most memory that a process ever had, in MB.
func MostResident(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kibibytes float64
			if _, err := fmt.Sscan(value, &kibibytes); err != nil {
				return 0, fmt.Errorf("read memory: %w", err)
			}
			return kibibytes * 1024 / 1e6, nil
		}
	}
	return 0, errors.New("read memory: the system does not tell")
}

// lockedBuffer may be read while a process still writes.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// Serve is what a benchmark runs in a process of its own: it serves on loopback,
// prints the address as a line, and returns when its input or ctx ends.
func Serve(ctx context.Context, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen on loopback: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	fmt.Println(listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return nil
}
