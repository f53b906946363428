// Package untrusted limits what a program reads from the API server of another cluster: that
// cluster has owners of its own, and whatever it answers must cost the reader no more than a failed
// request. Wrap adds the limits to a rest.Config; read transport.go first. It refuses
//
//   - redirects, which would send home's requests to addresses that the other cluster chooses;
//   - answers larger than MaxAnswer; lists and watches that would take more memory than those of
//     a real cluster, estimated before they are decoded; and watches that bring more changes than
//     a cluster has;
//   - anything but JSON, and in JSON numbers that take for ever to compute with; but an API server
//     says in plain text whether it is ready.
//
// Streams that are only passed on and not kept in memory, such as a pod's log, are not limited.
package untrusted

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	// MaxAnswer is the most, in bytes, that is read of one answer; of a long list
	// that is a page.
	MaxAnswer = 32 << 20
	// maxFailure is how many bytes are read of the answer to a request that failed.
	maxFailure = 1 << 20
	// pageSize is how many objects a page has.
	pageSize = "500"
	// watchBurst and watchRate limit what is read of all watches together, at once and each second:
	// the bytes, and perItem for each object. Reading pauses when they are used up, so faster
	// changes wait at the sender.
	watchBurst = 64 << 20
	watchRate  = 16 << 20
)

// ErrTooLarge is the error of reading an answer that is too large.
var ErrTooLarge = errors.New("the answer is larger than an API server's should be")

// Wrap adds the limits to all clients that are made from config. Clients of one config share them.
func Wrap(config *rest.Config) {
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	// All clients that are made of it share the bounds.
	shared := newLedger(usual)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next: next, ledger: shared} })
}

type transport struct {
	next   http.RoundTripper
	ledger *ledger
}

var _ utilnet.RoundTripperWrapper = &transport{}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = paged(request)
	of, err := t.ledger.begin(request)
	if err != nil {
		return nil, err
	}
	response, err := t.next.RoundTrip(request)
	if of != nil {
		end := func() { t.ledger.end(of) }
		if err != nil {
			end()
		} else {
			response.Body = body{response.Body, &closing{Closer: response.Body, then: end}}
		}
	}
	if err != nil || response.StatusCode == http.StatusSwitchingProtocols || passedOn(request) {
		return response, err
	}
	if response.StatusCode >= 300 && response.StatusCode < 400 {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the API server redirects the request (%d), which is not followed: give its own address", response.StatusCode)
	}
	if !isJSON(response.Header.Get("Content-Type")) {
		if isHealth(request) && response.StatusCode < 300 {
			response.Header.Set("Content-Type", "text/plain")
			response.Body = body{&limited{reader: response.Body, left: maxFailure}, response.Body}
			return response, nil
		}
		if response.StatusCode < 300 && response.StatusCode != http.StatusNoContent {
			_ = response.Body.Close()
			return nil, fmt.Errorf("the API server answers with content of type %.100q, which is not read: only JSON is",
				response.Header.Get("Content-Type"))
		}
		// Shown as it is, not decoded.
		response.Header.Set("Content-Type", "text/plain")
	}
	safe := &numbers{reader: response.Body}
	switch {
	case response.StatusCode >= 300:
		response.Body = body{&limited{reader: safe, left: maxFailure}, response.Body}
	case isWatch(request):
		response.Body = t.ledger.watch(request, safe, response.Body, of)
	default:
		response.Body = t.ledger.page(request, safe, response.Body, of)
	}
	return response, nil
}

// paged makes a list come in pages. The API server may serve an unpaged list from its cache, and
// then sends all of it whatever the limit is; a paged one is read from storage.
func paged(request *http.Request) *http.Request {
	query := request.URL.Query()
	if request.Method != http.MethodGet || isWatch(request) || query.Get("resourceVersion") == "" && query.Get("continue") == "" {
		return request
	}
	query.Del("resourceVersion")
	query.Del("resourceVersionMatch")
	if query.Get("limit") == "" {
		query.Set("limit", pageSize)
	}
	clone := request.Clone(request.Context())
	clone.URL.RawQuery = query.Encode()
	return clone
}

// passedOn reports whether an answer is a stream that is forwarded to a user.
func passedOn(request *http.Request) bool {
	parts := strings.Split(request.URL.Path, "/")
	if len(parts) < 3 || parts[len(parts)-3] != "pods" {
		return false
	}
	switch parts[len(parts)-1] {
	case "log", "exec", "attach", "portforward":
		return true
	}
	return false
}

// isHealth reports whether a request is for a health endpoint of the API server.
func isHealth(request *http.Request) bool {
	for _, health := range []string{"/healthz", "/livez", "/readyz"} {
		// The API server may be below a path of its own.
		if strings.HasSuffix(request.URL.Path, health) && !strings.Contains(request.URL.Path, "/api/") &&
			!strings.Contains(request.URL.Path, "/apis/") {
			return request.Method == http.MethodGet
		}
	}
	return false
}

func isWatch(request *http.Request) bool {
	switch request.URL.Query().Get("watch") {
	case "true", "1":
		return request.Method == http.MethodGet
	}
	return false
}

// isJSON reports whether a content type is JSON. A missing type counts as the one that was asked
// for.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/json"
}

// body is the rest of an answer: it is read through a limit, and closing it closes the answer.
type body struct {
	io.Reader
	io.Closer
}

// closing calls a function once when it is closed.
type closing struct {
	io.Closer
	once sync.Once
	then func()
}

// Close implements io.Closer.
func (c *closing) Close() error {
	c.once.Do(c.then)
	return c.Closer.Close()
}

// limited reads at most so many bytes of reader and returns ErrTooLarge if there are more.
type limited struct {
	reader io.Reader
	left   int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		// It may just be at its end.
		var one [1]byte
		if n, err := l.reader.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, ErrTooLarge
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.reader.Read(p)
	l.left -= int64(n)
	return n, err
}

// pace limits reading to a rate, in bytes a second, once a burst is used up. It is safe for
// concurrent use.
type pace struct {
	burst, rate float64
	now         func() time.Time
	wait        func(ctx context.Context, d time.Duration) error

	mu sync.Mutex
	// used is what of the burst is used up at the time at.
	used float64
	at   time.Time
}

func newPace(burst, rate int) *pace {
	return &pace{burst: float64(burst), rate: float64(rate), at: time.Now(), now: time.Now, wait: wait}
}

// await blocks until more may be read.
func (p *pace) await(ctx context.Context) error {
	p.mu.Lock()
	p.pass()
	over := p.used - p.burst
	p.mu.Unlock()
	if over <= 0 {
		return nil
	}
	return p.wait(ctx, time.Duration(over/p.rate*float64(time.Second)))
}

// spend records that n bytes were read.
func (p *pace) spend(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass()
	p.used += float64(n)
}

// pass updates the budget for the time since the last call. The caller holds the lock.
func (p *pace) pass() {
	now := p.now()
	p.used = max(0, p.used-now.Sub(p.at).Seconds()*p.rate)
	p.at = now
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
