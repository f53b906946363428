// Package harness runs both movers of a move on loopback, as the processes that they
// are in a cluster, for tests and measurements: with a wire between them that can be
// cut and spoilt.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// UID is that of the move.
const UID = "0b6b2a4e-5b0e-4c53-9d4b-8f6f0e6a7c01"

// Move is both movers, and the controller's client.
type Move struct {
	// Program is the mover's program, Source and Target the volumes.
	Program, Source, Target string
	// Wire is between the two movers.
	Wire   *Wire
	Client *moverapi.Client

	// Without are capabilities, as in CAP_MKNOD, that the receiver lacks.
	Without []string
	// More are further flags of movers that are started from now on.
	More []string

	as               map[string]User
	claims           map[string]string
	direct           bool
	folder           string
	watched          bool
	control, data    string
	sender, receiver *exec.Cmd
	used             time.Duration
}

// Start starts both movers.
func Start(ctx context.Context, setup Setup) (*Move, error) {
	m := &Move{
		Program: setup.Program, Source: setup.Source, Target: setup.Target, Without: setup.Without, More: setup.More,
		as:     setup.As,
		claims: map[string]string{"send": setup.SourceClaim, "receive": setup.TargetClaim},
		direct: setup.Direct, watched: setup.Watched, folder: setup.Folder,
	}
	keys, err := m.writeKeys(setup.Store)
	if err != nil {
		return nil, err
	}
	var free [3]string
	for i := range free {
		if free[i], err = freeAddress(); err != nil {
			return nil, err
		}
	}
	m.data, m.control = free[0], free[1]
	sender := ""
	if setup.Spliced {
		sender = free[2]
	}
	if m.Wire, err = NewWire(ctx, m.data, sender); err != nil {
		return nil, err
	}
	if err := errors.Join(m.StartReceiver(ctx), m.StartSender(ctx)); err != nil {
		m.Stop()
		return nil, err
	}
	m.Client, err = moverapi.NewClient(keys[moverapi.Controller], UID, func(ctx context.Context) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", m.control)
	})
	return m, err
}

func (m *Move) path(parts ...string) string {
	return filepath.Join(append([]string{m.folder}, parts...)...)
}

// StartReceiver starts the receiver, with the scratch that it had.
func (m *Move) StartReceiver(ctx context.Context) (err error) {
	m.receiver, err = m.start(ctx, "receive", moverapi.Receiver, m.Target, "--data-address="+m.data)
	return err
}

// StartSender starts the sender, with the scratch that it had.
func (m *Move) StartSender(ctx context.Context) (err error) {
	arguments := []string{"--control-address=" + m.control}
	switch {
	case m.Wire.sender != "":
		arguments = append(arguments, "--data-address="+m.Wire.sender)
	case m.direct:
		arguments = append(arguments, "--peer="+m.data)
	default:
		arguments = append(arguments, "--peer="+m.Wire.Address())
	}
	m.sender, err = m.start(ctx, "send", moverapi.Sender, m.Source, arguments...)
	return err
}

// KillReceiver kills the receiver; with lose its scratch is lost too.
func (m *Move) KillReceiver(lose bool) error { return m.kill(&m.receiver, "receive", lose) }

// KillSender kills the sender; with lose its scratch is lost too.
func (m *Move) KillSender(lose bool) error { return m.kill(&m.sender, "send", lose) }

func (m *Move) start(ctx context.Context, verb string, role moverapi.Role, volume string, more ...string) (*exec.Cmd, error) {
	scratch := m.path("scratch", verb)
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(m.path(verb+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	arguments := append([]string{verb, "--move=" + UID, "--keys=" + m.path("keys", string(role)), "--volume=" + volume, "--scratch=" +
		scratch}, append(more, m.More...)...)
	if s, err := os.Stat(volume); err == nil && !s.IsDir() {
		arguments = append(arguments, "--block")
	}
	if m.claims[verb] != "" {
		arguments = append(arguments, "--repository="+m.claims[verb])
	}
	// Exactly what a mover's container has.
	var rights []string
	if as, rootless := m.as[verb]; rootless {
		arguments = append(arguments, "--rootless")
		if rights, err = m.rootless(as, scratch, m.path("keys", string(role))); err != nil {
			return nil, err
		}
	} else {
		var without []string
		if verb == "receive" {
			without = m.Without
		}
		rights = []string{"--bounding-set=" + bounding(without)}
	}
	arguments = slices.Concat(rights, []string{"--", m.Program}, arguments)
	cmd := exec.CommandContext(ctx, "setpriv", arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a mover: %w", err)
	}
	return cmd, nil
}

// rootless gives folders to a user, and returns the options with which setpriv becomes that.
func (m *Move) rootless(as User, folders ...string) ([]string, error) {
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, as.ID, as.Groups[0]))
		})
		if err != nil {
			return nil, err
		}
	}
	groups := make([]string, len(as.Groups))
	for i, group := range as.Groups {
		groups[i] = strconv.Itoa(group)
	}
	return []string{"--reuid=" + strconv.Itoa(as.ID), "--regid=" + groups[0], "--groups=" + strings.Join(groups, ","), "--bounding-set=-all",
		"--inh-caps=-all", "--no-new-privs"}, nil
}

// bounding is the set of capabilities of a mover's container without some, for
// setpriv.
func bounding(without []string) string {
	set := "-all"
	for _, name := range []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"} {
		if !slices.Contains(without, "CAP_"+name) {
			set += ",+" + strings.ToLower(name)
		}
	}
	return set
}

// ErrEnded means that a mover ended before it was asked to.
var ErrEnded = errors.New("a mover ended")

// Ended is why a mover ended before it was asked to; nil while both run.
func (m *Move) Ended() error {
	for verb, mover := range map[string]*exec.Cmd{"send": m.sender, "receive": m.receiver} {
		var status unix.WaitStatus
		if pid, err := unix.Wait4(mover.Process.Pid, &status, unix.WNOHANG, nil); err != nil || pid == 0 {
			continue // it runs, or was waited for when it was asked to end
		}
		log, _ := os.ReadFile(m.path(verb + ".log"))
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		return fmt.Errorf("%w: %s", ErrEnded, lines[len(lines)-1])
	}
	return nil
}

func (m *Move) kill(cmd **exec.Cmd, verb string, lose bool) error {
	return m.end(cmd, unix.SIGKILL, verb, lose)
}

// EndSender asks the sender to end, as the end of its pod does, and waits until it has.
func (m *Move) EndSender() error { return m.end(&m.sender, unix.SIGTERM, "send", false) }

func (m *Move) end(cmd **exec.Cmd, signal os.Signal, verb string, lose bool) error {
	if *cmd == nil {
		return nil
	}
	_ = (*cmd).Process.Signal(signal)
	_ = (*cmd).Wait()
	if ended := (*cmd).ProcessState; ended != nil {
		m.used += ended.UserTime() + ended.SystemTime()
	}
	*cmd = nil
	if lose {
		return os.RemoveAll(m.path("scratch", verb))
	}
	return nil
}

// Stop ends both movers and the wire.
func (m *Move) Stop() {
	_ = m.KillSender(false)
	_ = m.KillReceiver(false)
	m.Wire.Close()
	if m.Client != nil {
		m.Client.Close()
	}
}

// Do does a task as a controller does: it asks until it has an answer, also of
// another life of the sender, and waits until the task has ended.
func (m *Move) Do(ctx context.Context, task moverapi.Task) (*moverapi.TaskStatus, error) {
	for {
		status, err := m.Client.Start(ctx, task, time.Second)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("task %s: %w", task.ID, ctx.Err())
		case errors.Is(err, moverapi.ErrRefused), errors.Is(err, moverapi.ErrBusy):
			return nil, err
		case err == nil && status.State == moverapi.Failed:
			return status, errors.New(status.Error)
		case err == nil && status.State != moverapi.Running:
			return status, nil
		}
		if m.watched {
			if err := m.Ended(); err != nil {
				return nil, err
			}
		}
		if err == nil {
			continue // it was waited for
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// Used is the processor time of those movers that were ended so far, and of what they had run.
func (m *Move) Used() time.Duration { return m.used }

// Address is where the receiver waits.
func (m *Move) Address() string { return m.data }

// Control is where the sender waits for the controller.
func (m *Move) Control() string { return m.control }

// Processes are the identifiers of the sender's and the receiver's processes.
func (m *Move) Processes() (sender, receiver int) {
	return m.sender.Process.Pid, m.receiver.Process.Pid
}

// Scratch is where the mover of a verb, send or receive, keeps manifests.
func (m *Move) Scratch(verb string) string { return m.path("scratch", verb) }

// Log is what both movers have logged.
func (m *Move) Log() string {
	var text string
	for _, verb := range []string{"send", "receive"} {
		content, _ := os.ReadFile(m.path(verb + ".log"))
		text += "--- " + verb + "\n" + string(content)
	}
	return text
}
