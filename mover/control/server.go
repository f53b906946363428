package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/lodestone-storage/lodestone/mover/link"
	"github.com/lodestone-storage/lodestone/mover/send"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// settleTime is how long a stopped task's receiver may take to answer.
const settleTime = 20 * time.Second

// bodyAtMost bounds what is read of a request.
const bodyAtMost = 64 << 10

// Server answers the controller.
type Server struct {
	Runner            *Runner
	Sender            *send.Sender
	Link              *link.Sender
	Version, Instance string
}

// Handler is the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+movecontrol.StatusPath, s.status)
	mux.HandleFunc("PUT "+movecontrol.PeersPath, s.tell)
	mux.HandleFunc("PUT "+movecontrol.TaskPath, s.start)
	mux.HandleFunc("DELETE "+movecontrol.TaskPath, s.stop)
	return mux
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	status := movecontrol.Status{Instance: s.Instance, Version: s.Version, Confined: s.Sender.Confined(), Task: s.Runner.Status()}
	connected, _, why := s.Link.State()
	status.Connected = connected
	if !connected {
		status.ConnectionError = why.Error()
	}
	var missed error
	status.Seeks = true
	if status.Peers, status.Direct, missed = s.Link.Peers(); missed != nil {
		status.PeerError = missed.Error()
	}
	answer(w, status)
}

// tell has the receiver looked for at other addresses.
func (s *Server) tell(w http.ResponseWriter, r *http.Request) {
	var peers movecontrol.Peers
	if !read(w, r, &peers) {
		return
	}
	if err := peers.Check(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.Link.Tell(peers.Addresses)
	w.WriteHeader(http.StatusOK)
}

// read decodes a request into what is asked for; false: it was answered why not.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyAtMost))
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
	var task movecontrol.Task
	if !read(w, r, &task) {
		return
	}
	if err := check(task); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status, err := s.Runner.Start(task)
	if errors.Is(err, errBusy) {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	answer(w, status)
}

// check returns what is wrong with a task.
func check(task movecontrol.Task) error {
	switch task.Kind {
	case movecontrol.Prepare, movecontrol.Pass, movecontrol.Final, movecontrol.Verify:
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
	ctx, stop := context.WithTimeout(r.Context(), settleTime)
	defer stop()
	stopped, err := s.Runner.Stop(ctx, r.URL.Query().Get("id"))
	if err == nil && stopped {
		err = s.Sender.Settle(ctx)
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
	// A client that is gone asks again.
	_ = json.NewEncoder(w).Encode(value)
}
