package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
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

// guard says which requests are served: those of a page that was opened at the address which the
// command printed. It is a value without I/O.
type guard struct {
	// token is the first element of every path. Who knows it sees what the user may read.
	token string
	// hosts are what a browser asks for that opened the address. Another name that leads here is that
	// of a site which has made its own name mean this machine (DNS rebinding).
	hosts []string
}

func newToken() string {
	random := make([]byte, 24)
	_, _ = rand.Read(random) // it never fails
	return hex.EncodeToString(random)
}

// newGuard returns the guard of a server that listens at an address.
func newGuard(token, address string) guard {
	_, port, _ := net.SplitHostPort(address)
	return guard{token: token, hosts: []string{address, net.JoinHostPort("localhost", port)}}
}

// admit returns what is asked for below the token; or the sentence and the status code with which the
// request is refused. Nothing is said that would tell a stranger more than that.
func (g guard) admit(method, host, path string, header http.Header) (wanted, refusal string, code int) {
	site, origin := header.Get("Sec-Fetch-Site"), header.Get("Origin")
	switch {
	case method != http.MethodGet:
		return "", "the dashboard changes nothing: only GET is served", http.StatusMethodNotAllowed
	case !slices.Contains(g.hosts, strings.ToLower(host)):
		return "", "the dashboard is not served under this name: open the address that kubectl lodestone dashboard printed",
			http.StatusMisdirectedRequest
	case site != "" && site != "same-origin" && site != "none", origin != "" && origin != "http://"+strings.ToLower(host):
		return "", "the dashboard is not served to other pages: open the address that kubectl lodestone dashboard printed in a new tab",
			http.StatusForbidden
	}
	token, wanted, inside := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if subtle.ConstantTimeCompare([]byte(token), []byte(g.token)) != 1 || !inside {
		return "", "this is not the whole address: open the one that kubectl lodestone dashboard printed", http.StatusForbidden
	}
	return wanted, "", 0
}

// protections are the headers of every answer: the page may load its own files and nothing else, run
// no other script, be in no other page and in no cache, and its address goes nowhere.
var protections = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"Cache-Control":                "no-store",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
}

// loopback returns the address to listen at. Any other than a loopback address is refused.
func loopback(address string, port int) (string, error) {
	if port < 0 || port > 65535 {
		return "", cli.Misuse("--port %d is not a port: give one from 1 to 65535, or 0 for any that is free", port)
	}
	ip := net.ParseIP(address)
	if address == "localhost" {
		ip = net.IPv4(127, 0, 0, 1)
	}
	if ip == nil || !ip.IsLoopback() {
		return "", cli.Misuse("--address %q is not a loopback address, and whoever reached the page would see all that you may read: give "+
			"127.0.0.1 or ::1; to look from another machine, forward the port with ssh -L", address)
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(port)), nil
}
