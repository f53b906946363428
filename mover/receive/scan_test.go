package receive

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/content/blocks"
	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
)

// settlesSoon skips a test where files are not read early.
func settlesSoon(t *testing.T) {
	t.Helper()
	settling, err := tree.Settling(t.TempDir())
	require.NoError(t, err)
	if settling > maxSettling {
		t.Skip("the file system of this machine's temporary files is one of which nothing is read early")
	}
}

func TestTheScanAfterLargeFilesTakesOverWhatWasReadEarly(t *testing.T) {
	settlesSoon(t)
	source, scratches := t.TempDir(), t.TempDir()
	content := make([]byte, minEarlyBytes)
	_, err := rand.Read(content)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(source, "large"), content, 0o600))
	path := filepath.Join(scratches, "source.manifest")
	_, err = tree.Scan(t.Context(), tree.Options{Root: source, Manifest: path, Scratch: scratches})
	require.NoError(t, err)
	from, err := tree.Open(path)
	require.NoError(t, err)
	defer from.Close()

	r := &Receiver{Volume: t.TempDir(), Scratch: sandbox.Scratch{Path: t.TempDir()}, Version: "v1"}
	here, there := net.Pipe()
	conn, serving := wire.NewConn(here, wire.DefaultTiming, nil), wire.NewConn(there, wire.DefaultTiming, nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Serve(t.Context(), serving) // It ends when the connection is lost.
	}()
	defer func() {
		conn.Close()
		<-ended
		serving.Close()
		assert.NoFileExists(t, r.Scratch.File("early.manifest"))
	}()
	require.NoError(t, conn.Do(wire.Call{Op: wire.OpHello, Body: wire.HelloRequest{Version: "v1"}}))
	var empty, seen wire.ScanResponse
	require.NoError(t, conn.Do(wire.Call{Op: wire.OpScan, Body: wire.ScanRequest{}, Result: &empty}))
	to, err := tree.Open(r.manifestPath())
	require.NoError(t, err)
	defer to.Close()
	require.NoError(t, conn.Do(wire.Call{Op: wire.OpBlocks, Send: func(send func([]byte) error) error {
		sender, err := blocks.NewSender(source, send, func(int64) {})
		if err != nil {
			return err
		}
		defer sender.Close()
		for c, err := range tree.Changes(to, from) {
			if err == nil && blocks.Carries(c) {
				err = sender.Send(c)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}}))
	require.Eventually(t, func() bool {
		_, err := os.Stat(r.Scratch.File("early.manifest"))
		return err == nil
	}, time.Minute, 20*time.Millisecond, "nothing is read early")
	require.NoError(t, conn.Do(wire.Call{Op: wire.OpScan, Body: wire.ScanRequest{}, Result: &seen}))
	assert.Zero(t, seen.ReadBytes, "it was read from the disk already")
	assert.Equal(t, from.Summary().Bytes, seen.Bytes)

	t.Log("What is to be read whole is read whole.")
	require.NoError(t, conn.Do(wire.Call{Op: wire.OpScan, Body: wire.ScanRequest{Full: true}, Result: &seen}))
	assert.Equal(t, uint64(len(content)), seen.ReadBytes)
}

func TestLargeFilesAreReadEarlyOnceNobodyWritesThemAnyMore(t *testing.T) {
	settlesSoon(t)
	r := &Receiver{Volume: t.TempDir(), Scratch: sandbox.Scratch{Path: t.TempDir()}}
	e := &earlyScan{receiver: r}
	told := func(tree.Progress) {}
	assert.Empty(t, e.finish(told), "nothing was written")
	_, err := tree.Scan(t.Context(), tree.Options{Root: r.Volume, Manifest: r.manifestPath(), Scratch: r.Scratch.Path})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(r.Volume, "large"), make([]byte, tree.LargeFrom+1), 0o600))

	t.Log("Who asks before reading has begun does not wait for it.")
	e.start(t.Context())
	assert.Empty(t, e.finish(told))
	assert.NoFileExists(t, e.manifest())

	t.Log("Who asks later is given what was read.")
	e.start(t.Context())
	select {
	case <-e.settled:
	case <-time.After(time.Minute):
		require.Fail(t, "nothing is read")
	}
	path := e.finish(told)
	m, err := tree.Open(path)
	require.NoError(t, err)
	assert.Equal(t, uint64(1), m.Summary().ReadFiles)
	require.NoError(t, m.Close())
	e.discard()
	assert.NoFileExists(t, path)
	assert.Empty(t, e.finish(told), "it is of use once")

	t.Log("A lost connection ends it, and leaves nothing.")
	ctx, stop := context.WithCancel(t.Context())
	e.start(ctx)
	stop()
	e.discard()
	assert.NoFileExists(t, path)

	t.Log("What cannot be read is read by the scan alone.")
	require.NoError(t, os.Remove(r.manifestPath()))
	e.start(t.Context())
	<-e.settled
	assert.Empty(t, e.finish(told))
}
