package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func TestBadRequestsGetOneSentence(t *testing.T) {
	whole, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"west"}})
	require.NoError(t, err)
	huge := func() io.Reader { return io.LimitReader(endless{}, 64<<20+1) }
	for name, test := range map[string]struct {
		body func() io.Reader
		code int
		says string
	}{
		"empty":                   {body: func() io.Reader { return strings.NewReader("") }, code: http.StatusBadRequest, says: "no body"},
		"malformed":               {body: func() io.Reader { return strings.NewReader("{") }, code: http.StatusBadRequest, says: "not ExtenderArgs"},
		"truncated":               {body: func() io.Reader { return bytes.NewReader(whole[:len(whole)-1]) }, code: http.StatusBadRequest, says: "not ExtenderArgs"},
		"nil pod":                 {body: func() io.Reader { return strings.NewReader(`{"NodeNames":[]}`) }, code: http.StatusBadRequest, says: "no Pod"},
		"nil nodes":               {body: func() io.Reader { return strings.NewReader(`{"Pod":{}}`) }, code: http.StatusBadRequest, says: "neither NodeNames nor Nodes"},
		"huge, and says so":       {body: func() io.Reader { return bytes.NewReader(make([]byte, 64<<20+1)) }, code: http.StatusRequestEntityTooLarge, says: "nodeCacheCapable: true"},
		"huge, of unknown length": {body: huge, code: http.StatusRequestEntityTooLarge, says: "nodeCacheCapable: true"},
		"broken off":              {body: func() io.Reader { return io.MultiReader(bytes.NewReader(whole[:10]), failing{}) }, code: http.StatusBadRequest, says: "did not arrive whole"},
	} {
		for _, verb := range []string{"/filter", "/prioritize"} {
			t.Run(name+" "+verb, func(t *testing.T) {
				answer := post(newServer().Handler(), verb, test.body())
				assert.Equal(t, test.code, answer.Code)
				var result extenderv1.ExtenderFilterResult
				require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &result), answer.Body.String())
				assert.Contains(t, result.Error, test.says)
				assert.Nil(t, result.NodeNames)
				assert.Nil(t, result.Nodes)
			})
		}
	}
}

func TestLargeRequestsShareABudget(t *testing.T) {
	s := newServer()
	handler := s.Handler()
	held, release := make(chan struct{}, 2), make(chan struct{})
	done := make(chan int, 2)
	for range 2 {
		go func() { done <- post(handler, "/filter", &holding{held: held, release: release}).Code }()
		<-held
	}
	answer := post(handler, "/filter", strings.NewReader("{}"))
	assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
	assert.Contains(t, answer.Body.String(), "too many large requests at once")
	close(release)
	assert.Equal(t, http.StatusBadRequest, <-done)
	assert.Equal(t, http.StatusBadRequest, <-done)
	assert.Equal(t, http.StatusBadRequest, post(handler, "/filter", strings.NewReader("{}")).Code, "the budget is given back")
}

func TestOtherCallsAreRefused(t *testing.T) {
	handler := newServer().Handler()
	assert.Equal(t, http.StatusNotFound, post(handler, "/bind", strings.NewReader("{}")).Code)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/filter", nil))
	assert.Equal(t, http.StatusMethodNotAllowed, recorder.Code)
}

func TestNothingIsAnsweredBeforeAllIsRead(t *testing.T) {
	s := newServer()
	s.Missing = func() []string { return []string{"nodes", "remoteclusters"} }
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"west"}})
	require.NoError(t, err)
	answer := post(s.Handler(), "/filter", bytes.NewReader(body))
	assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
	assert.Contains(t, answer.Body.String(), "still reading nodes, remoteclusters")
}

func TestAPanicEndsOneRequestOnly(t *testing.T) {
	s := newServer()
	view := s.View
	s.View = nil
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"west"}})
	require.NoError(t, err)
	handler := s.Handler()
	answer := post(handler, "/filter", bytes.NewReader(body))
	assert.Equal(t, http.StatusInternalServerError, answer.Code)
	assert.Contains(t, answer.Body.String(), "its log says where")
	assert.InDelta(t, 1, counter(t, s, "lodestone_extender_panics_total"), 0)

	s.View = view
	assert.Equal(t, http.StatusOK, post(handler, "/filter", bytes.NewReader(body)).Code)
}

func TestConnectionsEndWhenStopping(t *testing.T) {
	s := newServer()
	s.Stopping = func() bool { return true }
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"west"}})
	require.NoError(t, err)
	answer := post(s.Handler(), "/filter", bytes.NewReader(body))
	assert.Equal(t, http.StatusOK, answer.Code)
	assert.Equal(t, "close", answer.Header().Get("Connection"))
}
