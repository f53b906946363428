package testbed_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestNothingOutlivesTheProcessThatStartedIt(t *testing.T) {
	testbed.Require(t)
	tests := []struct {
		name     string
		signal   syscall.Signal
		wantCode int
	}{
		{name: "an interrupted process removes its files too", signal: syscall.SIGTERM, wantCode: 130},
		{name: "a killed process takes its control plane along", signal: syscall.SIGKILL, wantCode: -1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			temporary := t.TempDir()
			helper := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperWaits$", "-test.v")
			helper.Env = append(os.Environ(), helperVariable+"=1", "TMPDIR="+temporary)
			output, err := helper.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, helper.Start())
			awaitLine(t, output, helperReady)
			children := childrenOf(t, helper.Process.Pid)
			require.Len(t, children, 4, "etcd, API server, controller manager, scheduler")

			require.NoError(t, helper.Process.Signal(test.signal))
			_ = helper.Wait()
			require.Equal(t, test.wantCode, helper.ProcessState.ExitCode())
			for _, child := range children {
				require.Eventually(t, func() bool { return !lives(child) }, long, often, "process %d", child)
			}
			if test.signal == syscall.SIGTERM {
				left, err := os.ReadDir(temporary)
				require.NoError(t, err)
				require.Empty(t, left)
			}
		})
	}
}

func awaitLine(t *testing.T, output interface{ Read([]byte) (int, error) }, wanted string) {
	t.Helper()
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if lines.Text() == wanted {
			return
		}
	}
	t.Fatalf("the helper ended without saying %q", wanted)
}

// childrenOf returns the processes whose parent is the given one.
func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	var children []int
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		if fields := statFields(pid); len(fields) > 1 && fields[1] == fmt.Sprint(parent) {
			children = append(children, pid)
		}
	}
	return children
}

// lives is false for a process that has ended, even if nobody has asked how.
func lives(pid int) bool {
	fields := statFields(pid)
	return len(fields) > 0 && fields[0] != "Z"
}

// statFields returns the fields of /proc/<pid>/stat that follow the command: state, parent, …
func statFields(pid int) []string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(content), ") ")
	return strings.Fields(rest)
}
