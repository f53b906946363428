package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRelayCountsConnections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "answered")
	}))
	t.Cleanup(server.Close)
	r, err := newRelay(t.Context(), server.URL)
	require.NoError(t, err)
	t.Cleanup(r.close)
	call := func(client *http.Client) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url(), nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, "answered", string(body))
	}
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	for range 3 {
		call(client)
	}
	assert.Equal(t, int64(1), r.opened.Load(), "a connection that is kept counts once")
	for range 3 {
		call(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	}
	assert.Equal(t, int64(4), r.opened.Load())
}

func TestPodsRunWhereTheirClaimsAllow(t *testing.T) {
	assert.Equal(t, 500, passing(500, 0), "a pod without claims runs everywhere")
	assert.Equal(t, 475, passing(500, 1), "an unbound claim shuts the clusters out that are not ready")
	assert.Equal(t, 450, passing(500, 4), "a claim bound at home shuts all other clusters out")
}
