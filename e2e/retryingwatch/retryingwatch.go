// Package retryingwatch lets watches outlast an API server that is stopped and started
// again, as test beds do.
package retryingwatch

import (
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// retryPeriod is the time between two attempts to reach a server that is away.
const retryPeriod = 100 * time.Millisecond

// Config returns a copy of config whose watches wait for a server that cannot be
// reached, and begin as soon as it is back. An informer that is told of each failure
// pauses longer and longer, at last for up to a minute, which would decide how long a
// test of an outage takes. Other requests fail at once.
func Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next: next} })
	return config
}

type transport struct {
	next http.RoundTripper
}

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	for {
		response, err := t.next.RoundTrip(request)
		if err == nil || !isWatch(request) {
			return response, err
		}
		select {
		case <-request.Context().Done():
			return nil, err
		case <-time.After(retryPeriod):
		}
	}
}

func isWatch(request *http.Request) bool {
	watch := request.URL.Query().Get("watch")
	return request.Method == http.MethodGet && (watch == "true" || watch == "1")
}
