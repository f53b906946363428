package copying

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	constants "k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// maxRefusal limits, in bytes, how much is read of the answer of a server that refuses to
// forward.
const maxRefusal = 64 << 10

// dialPodPort opens a connection to a port of a pod through the API server of its cluster.
// It returns when ctx ends, even if the API server does not answer.
func dialPodPort(ctx context.Context, at site.Site, pod *corev1.Pod, port int) (net.Conn, error) {
	location := at.Client.CoreV1().RESTClient().Post().
		Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	return openWithin(ctx, func() (net.Conn, error) { return openForward(ctx, at.Config, location, port) })
}

// openWithin runs open and stops waiting for it when ctx ends; a connection that it opens
// later is closed.
func openWithin(ctx context.Context, open func() (net.Conn, error)) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	opened := make(chan result, 1)
	go func() {
		conn, err := open()
		opened <- result{conn, err}
	}()
	select {
	case r := <-opened:
		return r.conn, r.err
	case <-ctx.Done():
		go func() {
			if r := <-opened; r.conn != nil {
				_ = r.conn.Close()
			}
		}()
		return nil, fmt.Errorf("wait for a port-forward: %w", ctx.Err())
	}
}

// openForward forwards over WebSockets, or over SPDY if the API server, or a proxy before
// it, does not support those.
func openForward(ctx context.Context, config *rest.Config, location *url.URL, port int) (net.Conn, error) {
	connection, cut, err := overWebSocket(ctx, config, location)
	if httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) {
		var older error
		if connection, older = overSPDY(ctx, config, location); older == nil {
			cut, err = nil, nil
		} else {
			err = errors.Join(err, older)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open a port-forward: %w", err)
	}
	return openStreams(connection, cut, port)
}

// overWebSocket tunnels the streams of a port-forward through a WebSocket. Closing cut ends
// the connection at once, including blocked writes.
func overWebSocket(ctx context.Context, config *rest.Config, location *url.URL) (connection httpstream.Connection, cut io.Closer,
	err error) {
	transport, holder, err := websocket.RoundTripperFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make transport of a WebSocket: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("make request of a WebSocket: %w", err)
	}
	conn, err := websocket.Negotiate(transport, holder, request, constants.WebsocketsSPDYTunnelingPortForwardV1)
	if err != nil {
		return nil, nil, err
	}
	connection, err = streamspdy.NewClientConnectionWithPings(portforward.NewTunnelingConnection("mover", conn), portforward.PingPeriod)
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("tunnel streams through a WebSocket: %w", err)
	}
	return connection, conn.NetConn(), nil
}

// overSPDY forwards as API servers before Kubernetes 1.31 do.
func overSPDY(ctx context.Context, config *rest.Config, location *url.URL) (httpstream.Connection, error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, fmt.Errorf("make transport of SPDY: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, location.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make request of SPDY: %w", err)
	}
	client := &http.Client{
		Transport: boundedTransport{transport},
		// Do not follow redirects: another cluster must not choose the address of home's
		// requests.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	connection, _, err := spdy.NegotiateStreaming(upgrader, client, request, constants.PortForwardV1Name)
	return connection, err
}

// boundedTransport limits how much is read of an answer that is not a stream.
type boundedTransport struct{ http.RoundTripper }

func (b boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode != http.StatusSwitchingProtocols {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxRefusal), response.Body}
	}
	return response, err
}

const (
	// maxProblem limits, in bytes, how much is read of the reason why a pod was not
	// reached.
	maxProblem = 4096
	// problemTimeout is how long to wait for that reason when a stream ends: it arrives on
	// a stream of its own.
	problemTimeout = time.Second
)

// openStreams opens the two streams of one forwarded connection. cut may be nil.
func openStreams(connection httpstream.Connection, cut io.Closer, port int) (net.Conn, error) {
	f := &forwardedConn{connection: connection, cut: cut, problemRead: make(chan struct{})}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := connection.CreateStream(headers)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open the error stream of a port-forward: %w", err)
	}
	// Nothing is sent on it.
	_ = problems.Close()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	if f.Stream, err = connection.CreateStream(headers); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open the data stream of a port-forward: %w", err)
	}
	go func() {
		said, _ := io.ReadAll(io.LimitReader(problems, maxProblem))
		f.problem = strings.TrimSpace(string(said))
		close(f.problemRead)
		if f.problem != "" {
			// The pod does not listen, or is gone.
			_ = f.Close()
		}
	}()
	return f, nil
}

// forwardedConn is a forwarded connection. It supports no deadlines: to end blocked reads
// and writes, close it.
type forwardedConn struct {
	httpstream.Stream
	connection httpstream.Connection
	cut        io.Closer
	// problem is why the pod was not reached; it is valid once problemRead is closed.
	problem     string
	problemRead chan struct{}
}

// Read implements net.Conn. Its error includes why the pod was not reached, if that is
// known.
func (f *forwardedConn) Read(p []byte) (int, error) {
	n, err := f.Stream.Read(p)
	if err == nil {
		return n, nil
	}
	select {
	case <-f.problemRead:
		if f.problem != "" {
			err = errors.New(f.problem)
		}
	case <-time.After(problemTimeout):
	}
	return n, err
}

// Close implements net.Conn.
func (f *forwardedConn) Close() error {
	if f.cut == nil {
		// Close can wait behind a blocked write, maybe for ever.
		go func() { _ = f.connection.Close() }()
		return nil
	}
	err := f.cut.Close()
	// After cut it can no longer block; it ends what else belongs to the connection.
	_ = f.connection.Close()
	return err
}

func (f *forwardedConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (f *forwardedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (f *forwardedConn) SetDeadline(time.Time) error      { return nil }
func (f *forwardedConn) SetReadDeadline(time.Time) error  { return nil }
func (f *forwardedConn) SetWriteDeadline(time.Time) error { return nil }
