package testbed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// awaitPaused waits until no thread of a process that was told to pause runs any
// more: the kernel stops each when it next looks at it, and until then one may go on
// answering. Where threads cannot be looked at, it does not wait.
func (p *process) awaitPaused(most time.Duration) error {
	threads := "/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/task/*/stat"
	for deadline := time.Now().Add(most); ; {
		files, err := filepath.Glob(threads)
		if err != nil {
			return fmt.Errorf("find the threads of %s: %w", p.program, err)
		}
		running := ""
		for _, file := range files {
			stat, err := os.ReadFile(file)
			if err != nil {
				continue // the thread has ended
			}
			// The name before the state is in parentheses, and may hold some.
			if state := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:]); len(state) > 0 && state[0] != 'T' {
				running = file
			}
		}
		if running == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pause %s: after %s %s does not say that the thread is stopped", p.program, most, running)
		}
		time.Sleep(time.Millisecond)
	}
}
