package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/lodestone-storage/lodestone/mover/send"
	"github.com/lodestone-storage/lodestone/mover/wire"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

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
	case moverapi.Prepare, moverapi.Pass, moverapi.Final, moverapi.Verify, moverapi.Release:
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
