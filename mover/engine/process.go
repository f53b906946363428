package engine

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup puts a command into a process group of its own, which ends as a whole:
// rsync is several processes.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
}

// wait waits until the command and all that it started have ended, and returns its
// exit status, -1 if it was killed.
func wait(cmd *exec.Cmd) int {
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

// tail keeps the first and the last lines of what a program complains about.
type tail struct{ bytes.Buffer }

const tailAtMost = 4 << 10

// Write implements io.Writer and forgets what is too much.
func (t *tail) Write(p []byte) (int, error) {
	if room := tailAtMost - t.Len(); room > 0 {
		t.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// words are the complaints in one line.
func (t *tail) words() string {
	lines := strings.FieldsFunc(t.String(), func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) > 4 {
		lines = lines[:4]
	}
	return strings.Join(lines, "; ")
}
