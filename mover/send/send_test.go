package send

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/content/blocks"
	"github.com/lodestone-storage/lodestone/mover/content/rsync"
	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/tree"
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

func TestWhatIsWorthTheWayThroughTheObjectStore(t *testing.T) {
	source, target, scratch := t.TempDir(), t.TempDir(), t.TempDir()
	const large = 8 << 20
	content := bytes.Repeat([]byte("x"), large)
	changed := func(from, to int) []byte {
		other := bytes.Clone(content)
		for i := from; i < to; i++ {
			other[i] = 'y'
		}
		return other
	}
	put := func(dir, name string, content []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	for name, content := range map[string][]byte{"part": changed(0, large/8), "half": changed(0, large/2), "small": []byte("y"),
		"new": content, "empty": nil, "same": content} {
		put(source, name, content)
	}
	for name, was := range map[string][]byte{"part": content, "half": content, "small": []byte("x"), "same": content, "gone": content} {
		put(target, name, was)
	}
	require.NoError(t, os.Link(filepath.Join(source, "new"), filepath.Join(source, "newer")))
	require.NoError(t, os.Symlink("new", filepath.Join(source, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(source, "folder"), 0o700))
	put(source, "sparse", nil)
	require.NoError(t, os.Truncate(filepath.Join(source, "sparse"), 1<<30))

	scanned := func(root string) *tree.Manifest {
		path := filepath.Join(scratch, filepath.Base(root))
		_, err := tree.Scan(t.Context(), tree.Options{Root: root, Manifest: path, Scratch: scratch})
		require.NoError(t, err)
		manifest, err := tree.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = manifest.Close() })
		return manifest
	}
	there, here := scanned(target), scanned(source)
	chosen, err := newStoreSelection(source)
	require.NoError(t, err)
	defer chosen.close()
	var names []string
	for e, err := range chosen.files(there, here) {
		require.NoError(t, err)
		names = append(names, e.Path)
	}
	assert.ElementsMatch(t, []string{"half", "small", "new", "newer"}, names)
}

func TestWhatBothEndsReadIsProgress(t *testing.T) {
	m := &Meter{}
	m.start("reading", 0, 0)
	m.here(tree.Progress{ReadBytes: 5, Entries: 2})
	m.there([]byte(`{"ReadBytes": 7, "Entries": 4}`))
	m.there([]byte(`what`))
	now := m.Progress(time.Now())
	require.EqualValues(t, 12, now.BytesDone)
	require.EqualValues(t, 6, now.FilesDone)
	m.start("sending", 0, 0)
	require.Zero(t, m.Progress(time.Now()).BytesDone)
}
