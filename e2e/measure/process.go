package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

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
