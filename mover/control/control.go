// Package control serves the API of the sender, see pkg/moverapi: Server handles requests,
// Runner starts tasks, reports their progress, and stops them.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/send"
	"github.com/lodestone-storage/lodestone/mover/wire"
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

// settleTimeout limits how long the receiver of a stopped task may take to answer.
const settleTimeout = 20 * time.Second

// maxBody limits the body of a request, in bytes.
const maxBody = 64 << 10

// Server serves the controller's requests.
type Server struct {
	Runner            *Runner
	Sender            *send.Sender
	Connector         *wire.Connector
	Version, Instance string
}

// Handler returns the handler of the API in pkg/moverapi.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+moverapi.StatusPath, s.status)
	mux.HandleFunc("PUT "+moverapi.PeersPath, s.setPeers)
	mux.HandleFunc("PUT "+moverapi.TaskPath, s.start)
	mux.HandleFunc("DELETE "+moverapi.TaskPath, s.stop)
	return mux
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	status := moverapi.Status{Instance: s.Instance, Version: s.Version, Confined: s.Sender.Confined(), Task: s.Runner.Status()}
	connected, _, why := s.Connector.State()
	status.Connected = connected
	if !connected {
		status.ConnectionError = why.Error()
	}
	var missed error
	status.Seeks = true
	if status.Peers, status.Direct, missed = s.Connector.Peers(); missed != nil {
		status.PeerError = missed.Error()
	}
	answer(w, status)
}

// setPeers replaces the addresses at which the receiver is dialled.
func (s *Server) setPeers(w http.ResponseWriter, r *http.Request) {
	var peers moverapi.Peers
	if !read(w, r, &peers) {
		return
	}
	if err := peers.Check(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.Connector.SetPeers(peers.Addresses)
	w.WriteHeader(http.StatusOK)
}

// read decodes a request; if that fails it answers the request and returns false.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the request is too long", http.StatusRequestEntityTooLarge)
		return false
	}
	if err := json.Unmarshal(body, into); err != nil {
		http.Error(w, "the request is not what it should be: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func (s *Server) start(w http.ResponseWriter, r *http.Request) {
	var task moverapi.Task
	if !read(w, r, &task) {
		return
	}
	if err := validate(task); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status, err := s.Runner.Start(task)
	if errors.Is(err, errBusy) {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	if wait, err := time.ParseDuration(r.URL.Query().Get("wait")); err == nil && wait > 0 {
		ctx, stop := context.WithTimeout(r.Context(), min(wait, moverapi.LongestWait))
		defer stop()
		s.Runner.Await(ctx, task.ID)
		status = s.Runner.Status()
	}
	answer(w, status)
}

// validate returns what is wrong with a task.
func validate(task moverapi.Task) error {
	switch task.Kind {
	case moverapi.Fingerprint, moverapi.Prepare, moverapi.Pass, moverapi.Final, moverapi.Verify, moverapi.Release:
	default:
		return fmt.Errorf("there is no task of kind %.50q", task.Kind)
	}
	if task.ID == "" || len(task.ID) > 63 {
		return errors.New("a task's ID has 1 to 63 characters")
	}
	if task.BytesPerSecond < 0 {
		return errors.New("the bandwidth is negative")
	}
	return nil
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) {
	ctx, stop := context.WithTimeout(r.Context(), settleTimeout)
	defer stop()
	stopped, err := s.Runner.Stop(ctx, r.URL.Query().Get("id"))
	if err == nil && stopped {
		err = s.Sender.AwaitReceiver(ctx)
	}
	if err != nil {
		http.Error(w, "the task is stopped here, but the receiver does not answer and may still write what it has: "+err.Error(),
			http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	// A client that has hung up asks again.
	_ = json.NewEncoder(w).Encode(value)
}
