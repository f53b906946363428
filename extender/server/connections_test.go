package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// listening is a server on a real socket, with its own short time limit.
type listening struct {
	*httptest.Server
	connections atomic.Int64
}

func listen(t *testing.T, handler http.Handler) *listening {
	t.Helper()
	l := &listening{Server: httptest.NewUnstartedServer(handler)}
	l.Config.ReadTimeout = 300 * time.Millisecond
	l.Config.WriteTimeout = 600 * time.Millisecond
	l.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			l.connections.Add(1)
		}
	}
	l.Start()
	t.Cleanup(l.Close)
	return l
}

// dial opens a connection and writes text to it.
func (l *listening) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	require.NoError(t, connection.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(connection, text)
	require.NoError(t, err)
	return connection
}

// answerFrom reads one answer.
func answerFrom(t *testing.T, from *bufio.Reader) (code int, result extenderv1.ExtenderFilterResult) {
	t.Helper()
	response, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.GreaterOrEqual(t, response.ContentLength, int64(0))
	assert.Empty(t, response.TransferEncoding)
	require.NoError(t, json.NewDecoder(response.Body).Decode(&result))
	return response.StatusCode, result
}

// call is a filter call as text; announced is its Content-Length.
func call(body string, announced int) string {
	return fmt.Sprintf("POST /filter HTTP/1.1\r\nHost: extender\r\nContent-Length: %d\r\n\r\n%s", announced, body)
}

func bodyFor(t *testing.T, claim string, names ...string) string {
	t.Helper()
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith(claim), NodeNames: &names})
	require.NoError(t, err)
	return string(body)
}

// requireAllIsFree fails unless a request that needs almost all the memory that
// there is for requests gets it.
func requireAllIsFree(t *testing.T, handler http.Handler) {
	t.Helper()
	odd := `{"pod":{"x":"` + strings.Repeat("x", 7<<20) + `"},"NodeNames":["west"]}`
	require.Eventually(t, func() bool {
		return post(handler, "/filter", strings.NewReader(odd)).Code == http.StatusOK
	}, 10*time.Second, 50*time.Millisecond)
}

func TestCallersThatFallSilent(t *testing.T) {
	handler := newServer().Handler()
	server := listen(t, handler)
	body := bodyFor(t, "data", "home-1", "west")

	t.Run("in the header", func(t *testing.T) {
		_, err := io.ReadAll(server.dial(t, "POST /filter HTTP/1.1\r\nHo"))
		require.NoError(t, err, "the connection is closed")
	})
	t.Run("in the body", func(t *testing.T) {
		code, result := answerFrom(t, bufio.NewReader(server.dial(t, call(body[:20], len(body)))))
		assert.Equal(t, http.StatusBadRequest, code)
		assert.Contains(t, result.Error, "did not arrive whole: send it again")
	})
	t.Run("after the announcement of a large body", func(t *testing.T) {
		for range 2 {
			server.dial(t, call("", 60<<20))
		}
		requireAllIsFree(t, handler)
	})
	t.Run("and hang up in the body", func(t *testing.T) {
		for range 20 {
			require.NoError(t, server.dial(t, call(body[:20], 60<<20)).Close())
		}
		requireAllIsFree(t, handler)
	})
	t.Run("and do not take their answer", func(t *testing.T) {
		large := fmt.Sprintf(`{"Pod":{},"x":%q,"NodeNames":[%s"west"]}`, strings.Repeat("x", 1000), strings.Repeat(`"some-node-of-a-very-large-cluster",`, 100_000))
		server.dial(t, call(large, len(large)))
		require.NoError(t, server.dial(t, call(large, len(large))).Close())
		requireAllIsFree(t, handler)
	})
	t.Run("leave the others alone", func(t *testing.T) {
		code, result := answerFrom(t, bufio.NewReader(server.dial(t, call(body, len(body)))))
		assert.Equal(t, http.StatusOK, code)
		assert.Equal(t, &[]string{"west"}, result.NodeNames)
	})
}

func TestWaysToSendABody(t *testing.T) {
	server := listen(t, newServer().Handler())
	body := bodyFor(t, "data", "home-1", "west")
	send := func(t *testing.T, body io.Reader, header, value string) (code int, result extenderv1.ExtenderFilterResult) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/filter", body)
		require.NoError(t, err)
		request.Header.Set(header, value)
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		assert.Positive(t, response.ContentLength)
		assert.Empty(t, response.Header.Get("Content-Encoding"))
		require.NoError(t, json.NewDecoder(response.Body).Decode(&result))
		return response.StatusCode, result
	}
	for name, test := range map[string]struct {
		body          io.Reader
		header, value string
	}{
		"in chunks":           {body: io.MultiReader(strings.NewReader(body[:30]), strings.NewReader(body[30:])), header: "Accept", value: "*/*"},
		"after a question":    {body: strings.NewReader(body), header: "Expect", value: "100-continue"},
		"as plain text":       {body: strings.NewReader(body), header: "Content-Type", value: "text/plain"},
		"with accepted gzip":  {body: strings.NewReader(body), header: "Accept-Encoding", value: "gzip"},
		"with another origin": {body: strings.NewReader(body), header: "Origin", value: "http://elsewhere.example"},
	} {
		t.Run(name, func(t *testing.T) {
			code, result := send(t, test.body, test.header, test.value)
			assert.Equal(t, http.StatusOK, code)
			assert.Equal(t, &[]string{"west"}, result.NodeNames)
		})
	}
	t.Run("compressed, which kube-scheduler never does", func(t *testing.T) {
		code, result := send(t, strings.NewReader("\x1f\x8b\x08\x00rest"), "Content-Encoding", "gzip")
		assert.Equal(t, http.StatusBadRequest, code)
		assert.Contains(t, result.Error, "not ExtenderArgs in JSON")
	})
}

func TestCallsShareAConnection(t *testing.T) {
	server := listen(t, newServer().Handler())
	kept, none := bodyFor(t, "data", "west"), bodyFor(t, "data", "home-1")
	connection := server.dial(t, strings.Repeat(call(kept, len(kept))+call(none, len(none))+call("{", 1), 10))
	answers := bufio.NewReader(connection)
	for range 10 {
		_, result := answerFrom(t, answers)
		assert.Equal(t, &[]string{"west"}, result.NodeNames, "answers come in the order of the calls")
		_, result = answerFrom(t, answers)
		assert.Equal(t, &[]string{}, result.NodeNames)
		code, _ := answerFrom(t, answers)
		assert.Equal(t, http.StatusBadRequest, code, "a bad request does not end the connection")
	}
	assert.Equal(t, int64(1), server.connections.Load())
}
