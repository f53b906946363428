package clients

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestWhileTheGateIsClosedOnlyReadsPass(t *testing.T) {
	var arrived []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived = append(arrived, r.Method+" "+r.URL.Path)
	}))
	t.Cleanup(server.Close)
	gate := NewGate()
	now := time.Unix(1000, 0)
	gate.now = func() time.Time { return now }
	config := &rest.Config{Host: server.URL}
	gate.Wrap(config)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	const ns = "/api/v1/namespaces/shop"
	ask := func(method, path string) error {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		if err == nil {
			require.NoError(t, response.Body.Close())
		}
		return err
	}
	passes := map[string]string{
		"to read":                     "GET " + ns + "/persistentvolumeclaims/data",
		"to read a log":               "GET " + ns + "/pods/a/log",
		"a claim that is called exec": "GET " + ns + "/persistentvolumeclaims/exec",
		"to ask for one's rights":     "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		"to renew one's own token":    "POST /api/v1/namespaces/lodestone-home-h1/serviceaccounts/lodestone-home/token",
	}
	refused := map[string]string{
		"to make":                "POST " + ns + "/persistentvolumeclaims",
		"to replace":             "PUT " + ns + "/services/a",
		"to patch":               "PATCH " + ns + "/persistentvolumeclaims/data",
		"to delete":              "DELETE " + ns + "/persistentvolumeclaims/data",
		"to run in a pod":        "GET " + ns + "/pods/a/exec",
		"to attach to a pod":     "POST " + ns + "/pods/a/attach",
		"to reach a pod's port":  "POST " + ns + "/pods/a/portforward",
		"to make a token Secret": "POST " + ns + "/secrets/token",
	}
	check := func(open bool) {
		t.Helper()
		assert.Equal(t, open, gate.Open())
		for name, line := range passes {
			method, path := split(line)
			assert.NoError(t, ask(method, path), name)
		}
		for name, line := range refused {
			arrived = nil
			method, path := split(line)
			err := ask(method, path)
			if open {
				assert.NoError(t, err, name)
				continue
			}
			assert.ErrorIs(t, err, ErrGateClosed, name)
			assert.Empty(t, arrived, name)
		}
	}
	check(false)
	gate.OpenUntil(now.Add(10 * time.Second))
	gate.OpenUntil(now.Add(5 * time.Second))
	check(true)
	now = now.Add(10 * time.Second)
	check(false)
	gate.OpenUntil(now.Add(time.Second))
	gate.Close()
	check(false)
}

func split(line string) (method, path string) {
	for i := range line {
		if line[i] == ' ' {
			return line[:i], line[i+1:]
		}
	}
	return line, ""
}
