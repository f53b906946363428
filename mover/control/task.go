// Package control is the API of the sender, see pkg/movecontrol: it starts tasks,
// tells how far they are, and stops them.
package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/send"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// Runner does one task at a time. Its methods may be called at once.
type Runner struct {
	// Run does a task; see send.Sender.
	Run func(ctx context.Context, task movecontrol.Task, meter *send.Meter) (movecontrol.TaskStatus, error)
	// Context ends all tasks.
	Context context.Context

	mutex sync.Mutex
	last  *work
}

// work is a task and its state.
type work struct {
	status movecontrol.TaskStatus
	meter  *send.Meter
	stop   context.CancelFunc
	ended  chan struct{}
}

// errBusy means that another task runs.
var errBusy = errors.New("another task runs")

// Start starts a task, unless it is the last one that was started.
func (r *Runner) Start(task movecontrol.Task) (*movecontrol.TaskStatus, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.last != nil {
		if r.last.status.ID == task.ID {
			return r.status(), nil
		}
		if r.last.status.State == movecontrol.Running {
			return nil, fmt.Errorf("%w: %s", errBusy, r.last.status.ID)
		}
	}
	ctx, stop := context.WithCancel(r.Context)
	w := &work{
		status: movecontrol.TaskStatus{Task: task, State: movecontrol.Running, Started: time.Now()},
		meter:  &send.Meter{}, stop: stop, ended: make(chan struct{}),
	}
	r.last = w
	go r.do(ctx, w)
	return r.status(), nil
}

// do does a task and keeps its result.
func (r *Runner) do(ctx context.Context, w *work) {
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
	result.State = movecontrol.Done
	switch {
	case err != nil && ctx.Err() != nil:
		result.State = movecontrol.Cancelled
	case err != nil:
		result.State, result.Error = movecontrol.Failed, err.Error()
	}
	w.status = result
	logger.Info("A task ended", "state", result.State, "error", result.Error, "seconds", result.Ended.Sub(result.Started).Seconds())
}

// Status is the state of the last task, nil if there was none.
func (r *Runner) Status() *movecontrol.TaskStatus {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.status()
}

func (r *Runner) status() *movecontrol.TaskStatus {
	if r.last == nil {
		return nil
	}
	status := r.last.status
	if status.State == movecontrol.Running {
		status.Progress = r.last.meter.Progress(time.Now())
	}
	return &status
}

// Stop stops the last task if it has an ID and runs, and waits until it has ended
// here. It says whether there was something to stop.
func (r *Runner) Stop(ctx context.Context, id string) (bool, error) {
	r.mutex.Lock()
	w := r.last
	runs := w != nil && w.status.ID == id && w.status.State == movecontrol.Running
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
