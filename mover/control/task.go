// Package control serves the API of the sender, see pkg/moverapi: Server handles requests
// (server.go), Runner starts tasks, reports their progress, and stops them.
package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/send"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// Runner runs one task at a time. Its methods are safe for concurrent use.
type Runner struct {
	// Run executes a task; see send.Sender.Run.
	Run func(ctx context.Context, task moverapi.Task, meter *send.Meter) (moverapi.TaskStatus, error)
	// Context is the parent of all tasks' contexts: its end ends them.
	Context context.Context

	mutex sync.Mutex
	last  *taskRun
}

// taskRun is a task and its state.
type taskRun struct {
	status moverapi.TaskStatus
	meter  *send.Meter
	stop   context.CancelFunc
	ended  chan struct{}
}

// errBusy means that another task runs.
var errBusy = errors.New("another task runs")

// Start starts a task, unless it is the last one that was started.
func (r *Runner) Start(task moverapi.Task) (*moverapi.TaskStatus, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.last != nil {
		if r.last.status.ID == task.ID {
			return r.status(), nil
		}
		if r.last.status.State == moverapi.Running {
			return nil, fmt.Errorf("%w: %s", errBusy, r.last.status.ID)
		}
	}
	ctx, stop := context.WithCancel(r.Context)
	w := &taskRun{
		status: moverapi.TaskStatus{Task: task, State: moverapi.Running, Started: time.Now()},
		meter:  &send.Meter{}, stop: stop, ended: make(chan struct{}),
	}
	r.last = w
	go r.do(ctx, w)
	return r.status(), nil
}

// do executes a task and stores its result.
func (r *Runner) do(ctx context.Context, w *taskRun) {
	defer close(w.ended)
	defer w.stop()
	task := w.status.Task
	logger := klog.FromContext(ctx).WithValues("task", task.ID, "kind", task.Kind)
	logger.Info("Starting a task")
	result, err := r.Run(ctx, task, w.meter)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	result.Task, result.Started, result.Ended = task, w.status.Started, time.Now()
	result.Progress = w.meter.Progress(result.Ended)
	result.State = moverapi.Done
	switch {
	case err != nil && ctx.Err() != nil:
		result.State = moverapi.Cancelled
	case err != nil:
		result.State, result.Error = moverapi.Failed, err.Error()
	}
	w.status = result
	logger.Info("A task ended", "state", result.State, "error", result.Error, "seconds", result.Ended.Sub(result.Started).Seconds())
}

// Status returns the state of the last task, nil if there was none.
func (r *Runner) Status() *moverapi.TaskStatus {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.status()
}

// Await waits until the task with an ID has ended, if it is the last one, or ctx ends.
func (r *Runner) Await(ctx context.Context, id string) {
	r.mutex.Lock()
	w := r.last
	r.mutex.Unlock()
	if w == nil || w.status.ID != id {
		return
	}
	select {
	case <-w.ended:
	case <-ctx.Done():
	}
}

func (r *Runner) status() *moverapi.TaskStatus {
	if r.last == nil {
		return nil
	}
	status := r.last.status
	if status.State == moverapi.Running {
		status.Progress = r.last.meter.Progress(time.Now())
	}
	return &status
}

// Stop stops the last task if it has this ID and runs, and waits until it has ended at this end. It
// returns false if there was nothing to stop.
func (r *Runner) Stop(ctx context.Context, id string) (bool, error) {
	r.mutex.Lock()
	w := r.last
	runs := w != nil && w.status.ID == id && w.status.State == moverapi.Running
	r.mutex.Unlock()
	if !runs {
		return false, nil
	}
	w.stop()
	select {
	case <-w.ended:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}
