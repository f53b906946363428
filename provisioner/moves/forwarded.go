package moves

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
)

const (
	// maxProblem is how much is read, in bytes, of why a pod was not reached.
	maxProblem = 4096
	// lastWords is how long the reason for the end of a stream is waited for: it comes on
	// a stream of its own.
	lastWords = time.Second
)

// streamsTo opens the two streams of one forwarded connection. cut may be nil.
func streamsTo(connection httpstream.Connection, cut io.Closer, port int) (net.Conn, error) {
	f := &forwarded{connection: connection, cut: cut, told: make(chan struct{})}
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
		close(f.told)
		if f.problem != "" {
			// The pod does not listen, or is gone.
			_ = f.Close()
		}
	}()
	return f, nil
}

// forwarded is a forwarded connection. It knows no deadlines: whoever uses it closes it,
// which ends reads and writes that wait.
type forwarded struct {
	httpstream.Stream
	connection httpstream.Connection
	cut        io.Closer
	// problem is why the pod was not reached, once told is closed.
	problem string
	told    chan struct{}
}

// Read implements net.Conn. Its error says why the pod was not reached, where that is
// known.
func (f *forwarded) Read(p []byte) (int, error) {
	n, err := f.Stream.Read(p)
	if err == nil {
		return n, nil
	}
	select {
	case <-f.told:
		if f.problem != "" {
			err = errors.New(f.problem)
		}
	case <-time.After(lastWords):
	}
	return n, err
}

// Close implements net.Conn.
func (f *forwarded) Close() error {
	if f.cut == nil {
		// What is said at the end waits behind what is being written, maybe for ever.
		go func() { _ = f.connection.Close() }()
		return nil
	}
	err := f.cut.Close()
	// It cannot wait any more, and ends what belongs to the connection.
	_ = f.connection.Close()
	return err
}

func (f *forwarded) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (f *forwarded) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (f *forwarded) SetDeadline(time.Time) error      { return nil }
func (f *forwarded) SetReadDeadline(time.Time) error  { return nil }
func (f *forwarded) SetWriteDeadline(time.Time) error { return nil }
