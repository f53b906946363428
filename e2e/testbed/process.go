package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// process is one running program of a control plane.
type process struct {
	program  string
	logPath  string
	cmd      *exec.Cmd
	expected atomic.Bool   // the end was asked for
	done     chan struct{} // closed when the process has ended
}

// startProcess starts a program of the multi-call binary; its output is appended to
// logPath. If it ends without having been stopped, onDeath is called once.
func startProcess(binary, program string, args []string, logPath string, onDeath func(*process)) (*process, error) {
	cmd := exec.Command(binary, append([]string{program}, args...)...)
	cmd.Env = append(os.Environ(), collector...)
	return startCommand(cmd, program, logPath, onDeath)
}

// collector has Go's garbage collector run more seldom in control planes: in tests they
// have little in memory, and take most of the processor's time.
var collector = []string{"GOGC=300", "GOMEMLIMIT=4GiB"}

// startCommand is startProcess for any command.
func startCommand(cmd *exec.Cmd, program, logPath string, onDeath func(*process)) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", program, err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	if err := spawn(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	p := &process{program: program, logPath: logPath, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
		if !p.expected.Load() {
			onDeath(p)
		}
	}()
	return p, nil
}

// stop ends the process and waits for its end: at once with a grace of zero,
// otherwise it first asks it to end by itself.
func (p *process) stop(grace time.Duration) {
	p.expected.Store(true)
	if grace > 0 {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
			return
		case <-time.After(grace):
		}
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", p.program, err)
	}
	return nil
}

// waitUntil calls ready until it returns nil. It fails when the process ends, with
// the end of its log, and when ctx ends, with the last error of ready.
func (p *process) waitUntil(ctx context.Context, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it was ready; the end of its log:\n%s", p.program, p.logTail(10))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", p.program, errors.Join(context.Cause(ctx), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *process) logTail(lines int) string {
	content, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
