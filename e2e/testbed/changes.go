package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// ReconfigureScheduler starts kube-scheduler again with another configuration, a
// KubeSchedulerConfiguration whose client connection and leader election are replaced
// by those that this cluster needs, and waits until it is healthy. Empty means the
// scheduler's defaults. It counts from then on, whatever Config said.
func (c *Cluster) ReconfigureScheduler(ctx context.Context, configuration []byte) error {
	content, err := schedulerConfig(configuration, c.dir.file(scheduler+".kubeconfig"), nil)
	if err != nil {
		return err
	}
	if err := c.dir.write(schedulerConfigFile, content); err != nil {
		return err
	}
	if c.runs(scheduler) {
		if err := c.StopScheduler(ctx); err != nil {
			return err
		}
	}
	return c.StartScheduler(ctx)
}

// PauseScheduler freezes kube-scheduler: what happens meanwhile waits for it.
func (c *Cluster) PauseScheduler() error { return c.pause(scheduler) }

// ResumeScheduler undoes PauseScheduler.
func (c *Cluster) ResumeScheduler() error { return c.signal(scheduler, syscall.SIGCONT) }

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
