package testbed

import (
	"context"
	"syscall"
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
