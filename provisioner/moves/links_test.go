package moves

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// end returns what connects to one end of a pipe, and the other end.
func end(t *testing.T) (func(context.Context) (net.Conn, error), net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	return func(context.Context) (net.Conn, error) { return near, nil }, far
}

func TestASpliceEnds(t *testing.T) {
	for name, test := range map[string]struct {
		cause func(source, target net.Conn, stop context.CancelFunc)
		says  string
	}{
		"when the source closes": {says: "the mover at the source closed", cause: func(source, _ net.Conn, _ context.CancelFunc) { _ = source.Close() }},
		"when the target closes": {says: "the mover at the target closed", cause: func(_, target net.Conn, _ context.CancelFunc) { _ = target.Close() }},
		"when its move ends":     {says: context.Canceled.Error(), cause: func(_, _ net.Conn, stop context.CancelFunc) { stop() }},
		"when a target is gone that takes nothing and says nothing": {says: errSilent.Error(), cause: func(source, _ net.Conn, _ context.CancelFunc) {
			go func() { _, _ = source.Write(make([]byte, 1<<20)) }()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			source, a := end(t)
			target, b := end(t)
			ended := make(chan error, 1)
			go func() { ended <- joined(ctx, source, target, 200*time.Millisecond) }()
			go func() { _, _ = io.WriteString(a, "hello") }()
			said := make([]byte, 5)
			_, err := io.ReadFull(b, said)
			require.NoError(t, err)
			assert.Equal(t, "hello", string(said))
			test.cause(a, b, stop)
			require.ErrorContains(t, <-ended, test.says)
			_, err = a.Read(said)
			require.Error(t, err, "the other end learns of it")
			_, err = b.Read(said)
			require.Error(t, err)
		})
	}
}

func TestATargetThatTakesItsTimeIsNotSilent(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	source, a := end(t)
	target, b := end(t)
	ended := make(chan error, 1)
	const silent = 500 * time.Millisecond
	go func() { ended <- joined(ctx, source, target, silent) }()
	go func() { _, _ = a.Write(make([]byte, 1<<20)) }()
	go func() { _, _ = io.Copy(io.Discard, a) }()
	// Its storage hangs, so it takes nothing, but says that it is there.
	for begun := time.Now(); time.Since(begun) < 3*silent; time.Sleep(silent / 20) {
		_, err := b.Write([]byte("alive"))
		require.NoError(t, err)
	}
	taken, err := io.ReadFull(b, make([]byte, 1<<20))
	require.NoError(t, err)
	assert.Equal(t, 1<<20, taken)
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestThePortOfAPodIsReachedTheWayThatWorks(t *testing.T) {
	var w ways
	to, tried := door{"pod", dataPort}, ""
	try := func(address, server error) (net.Conn, error) {
		tried = ""
		conn, _ := net.Pipe()
		way := func(name string, err error) func() (net.Conn, error) {
			return func() (net.Conn, error) {
				tried += name
				if err != nil {
					return nil, err
				}
				return conn, nil
			}
		}
		return w.choose(to, way("address ", address), way("server ", server))
	}
	// later makes as if the last connection had been of use.
	later := func() {
		last := w.last[to]
		last.at = last.at.Add(-time.Minute)
		w.last[to] = last
	}
	away := errors.New("away")

	_, err := try(nil, nil)
	require.NoError(t, err)
	assert.Equal(t, "address ", tried, "the address comes first")
	_, err = try(nil, nil)
	require.NoError(t, err)
	assert.Equal(t, "server ", tried, "whoever answered at the address was of no use")
	later()
	_, err = try(nil, nil)
	require.NoError(t, err)
	assert.Equal(t, "server ", tried, "it has worked")
	later()
	_, err = try(nil, away)
	require.NoError(t, err)
	assert.Equal(t, "server address ", tried)
	later()
	_, err = try(away, away)
	require.ErrorIs(t, err, away)
	assert.Equal(t, "address server ", tried)
}

func TestThePortOfAPodWithoutAnAddressIsReachedThroughItsServerAlone(t *testing.T) {
	var w ways
	tried := 0
	for range 2 {
		_, err := w.choose(door{"pod", dataPort}, nil, func() (net.Conn, error) { tried++; return &net.TCPConn{}, nil })
		require.NoError(t, err)
	}
	assert.Equal(t, 2, tried)
	_, err := w.choose(door{"pod", dataPort}, nil, func() (net.Conn, error) { return nil, io.ErrUnexpectedEOF })
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
