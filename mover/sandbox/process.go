package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SetProcessGroup puts a command into a process group of its own, which ends as a whole:
// rsync is several processes.
func SetProcessGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
}

// WaitForGroup waits until the command and all that it started have ended, and returns its
// exit status, -1 if it was killed.
func WaitForGroup(cmd *exec.Cmd) int {
	group := cmd.Process.Pid
	err := cmd.Wait()
	if cmd.ProcessState == nil || !cmd.ProcessState.Success() {
		// The remaining processes of the group have nobody to talk to.
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

// reap waits for orphans of a process group: they are children of this process, see AdoptOrphans.
func reap(group int) {
	for {
		_, err := unix.Wait4(-group, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// AdoptOrphans makes this process the parent of its children's orphans, as the first process of a
// container is anyway.
func AdoptOrphans() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// Stderr keeps the beginning of a program's standard error.
type Stderr struct{ text bytes.Buffer }

const maxStderr = 4 << 10

// Write implements io.Writer and drops what exceeds the limit.
func (c *Stderr) Write(p []byte) (int, error) {
	if room := maxStderr - c.text.Len(); room > 0 {
		c.text.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// Line returns the complaints in one line.
func (c *Stderr) Line() string {
	lines := strings.FieldsFunc(c.text.String(), func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) > 4 {
		lines = lines[:4]
	}
	return strings.Join(lines, "; ")
}

// Usage is what a process has used so far, with all its threads, without its children.
type Usage struct {
	// Bytes is how many bytes it has read and written, in files, connections and pipes.
	Bytes int64
	// CPU is its CPU time, in steps of a hundredth of a second.
	CPU time.Duration
}

// clockTick is the unit in which the kernel reports CPU times, on every machine that Go supports.
const clockTick = time.Second / 100

// UsageOf reads the usage of a process. It fails if the kernel does not report it, and after the
// end of the process.
func UsageOf(pid int) (Usage, error) {
	counts, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read what a program has moved: %w", err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read how long a program has computed: %w", err)
	}
	return parseUsage(counts, stat)
}

// parseUsage parses the files io and stat of a process.
func parseUsage(counts, stat []byte) (Usage, error) {
	var used Usage
	found := 0
	for line := range bytes.Lines(counts) {
		name, value, _ := bytes.Cut(line, []byte(": "))
		if string(name) != "rchar" && string(name) != "wchar" {
			continue
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("read what a program has moved: %w", err)
		}
		used.Bytes += n
		found++
	}
	// The name of a program, in parentheses, may have spaces and parentheses of its own.
	// The fields after it begin with the third; the 14th and 15th are times.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if found != 2 || len(fields) < 13 {
		return Usage{}, fmt.Errorf("the kernel tells of a program %q and %q", counts, stat)
	}
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("read how long a program has computed: %w", err)
		}
		used.CPU += time.Duration(n) * clockTick
	}
	return used, nil
}

// neededCapabilities are the capabilities that a mover needs, and what would be lost without them.
var neededCapabilities = []struct {
	bit  uint
	name string
}{
	{unix.CAP_CHOWN, "CHOWN"}, {unix.CAP_DAC_OVERRIDE, "DAC_OVERRIDE"}, {unix.CAP_FOWNER, "FOWNER"},
	{unix.CAP_FSETID, "FSETID"}, {unix.CAP_MKNOD, "MKNOD"}, {unix.CAP_SETFCAP, "SETFCAP"},
}

// missingCapabilities returns the names of the needed capabilities that are not in a set, as
// /proc/self/status has it.
func missingCapabilities(effective uint64) []string {
	var missing []string
	for _, n := range neededCapabilities {
		if effective&(1<<n.bit) == 0 {
			missing = append(missing, n.name)
		}
	}
	return missing
}

// CheckCapabilities returns an error unless this process is root and has all capabilities that it
// needs: without one of them a copy would lose something without anybody noticing. A rootless one may be any other user: what
// that one cannot keep is found out from the volumes.
func CheckCapabilities(rootless bool) error {
	if os.Geteuid() != 0 {
		if rootless {
			return nil
		}
		return fmt.Errorf("the mover runs as user %d and would lose owners and devices: let its pod run as user 0", os.Geteuid())
	}
	effective, err := effectiveCapabilities()
	if err != nil {
		return err
	}
	if missing := missingCapabilities(effective); len(missing) > 0 {
		return fmt.Errorf("the mover lacks the capabilities %s and would lose what they are for: add them to its container's securityContext",
			strings.Join(missing, ", "))
	}
	return nil
}

func effectiveCapabilities() (uint64, error) {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read the mover's capabilities: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), "CapEff:"); found {
			return strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	return 0, fmt.Errorf("read the mover's capabilities: %w", os.ErrNotExist)
}
