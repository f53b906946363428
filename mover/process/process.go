// Package process runs programs for the mover: in groups that end as a whole, and whose
// complaints are kept.
package process

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// OwnGroup puts a command into a process group of its own, which ends as a whole:
// rsync is several processes.
func OwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
}

// Wait waits until the command and all that it started have ended, and returns its
// exit status, -1 if it was killed.
func Wait(cmd *exec.Cmd) int {
	group := cmd.Process.Pid
	err := cmd.Wait()
	if cmd.ProcessState == nil || !cmd.ProcessState.Success() {
		// What is left of it has nobody to talk to.
		_ = unix.Kill(-group, unix.SIGKILL)
	}
	reap(group)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// reap waits for orphans of a process group: they are this process's children, see
// AdoptOrphans.
func reap(group int) {
	for {
		_, err := unix.Wait4(-group, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// AdoptOrphans makes this process the parent of what its children leave behind, as
// the first process of a container is anyway.
func AdoptOrphans() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// Complaints keeps the first of what a program complains about.
type Complaints struct{ kept bytes.Buffer }

const keptAtMost = 4 << 10

// Write implements io.Writer and forgets what is too much.
func (c *Complaints) Write(p []byte) (int, error) {
	if room := keptAtMost - c.kept.Len(); room > 0 {
		c.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// Words are the complaints in one line.
func (c *Complaints) Words() string {
	lines := strings.FieldsFunc(c.kept.String(), func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) > 4 {
		lines = lines[:4]
	}
	return strings.Join(lines, "; ")
}
