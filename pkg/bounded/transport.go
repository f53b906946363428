// Package bounded keeps what a program reads from the API server of another
// cluster within bounds: that cluster has owners of its own, and whatever it
// answers must cost the reader no more than a failed request. It holds back
//
//   - redirects, which would have home's requests go to addresses that the other
//     cluster chooses;
//   - answers that are larger than MaxAnswer, and lists and watches that take more
//     memory than those of a cluster do, as far as that can be told before they are
//     decoded, and watches that bring more than a cluster has changes;
//   - anything but JSON, and in JSON numbers that take for ever to compute with;
//     but an API server says in plain text whether it is ready.
//
// What is only passed on and never held, such as a pod's log, is not bounded.
package bounded

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	// MaxAnswer is the most, in bytes, that is read of one answer; of a long list
	// that is a page.
	MaxAnswer = 32 << 20
	// maxFailure is the most, in bytes, that is read of the answer to a request
	// that failed.
	maxFailure = 1 << 20
	// pageSize is how many objects a page has.
	pageSize = "500"
	// watchBurst and watchRate bound what is read of all watches, and each second:
	// the bytes, and perItem for each object. What comes faster waits where it comes
	// from.
	watchBurst = 64 << 20
	watchRate  = 16 << 20
)

// ErrTooLarge is the error of reading an answer that is too large.
var ErrTooLarge = errors.New("the answer is larger than an API server's should be")

// Wrap bounds what clients made from a configuration read.
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
			return nil, fmt.Errorf("the API server answers with content of type %.100q, which is not read: only JSON is", response.Header.Get("Content-Type"))
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

// paged has a list come in pages that may as well come from a cache: those come
// at once, whatever is asked for.
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

// passedOn says whether an answer is a stream that goes on to a user.
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

// isHealth says whether a request asks how the API server is.
func isHealth(request *http.Request) bool {
	for _, health := range []string{"/healthz", "/livez", "/readyz"} {
		// The API server may be below a path of its own.
		if strings.HasSuffix(request.URL.Path, health) && !strings.Contains(request.URL.Path, "/api/") && !strings.Contains(request.URL.Path, "/apis/") {
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

// isJSON says whether a content type is JSON; no type is what was asked for.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/json"
}
