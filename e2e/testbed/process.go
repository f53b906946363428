package testbed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
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

// The ports lie below the range from which kernels take the source ports of
// outgoing connections. Otherwise a client that dials a stopped API server over
// and over could be given the server's own port and talk to itself.
const (
	firstPort = 20000
	lastPort  = 31999
)

// port is a TCP port on 127.0.0.1, reserved until release. The reservation is the
// UDP socket of the same number, so it holds between processes and ends with ours.
type port struct {
	number int
	lock   net.PacketConn
}

func (p port) String() string { return strconv.Itoa(p.number) }

func (p port) address() string { return net.JoinHostPort("127.0.0.1", p.String()) }

func (p port) release() { _ = p.lock.Close() }

// reservePorts reserves n ports that nobody listens on.
func reservePorts(n int) ([]port, error) {
	var ports []port
	for range 100 * n {
		if len(ports) == n {
			return ports, nil
		}
		if p, ok := reservePort(firstPort + rand.IntN(lastPort-firstPort+1)); ok {
			ports = append(ports, p)
		}
	}
	releasePorts(ports)
	return nil, fmt.Errorf("found no %d free ports between %d and %d on 127.0.0.1", n, firstPort, lastPort)
}

func reservePort(number int) (port, bool) {
	p := port{number: number}
	lock, err := net.ListenPacket("udp", p.address())
	if err != nil {
		return port{}, false
	}
	p.lock = lock
	listener, err := net.Listen("tcp", p.address())
	if err != nil {
		p.release()
		return port{}, false
	}
	_ = listener.Close()
	return p, true
}

func releasePorts(ports []port) {
	for _, p := range ports {
		p.release()
	}
}
