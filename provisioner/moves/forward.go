package moves

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	constants "k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"
)

// maxRefusal is how much is read, in bytes, of the answer of a server that forwards
// nothing.
const maxRefusal = 64 << 10

// forward opens a connection to a port of a pod through the API server of its cluster.
// An API server that answers nothing is not waited for beyond ctx.
func forward(ctx context.Context, at site, pod *corev1.Pod, port int) (net.Conn, error) {
	location := at.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	return within(ctx, func() (net.Conn, error) { return forwardTo(ctx, at.Config, location, port) })
}

// within runs open and gives up on it when ctx ends; what it opens later is closed.
func within(ctx context.Context, open func() (net.Conn, error)) (net.Conn, error) {
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

// forwardTo forwards over WebSockets; over SPDY where the API server, or what is before
// it, does not know those.
func forwardTo(ctx context.Context, config *rest.Config, location *url.URL, port int) (net.Conn, error) {
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
	return streamsTo(connection, cut, port)
}

// overWebSocket tunnels the streams of a port-forward through a WebSocket. cut ends the
// connection at once, whatever waits in it.
func overWebSocket(ctx context.Context, config *rest.Config, location *url.URL) (connection httpstream.Connection, cut io.Closer, err error) {
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
		Transport: brief{transport},
		// Home's requests go to no address that another cluster chooses.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	connection, _, err := spdy.NegotiateStreaming(upgrader, client, request, constants.PortForwardV1Name)
	return connection, err
}

// brief bounds what is read of an answer that is no stream.
type brief struct{ http.RoundTripper }

func (b brief) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode != http.StatusSwitchingProtocols {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxRefusal), response.Body}
	}
	return response, err
}
