package send

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/content/blocks"
	"github.com/lodestone-storage/lodestone/mover/content/rsync"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
)

// large makes a volume with one large file of these bytes, and its manifest.
func large(t *testing.T, content []byte) (volume string, manifest *tree.Manifest) {
	t.Helper()
	volume, scratch := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(volume, "db"), content, 0o600))
	path := filepath.Join(scratch, "manifest")
	_, err := tree.Scan(t.Context(), tree.Options{Root: volume, Manifest: path, Scratch: scratch})
	require.NoError(t, err)
	manifest, err = tree.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = manifest.Close() })
	return volume, manifest
}

// TestASenderDoesNotWaitForAnAnswerThatDoesNotCome asks a receiver that ends the exchange instead.
func TestASenderDoesNotWaitForAnAnswerThatDoesNotCome(t *testing.T) {
	content := bytes.Repeat([]byte("content!"), blocks.LargeFrom/4)
	_, target := large(t, content)
	content[0]++
	volume, source := large(t, content)
	full := wire.BlocksResponse{Full: true, Error: "full"}
	for name, row := range map[string]struct {
		// answer is called at the question, which is the second message.
		answer func(in *wire.Incoming) (any, error)
		want   error // nil: any
	}{
		"it is full":                {func(*wire.Incoming) (any, error) { return full, nil }, rsync.ErrNoSpace},
		"it is gone":                {func(*wire.Incoming) (any, error) { return nil, wire.ErrLost }, wire.ErrLost},
		"it says that it has ended": {func(in *wire.Incoming) (any, error) { return full, in.SendEnd() }, rsync.ErrNoSpace},
		"it answers much more than it was asked": {func(in *wire.Incoming) (any, error) {
			for range 10 {
				if err := in.Send(payload[:]); err != nil {
					return nil, err
				}
			}
			_, err := in.Next()
			return nil, err
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			conn, receiver := wire.NewConn(ours, wire.DefaultTiming, nil), wire.NewConn(theirs, wire.DefaultTiming, nil)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = receiver.Serve(func(in *wire.Incoming) (any, error) { // it ends with the connection
					for range 2 {
						if _, err := in.Next(); err != nil {
							return nil, io.ErrUnexpectedEOF
						}
					}
					return row.answer(in)
				})
			}()
			defer func() { conn.Close(); <-done }()
			r := &run{sender: New(Config{Volume: volume}), meter: &Meter{}}
			err := r.blocks(conn, source, target)
			require.Error(t, err)
			if row.want != nil {
				require.ErrorIs(t, err, row.want)
			}
		})
	}
}
