package clients

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// ErrGateClosed is the error of a request that was refused, and never sent.
var ErrGateClosed = errors.New("nothing is changed there now: it is not known whether this home cluster, or a copy of it, " +
	"acts there (kubectl lodestone status says more)")

// Gate refuses what a program would change in a remote cluster while its home cluster is not known to be the
// one that acts there; see package homeepoch. All clients of a remote cluster go through one Gate, so no caller
// can forget it. It is closed at first, and safe for concurrent use.
type Gate struct {
	mu    sync.Mutex
	until time.Time
	now   func() time.Time
}

// NewGate returns a closed Gate.
func NewGate() *Gate { return &Gate{now: time.Now} }

// OpenUntil opens the gate until a time. It never shortens the time.
func (g *Gate) OpenUntil(until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until.After(g.until) {
		g.until = until
	}
}

// Close closes the gate.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = time.Time{}
}

// Open says whether the gate is open.
func (g *Gate) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now().Before(g.until)
}

// Wrap makes all clients that are made of config go through the gate.
func (g *Gate) Wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{gate: g, next: next} })
}

type transport struct {
	gate *Gate
	next http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = &transport{}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if changes(request) && !t.gate.Open() {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, ErrGateClosed)
	}
	return t.next.RoundTrip(request)
}

// changes says whether a request may change anything in a cluster. To ask for one's own rights does not,
// and a token of home's own changes nothing: without it home could not look any more.
func changes(request *http.Request) bool {
	path := request.URL.Path
	last := path[strings.LastIndexByte(path, '/')+1:]
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		// A stream into a pod begins with a GET, too.
		return strings.Contains(path, "/pods/") && (last == "exec" || last == "attach" || last == "portforward")
	case http.MethodPost:
		return last != "selfsubjectaccessreviews" && !(last == "token" && strings.Contains(path, "/serviceaccounts/"))
	}
	return true
}
