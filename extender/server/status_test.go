package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/extender/server"
)

func get(s *server.Server, path string) (int, string) {
	recorder := httptest.NewRecorder()
	s.Status().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

func TestStatus(t *testing.T) {
	for name, test := range map[string]struct {
		missing  []string
		stopping bool
		stale    time.Duration
		code     int
		says     string
		serving  int
	}{
		"all has been read":                   {code: http.StatusOK, says: "ok\n", serving: http.StatusOK},
		"something is still missing":          {missing: []string{"remoteclusters"}, code: http.StatusServiceUnavailable, says: "not ready: still reading remoteclusters from the API server; if this lasts, the log says why\n", serving: http.StatusServiceUnavailable},
		"a kind is out of sight for a while":  {stale: time.Minute, code: http.StatusOK, says: "ok\n", serving: http.StatusOK},
		"a kind is out of sight for too long": {stale: 90*time.Second + time.Millisecond, code: http.StatusServiceUnavailable, says: "not ready: nodes cannot be watched for 1m30s, and calls are answered from what was known before: see that the API server is reachable and lets this program's ServiceAccount list and watch them; the log says why\n", serving: http.StatusOK},
		"the program is about to end":         {stopping: true, code: http.StatusServiceUnavailable, says: "not ready: the program is stopping\n", serving: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			s.Missing = func() []string { return test.missing }
			s.MaxStaleness = time.Minute
			s.Stalest = func() (string, time.Duration) { return "nodes", test.stale }
			s.Stopping = func() bool { return test.stopping }
			code, body := get(s, "/readyz")
			assert.Equal(t, test.code, code)
			assert.Equal(t, test.says, body)

			code, body = get(s, "/readyz/serving")
			assert.Equal(t, test.serving, code)
			if code != http.StatusOK {
				assert.Equal(t, test.says, body)
			}

			code, _ = get(s, "/healthz")
			assert.Equal(t, http.StatusOK, code, "a program that is not ready must not be restarted for it")
		})
	}
}
