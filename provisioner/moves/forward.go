package moves

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// forward opens a connection to a port of a pod through the API server of its cluster:
// over WebSockets, or as older servers want it.
func forward(ctx context.Context, at site, pod *corev1.Pod, port int) (net.Conn, error) {
	request := at.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward")
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(request.URL(), at.Config)
	if err != nil {
		return nil, fmt.Errorf("make dialer of a port-forward: %w", err)
	}
	connection, _, err := tunnel.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		transport, upgrader, problem := spdy.RoundTripperFor(at.Config)
		if problem != nil {
			return nil, fmt.Errorf("make transport of a port-forward: %w", problem)
		}
		old := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, request.URL())
		if connection, _, problem = old.Dial(portforward.PortForwardProtocolV1Name); problem != nil {
			return nil, fmt.Errorf("open a port-forward: %w", errors.Join(err, problem))
		}
	}
	if ctx.Err() != nil {
		_ = connection.Close()
		return nil, ctx.Err()
	}
	return streamsTo(connection, port)
}

// streamsTo opens the two streams of one forwarded connection.
func streamsTo(connection httpstream.Connection, port int) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := connection.CreateStream(headers)
	if err != nil {
		_ = connection.Close()
		return nil, fmt.Errorf("open the error stream of a port-forward: %w", err)
	}
	// Nothing is sent on it.
	_ = problems.Close()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		_ = connection.Close()
		return nil, fmt.Errorf("open the data stream of a port-forward: %w", err)
	}
	forwarded := &forwarded{Stream: data, connection: connection}
	go func() {
		// What is said there ends the connection: the pod does not listen, or is gone.
		if said, _ := io.ReadAll(io.LimitReader(problems, 4096)); len(said) > 0 {
			_ = forwarded.Close()
		}
	}()
	return forwarded, nil
}

// forwarded is a forwarded connection. It knows no deadlines: whoever uses it closes it.
type forwarded struct {
	httpstream.Stream
	connection httpstream.Connection
}

func (f *forwarded) Close() error {
	_ = f.Stream.Reset()
	return f.connection.Close()
}

func (f *forwarded) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (f *forwarded) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (f *forwarded) SetDeadline(time.Time) error      { return nil }
func (f *forwarded) SetReadDeadline(time.Time) error  { return nil }
func (f *forwarded) SetWriteDeadline(time.Time) error { return nil }
