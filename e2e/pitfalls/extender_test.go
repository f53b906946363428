package pitfalls

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/app"
)

// address returns an address for an extender, where nobody listens yet.
func address(t *testing.T) string {
	t.Helper()
	testbed.Require(t)
	reserved, err := bed.ReserveAddress()
	require.NoError(t, err)
	return reserved
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	return listener
}

// extender is a running extender.
type extender struct {
	status string // the URL of its probes and metrics
	stop   func()
}

// runExtender runs the extender with the rights of a ServiceAccount and waits until
// it is ready. It ends with the test, if not before.
func runExtender(t *testing.T, address, serviceAccount string) *extender {
	t.Helper()
	home, err := bed.ServiceAccountConfig(t.Context(), system, serviceAccount)
	require.NoError(t, err)
	status := listen(t, "127.0.0.1:0")
	verbs := listen(t, address)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, &app.Config{Home: home, Verbs: verbs, Status: status, MaxStaleness: time.Minute})
	}()
	stopped := false
	e := &extender{status: "http://" + status.Addr().String(), stop: func() {
		if !stopped {
			stopped = true
			cancel()
			assert.NoError(t, <-ended)
		}
	}}
	t.Cleanup(e.stop)
	require.Eventually(t, func() bool {
		code, _ := get(t, e.status+"/readyz")
		return code == http.StatusOK
	}, long, often, "the extender must become ready")
	return e
}

// calls returns how many calls of a verb have been answered.
func (e *extender) calls(t *testing.T, verb string) int {
	t.Helper()
	code, metrics := get(t, e.status+"/metrics")
	require.Equal(t, http.StatusOK, code)
	calls := 0
	for line := range strings.Lines(metrics) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if strings.HasPrefix(series, "lodestone_extender_requests_total{") && strings.Contains(series, `verb="`+verb+`"`) {
			count, err := strconv.Atoi(value)
			require.NoError(t, err)
			calls += count
		}
	}
	return calls
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// impostor answers in the extender's stead until the test ends or stop is called.
func impostor(t *testing.T, address string, handler http.HandlerFunc) (stop func()) {
	t.Helper()
	listener := listen(t, address)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	stop = func() {
		_ = server.Close()
		<-done
	}
	t.Cleanup(stop)
	return stop
}
