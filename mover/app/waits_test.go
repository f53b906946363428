package app_test

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/engine"
	"github.com/lodestone-storage/lodestone/mover/harness"
	"github.com/lodestone-storage/lodestone/mover/stream"
)

// Rsync begins with its version, and waits for that of the other end: it sends nothing more
// by which it would notice that nobody is there.
func TestRsyncDoesNotWaitForAReceiverThatSaysNothingMore(t *testing.T) {
	harness.Require(t)
	program, err := os.Executable()
	require.NoError(t, err)
	source := some(t)
	for name, row := range map[string]struct {
		then func(receiver *stream.Conn)
		want func(err error)
	}{
		"the connection is lost": {
			func(receiver *stream.Conn) { receiver.Close() },
			func(err error) { assert.ErrorIs(t, err, stream.ErrLost) },
		},
		"the receiver could not begin": {
			func(receiver *stream.Conn) { _ = receiver.Send(stream.Answer, []byte(`{"error":"no rsync here"}`)) },
			func(err error) { assert.EqualError(t, err, "no rsync here") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer listener.Close()
			dialled, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
			require.NoError(t, err)
			accepted, err := listener.Accept()
			require.NoError(t, err)
			sender, receiver := stream.New(dialled, stream.DefaultTiming, nil), stream.New(accepted, stream.DefaultTiming, nil)
			defer sender.Close()
			defer receiver.Close()
			ended := make(chan error, 1)
			go func() {
				ended <- engine.Source{Self: program, Volume: source, Sent: func(int) {}}.Send(t.Context(), sender, engine.All, nil)
			}()
			for kind := stream.Request; kind != stream.Data; {
				kind, _, err = receiver.Receive()
				require.NoError(t, err)
			}
			row.then(receiver)
			select {
			case err := <-ended:
				row.want(err)
			case <-time.After(30 * time.Second):
				require.Fail(t, "rsync still waits")
			}
		})
	}
}
