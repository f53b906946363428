package dashboard

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/status"
)

//go:embed static
var static embed.FS

// types are the content types of the files in static.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

const (
	// mostPages is how many pages may be open at once.
	mostPages = 32
	// silence is after how long without a change a page gets a sign of life, and slowest how long it may
	// take to read what is sent.
	silence, slowest = 15 * time.Second, 30 * time.Second
)

// Server serves the page to browsers on this machine.
type Server struct {
	context string
	guard   guard

	mu     sync.Mutex
	latest *edition
	// next is closed when there is a newer edition.
	next  chan struct{}
	pages int
}

// NewServer returns a server for a listener. Context is the user's name of the home cluster.
func NewServer(context string, listener net.Listener) *Server {
	return &Server{context: context, guard: newGuard(newToken(), listener.Addr().String()), next: make(chan struct{})}
}

// Address is what the user opens.
func (s *Server) Address() string { return "http://" + s.guard.hosts[0] + "/" + s.guard.token + "/" }

// Show shows a status to all pages. Problem is a sentence if it is an old one.
func (s *Server) Show(shown status.Status, problem string) {
	e, err := newEdition(s.context, problem, shown)
	if err != nil {
		return // a Status can always be encoded; its quantities and times come from the API server
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = e
	close(s.next)
	s.next = make(chan struct{})
}

// Watched reports whether a page is open.
func (s *Server) Watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages > 0
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the dashboard: %w", err)
	}
	return nil
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range protections {
		w.Header().Set(name, value)
	}
	wanted, refusal, code := s.guard.admit(r.Method, r.Host, r.URL.Path, r.Header)
	if refusal != "" {
		http.Error(w, refusal, code)
		return
	}
	switch wanted {
	case "status.json":
		s.whole(w)
	case "events":
		s.events(w, r)
	case "":
		file(w, "index.html")
	default:
		file(w, wanted)
	}
}

func file(w http.ResponseWriter, name string) {
	content, err := static.ReadFile("static/" + name)
	if err != nil {
		http.Error(w, "the dashboard has no such file", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", types[path.Ext(name)])
	_, _ = w.Write(content)
}

// whole answers with what status -o json prints.
func (s *Server) whole(w http.ResponseWriter) {
	e, _ := s.current()
	if e == nil {
		http.Error(w, "nothing was read of the cluster yet: try again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(e.whole)
}

func (s *Server) current() (latest *edition, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest, s.next
}

// open counts a page that is opened; false if there are too many.
func (s *Server) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages == mostPages {
		return false
	}
	s.pages++
	return true
}

func (s *Server) closed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages--
}

// events sends a page the whole state and then what changes, as server-sent events. A page that reads
// slowly misses the states in between, and nothing else.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if !s.open() {
		http.Error(w, fmt.Sprintf("%d pages are open already: close some", mostPages), http.StatusServiceUnavailable)
		return
	}
	defer s.closed()
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	var sent *edition
	for {
		e, next := s.current()
		message := ": nothing has changed\n\n"
		if e != nil {
			if u, changed := e.since(sent); changed {
				content, err := json.Marshal(u)
				if err != nil {
					return
				}
				message = "data: " + string(content) + "\n\n"
			}
			sent = e
		}
		_ = control.SetWriteDeadline(time.Now().Add(slowest))
		if _, err := w.Write([]byte(message)); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-next:
		case <-time.After(silence):
		}
	}
}
