package copying

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gwebsocket "github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	constants "k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"
)

// apiServer is a fake API server that forwards ports to a function in place of a pod.
type apiServer struct {
	webSockets, spdy bool
	pod              func(data, problems httpstream.Stream)
}

func (s apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var connection httpstream.Connection
	switch {
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && s.webSockets:
		upgrader := gwebsocket.Upgrader{Subprotocols: []string{constants.WebsocketsSPDYTunnelingPortForwardV1}}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		if connection, err = streamspdy.NewServerConnection(portforward.NewTunnelingConnection("server", conn), s.streams()); err != nil {
			return
		}
	case r.Method == http.MethodPost && s.spdy:
		if _, err := httpstream.Handshake(r, w, []string{constants.PortForwardV1Name}); err != nil {
			return
		}
		connection = streamspdy.NewResponseUpgrader().UpgradeResponse(w, r, s.streams())
	default:
		http.Error(w, "this server knows no "+r.Header.Get("Upgrade"), http.StatusBadRequest)
		return
	}
	if connection != nil {
		<-connection.CloseChan()
	}
}

// streams collects the two streams of one connection and passes them to the pod.
func (s apiServer) streams() httpstream.NewStreamHandler {
	both := make(chan httpstream.Stream, 2)
	go func() {
		problems, data := <-both, <-both
		s.pod(data, problems)
		_ = problems.Close()
		_ = data.Close()
	}()
	return func(stream httpstream.Stream, _ <-chan struct{}) error {
		if kind := stream.Headers().Get(corev1.StreamType); kind != corev1.StreamTypeError && kind != corev1.StreamTypeData {
			return http.ErrNotSupported
		}
		both <- stream
		return nil
	}
}

func echo(data, _ httpstream.Stream) { _, _ = io.Copy(data, data) }

// reached opens a forwarded connection to a server.
func reached(t *testing.T, handler http.Handler) (net.Conn, error) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() { server.CloseClientConnections() })
	location, err := url.Parse(server.URL + "/api/v1/namespaces/shop/pods/mover/portforward")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := openWithin(ctx, func() (net.Conn, error) { return openForward(ctx, &rest.Config{Host: server.URL}, location, 8440) })
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

func TestAPortIsForwardedByWhatTheServerKnows(t *testing.T) {
	for name, server := range map[string]apiServer{
		"over WebSockets":               {webSockets: true, pod: echo},
		"over SPDY, by an older server": {spdy: true, pod: echo},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := reached(t, server)
			require.NoError(t, err)
			sent := strings.Repeat("0123456789abcdef", 1<<16)
			go func() { _, _ = io.WriteString(conn, sent) }()
			back := make([]byte, len(sent))
			_, err = io.ReadFull(conn, back)
			require.NoError(t, err)
			assert.Equal(t, sent, string(back))
		})
	}
}

func TestWhatForbidsAPortForwardIsSaid(t *testing.T) {
	_, err := reached(t, apiServer{})
	require.ErrorContains(t, err, "this server knows no websocket")
	require.ErrorContains(t, err, "this server knows no SPDY/3.1")
}

func TestAPodThatDoesNotListenIsSaid(t *testing.T) {
	for name, server := range map[string]apiServer{"over WebSockets": {webSockets: true}, "over SPDY": {spdy: true}} {
		t.Run(name, func(t *testing.T) {
			server.pod = func(_, problems httpstream.Stream) { _, _ = io.WriteString(problems, "nobody listens at port 8440") }
			conn, err := reached(t, server)
			require.NoError(t, err)
			_, err = conn.Read(make([]byte, 1))
			require.ErrorContains(t, err, "nobody listens at port 8440")
		})
	}
}

// TestClosingEndsWhatWaits uses a peer that neither reads nor writes, like a dead machine.
func TestClosingEndsWhatWaits(t *testing.T) {
	for name, server := range map[string]apiServer{"over WebSockets": {webSockets: true}, "over SPDY": {spdy: true}} {
		t.Run(name, func(t *testing.T) {
			stop := make(chan struct{})
			t.Cleanup(func() { close(stop) })
			server.pod = func(httpstream.Stream, httpstream.Stream) { <-stop }
			conn, err := reached(t, server)
			require.NoError(t, err)
			reading := make(chan error, 1)
			go func() {
				_, err := conn.Read(make([]byte, 1))
				reading <- err
			}()
			require.NoError(t, conn.Close())
			require.Error(t, <-reading)
		})
	}
}

func TestAServerThatAnswersNothingIsNotWaitedFor(t *testing.T) {
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stop) })
	location, err := url.Parse(server.URL + "/api/v1/namespaces/shop/pods/mover/portforward")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = openWithin(ctx, func() (net.Conn, error) { return openForward(ctx, &rest.Config{Host: server.URL}, location, 8440) })
	require.Error(t, err)
}

func TestAServerThatSendsTheRequestElsewhereIsNotFollowed(t *testing.T) {
	var followed atomic.Bool
	victim := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	t.Cleanup(victim.Close)
	_, err := reached(t, http.RedirectHandler(victim.URL, http.StatusTemporaryRedirect))
	require.Error(t, err)
	assert.False(t, followed.Load())
}
