package send

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/wire"
)

// endless is a connection to a receiver that sends much more than a manifest. asked gets the
// operations that were requested.
func endless(t *testing.T) (conn *wire.Conn, asked chan string) {
	t.Helper()
	ours, theirs := net.Pipe()
	conn, receiver := wire.NewConn(ours, wire.DefaultTiming, nil), wire.NewConn(theirs, wire.DefaultTiming, nil)
	t.Cleanup(conn.Close)
	asked = make(chan string, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It ends with the connection.
		_ = receiver.Serve(func(in *wire.Incoming) (any, error) {
			asked <- in.Op
			const much = 64 << 20
			for range much / len(payload) {
				if err := in.Send(payload[:]); err != nil {
					return nil, err
				}
			}
			return wire.ManifestResponse{Size: much}, in.SendEnd()
		})
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return conn, asked
}

var payload [256 << 10]byte

func TestAReceiverCannotFillTheSendersDisk(t *testing.T) {
	const limit = 1 << 20
	for name, row := range map[string]struct {
		said  uint64
		asked int
		want  string
	}{
		"it sends more than it said":    {limit / 2, 1, "larger manifest than it said"},
		"it says more than is allowed":  {1 << 40, 0, "the mover at the source may keep 1.0 MiB on the disk of its node"},
		"it says more than any disk is": {1<<64 - 1, 0, "--mover-scratch"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := sandbox.Scratch{Path: t.TempDir(), Limit: limit, Owner: "the mover at the source"}
			r := &run{sender: New(Config{Scratch: folder}), meter: &Meter{}}
			conn, asked := endless(t)
			_, err := r.fetch(conn, wire.ScanResponse{ManifestSize: row.said})
			require.ErrorContains(t, err, row.want)
			require.NotErrorIs(t, err, wire.ErrLost, "it is not tried again")
			assert.Len(t, asked, row.asked)
			files, err := filepath.Glob(folder.File("*"))
			require.NoError(t, err)
			for _, path := range files {
				info, err := os.Stat(path)
				require.NoError(t, err)
				assert.LessOrEqual(t, info.Size(), int64(limit))
			}
		})
	}
}
