package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Program is a program that runs beside a control plane, as a process of its own.
// Its methods may be called concurrently.
type Program struct {
	cluster *Cluster
	process *process
}

// StartProgram starts the program at path under a name that none of the cluster's
// programs has. What it prints is in the cluster's log directory. It is ended with
// the cluster, if not before.
func (c *Cluster) StartProgram(name, path string, args ...string) (*Program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, fmt.Errorf("%s cannot start: cluster %s is stopped", name, c.Name())
	}
	if c.processes[name] != nil {
		return nil, fmt.Errorf("%s runs already in cluster %s: give another name", name, c.Name())
	}
	p, err := startCommand(exec.Command(path, args...), name, c.dir.file("logs", name+".log"), c.died)
	if err != nil {
		return nil, err
	}
	c.processes[name] = p
	return &Program{cluster: c, process: p}, nil
}

// Name returns the name that the program was started under.
func (p *Program) Name() string { return p.process.program }

// Pid returns the process ID.
func (p *Program) Pid() int { return p.process.cmd.Process.Pid }

// Flag returns the value that the program was given for a flag, empty for none.
func (p *Program) Flag(name string) string {
	value := ""
	for _, arg := range p.process.cmd.Args {
		if after, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			value = after
		}
	}
	return value
}

// Output returns what the program has printed.
func (p *Program) Output() (string, error) {
	content, err := os.ReadFile(p.process.logPath)
	if err != nil {
		return "", fmt.Errorf("read the log of %s: %w", p.Name(), err)
	}
	return string(content), nil
}

// AwaitHTTP waits until url answers with success. It fails when the program ends.
func (p *Program) AwaitHTTP(ctx context.Context, url string) error {
	return p.process.waitUntil(ctx, healthy(url))
}

// Running reports whether the program has not ended.
func (p *Program) Running() bool {
	select {
	case <-p.process.done:
		return false
	default:
		return true
	}
}

// Kill ends the program as `kill -9` does, and waits for its end.
func (p *Program) Kill() {
	p.cluster.release(p.process)
	p.process.stop(0)
}

// Stop asks the program to end, as SIGTERM does, and waits for its end. It is an
// error if that takes longer than grace, after which the program is killed, or if
// the program ends with another code than 0.
func (p *Program) Stop(grace time.Duration) error {
	p.cluster.release(p.process)
	p.process.expected.Store(true)
	// A program that has ended needs no signal; its code is judged all the same.
	_ = p.process.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.process.done:
	case <-time.After(grace):
		p.process.stop(0)
		return fmt.Errorf("%s did not end within %v and was killed", p.Name(), grace)
	}
	if code := p.process.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s ended with code %d; the end of its log:\n%s", p.Name(), code, p.process.logTail(5))
	}
	return nil
}

// release takes a program off the list of those that the cluster ends.
func (c *Cluster) release(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.processes[p.program] == p {
		delete(c.processes, p.program)
	}
}

// WriteFile writes a file that only its owner can read into the cluster's directory
// and returns its path. It is removed with the cluster.
func (c *Cluster) WriteFile(name string, content []byte) (string, error) {
	if err := c.dir.write(name, content); err != nil {
		return "", err
	}
	return c.dir.file(name), nil
}

// ReserveAddress returns an address on 127.0.0.1 that no other test bed uses until
// the cluster is stopped, for a program to listen on.
func (c *Cluster) ReserveAddress() (string, error) {
	ports, err := reservePorts(1)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved = append(c.reserved, ports...)
	return ports[0].address(), nil
}

// StopAll stops every cluster that this process has started and waits for the end.
func StopAll() { stopRunning() }
