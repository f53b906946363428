package app_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/mover/content/rsync"
	"github.com/lodestone-storage/lodestone/mover/wire"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// cutAfterEach repeats do, with the connection cut after the first message, after the second and so
// on, until there are no more messages.
func cutAfterEach(t *testing.T, do func(n int) *harness.Wire) {
	t.Helper()
	n := 1
	for do(n).Cuts() > 0 {
		n++
	}
	t.Logf("%d messages", n-1)
	require.Greater(t, n, 8)
}

// An end that waits for a lost answer must notice that, whatever else is going on: between most
// messages nothing is sent that would fail. The harness dials both movers: a sender that dials
// pauses longer after each cut.
func TestAConnectionIsCutAfterEachMessageOfACopyAndTheMoveGoesOn(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][]moverapi.Kind{{moverapi.Pass}, {moverapi.Final, moverapi.Verify}} {
		t.Run(string(kinds[0]), func(t *testing.T) {
			t.Parallel()
			m := setUp(t, some(t), true)
			m.do(moverapi.Task{Kind: moverapi.Pass})
			large := filepath.Join(m.Source, "data", "large")
			cutAfterEach(t, func(n int) *harness.Wire {
				flip(t, large)
				write(t, m.Source, "small", random(t, 1000+n))
				write(t, m.Source, fmt.Sprintf("new/%d", n), random(t, 100))
				require.NoError(t, os.RemoveAll(filepath.Join(m.Source, fmt.Sprintf("new/%d", n-2))))
				m.Wire.CutAfterPieces(n)
				for _, kind := range kinds {
					m.do(moverapi.Task{Kind: kind})
				}
				return m.Wire
			})
			m.do(moverapi.Task{Kind: moverapi.Final})
			m.verified(true)
		})
	}
}

func TestAConnectionIsCutAfterEachMessageOfAFirstCopyAndTheMoveGoesOn(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	write(t, source, "small", random(t, 3000))
	write(t, source, "a/b/deep", random(t, 70_000))
	write(t, source, "large", random(t, 5<<20))
	block := device(t, append(random(t, 1<<20), make([]byte, 1<<20)...))
	for name, start := range map[string]func(t *testing.T) *move{
		"files": func(t *testing.T) *move { return starts(t, source, true) },
		"block": func(t *testing.T) *move { return beginBlock(t, block, device(t, make([]byte, 2<<20))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cutAfterEach(t, func(n int) *harness.Wire {
				m := start(t)
				m.Wire.CutAfterPieces(n)
				m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
				m.do(moverapi.Task{Kind: moverapi.Final})
				m.verified(false)
				m.Stop()
				return m.Wire
			})
		})
	}
}

func TestAConnectionIsCutAtRandomBytesAndTheMoveGoesOn(t *testing.T) {
	m := setUp(t, sized(t, 20<<20), false)
	random := rand.New(rand.NewPCG(7, 7))
	for range 4 {
		m.Wire.CutAfter(random.Int64N(16 << 20))
		m.do(moverapi.Task{Kind: moverapi.Pass})
		require.NoError(t, os.RemoveAll(filepath.Join(m.Target, "data")))
	}
	m.Wire.CutAfter(random.Int64N(16 << 20))
	final := m.do(moverapi.Task{Kind: moverapi.Final})
	m.verified(true)
	assert.Positive(t, m.Wire.Cuts())
	assert.Positive(t, final.Progress.Reconnects)
}

func TestAFlippedBitOnTheWireIsNoticedAndTheMoveGoesOn(t *testing.T) {
	m := setUp(t, sized(t, 20<<20), false)
	m.Wire.FlipAfter(5 << 20)
	status := m.do(moverapi.Task{Kind: moverapi.Pass})
	assert.EqualValues(t, 1, status.Progress.Reconnects)
	m.do(moverapi.Task{Kind: moverapi.Final})
	m.verified(true)
}

func TestEitherMoverIsKilledInTheMiddleAndTheMoveGoesOn(t *testing.T) {
	for name, row := range map[string]struct{ sender, lose bool }{
		"the sender, whose scratch is kept":   {sender: true},
		"the sender, whose scratch is lost":   {sender: true, lose: true},
		"the receiver, whose scratch is kept": {},
		"the receiver, whose scratch is lost": {lose: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := setUp(t, sized(t, 20<<20), false)
			for _, kind := range []moverapi.Kind{moverapi.Pass, moverapi.Final, moverapi.Verify} {
				killed := make(chan error, 1)
				go func() {
					before := m.Wire.Bytes()
					// Verify may end before any data is sent.
					for range 200 {
						if m.Wire.Bytes() > before+4096 {
							break
						}
						time.Sleep(5 * time.Millisecond)
					}
					if row.sender {
						killed <- restart(m.KillSender(row.lose), func() error { return m.StartSender(m.ctx) })
					} else {
						killed <- restart(m.KillReceiver(row.lose), func() error { return m.StartReceiver(m.ctx) })
					}
				}()
				m.patient = killed
				m.do(moverapi.Task{Kind: kind})
			}
			m.verified(true)
		})
	}
}

func restart(err error, start func() error) error {
	if err != nil {
		return err
	}
	return start()
}

func TestASingleBitThatFlipsAtTheTargetIsFoundAndNotMended(t *testing.T) {
	for name, row := range map[string]struct {
		file string
		full bool
	}{
		"in a large file":                 {file: "data/large"},
		"in a small file":                 {file: "a/b/c/deep"},
		"in a small file, all read again": {file: "a/b/c/deep", full: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := setUp(t, some(t), false)
			m.do(moverapi.Task{Kind: moverapi.Pass})
			m.do(moverapi.Task{Kind: moverapi.Final})
			flip(t, filepath.Join(m.Target, filepath.FromSlash(row.file)))
			for range 2 {
				v := m.do(moverapi.Task{Kind: moverapi.Verify, Full: row.full}).Verified
				require.False(t, v.Equal)
				require.NotEqual(t, v.SourceRoot, v.TargetRoot)
				names := map[string]string{}
				for _, d := range v.Differences {
					names[d.Path] = d.What
				}
				assert.Contains(t, names[row.file], "other content")
			}
		})
	}
}

// flip changes one bit of a file, and restores the file's time.
func flip(t *testing.T, path string) {
	t.Helper()
	const at = 50_000
	was, err := os.Stat(path)
	require.NoError(t, err)
	spoilt, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	one := make([]byte, 1)
	_, err = spoilt.ReadAt(one, at)
	require.NoError(t, err)
	_, err = spoilt.WriteAt([]byte{one[0] ^ 4}, at)
	require.NoError(t, err)
	require.NoError(t, spoilt.Close())
	require.NoError(t, os.Chtimes(path, was.ModTime(), was.ModTime()))
}

func TestAnEmptyOrWrongSourceWipesNothing(t *testing.T) {
	for name, row := range map[string]struct {
		// lose: the sender has forgotten the source; forget: so has the controller.
		lose, forget, wrong bool
		want                string
	}{
		"empty, seen before":                             {want: "is empty"},
		"empty, for a sender that knows nothing":         {lose: true, want: "is empty"},
		"empty, and nobody knows what it was":            {lose: true, forget: true, want: "is empty"},
		"another directory, for a sender that knows all": {wrong: true, want: "another directory"},
		"another directory, for one that knows nothing":  {lose: true, wrong: true, want: "another directory"},
	} {
		t.Run(name, func(t *testing.T) {
			m := setUp(t, some(t), false)
			m.do(moverapi.Task{Kind: moverapi.Pass})
			require.NoError(t, m.KillSender(row.lose))
			if row.wrong {
				require.NoError(t, os.Rename(m.Source, m.Source+".away"))
				write(t, m.Source, "of/another", []byte("volume"))
			} else {
				entries, err := os.ReadDir(m.Source)
				require.NoError(t, err)
				for _, e := range entries {
					require.NoError(t, os.RemoveAll(filepath.Join(m.Source, e.Name())))
				}
			}
			require.NoError(t, m.StartSender(m.ctx))
			if row.forget {
				m.expect = nil
			}
			for _, kind := range []moverapi.Kind{moverapi.Pass, moverapi.Final, moverapi.Final, moverapi.Verify} {
				_, err := m.try(moverapi.Task{Kind: kind})
				assert.ErrorContains(t, err, row.want)
			}
			assert.FileExists(t, filepath.Join(m.Target, "data", "large"))
			assert.FileExists(t, filepath.Join(m.Target, "a", "b", "c", "deep"))
		})
	}
}

func TestAStoppedTaskWritesNothingMore(t *testing.T) {
	m := setUp(t, some(t), false)
	status, err := m.Client.Start(m.ctx, moverapi.Task{ID: "slow", Kind: moverapi.Pass, Expect: m.expect, BytesPerSecond: 200_000}, 0)
	require.NoError(t, err)
	require.Equal(t, moverapi.Running, status.State)
	_, err = m.Client.Start(m.ctx, moverapi.Task{ID: "other", Kind: moverapi.Pass, Expect: m.expect}, 0)
	require.ErrorIs(t, err, moverapi.ErrBusy)
	require.NoError(t, m.Client.Cancel(m.ctx, "slow"))
	state, err := m.Client.Status(m.ctx)
	require.NoError(t, err)
	assert.Equal(t, moverapi.Cancelled, state.Task.State)
	assert.True(t, state.Connected)
	m.do(moverapi.Task{Kind: moverapi.Final})
	m.verified(false)
}

func TestAMoveGoesOnWhileTheWayOfItsDataChanges(t *testing.T) {
	m := setUp(t, some(t), true)
	now := func() *moverapi.Status {
		status, err := m.Client.Status(m.ctx)
		require.NoError(t, err)
		return status
	}
	m.do(moverapi.Task{Kind: moverapi.Pass})
	assert.True(t, now().Connected)
	assert.False(t, now().Direct)

	// The sender dials the receiver when the joined connection is cut; the harness joins them again
	// at the same time, and may be faster.
	require.NoError(t, m.Client.Tell(m.ctx, moverapi.Peers{Addresses: []string{m.Address()}}))
	assert.False(t, now().Direct, "a connection that works is kept")
	for range 50 {
		if now().Direct {
			break
		}
		m.Wire.CutAfter(1 << 20)
		write(t, m.Source, "data/large", random(t, 6<<20))
		m.do(moverapi.Task{Kind: moverapi.Pass})
	}
	require.True(t, now().Direct)
	passed := m.Wire.Bytes()
	write(t, m.Source, "data/large", random(t, 6<<20))
	m.do(moverapi.Task{Kind: moverapi.Pass})
	assert.True(t, now().Direct, "nobody joins what is connected directly")
	assert.Equal(t, passed, m.Wire.Bytes(), "nothing goes another way")

	// A server that is not the receiver is not accepted.
	require.NoError(t, m.Client.Tell(m.ctx, moverapi.Peers{Addresses: []string{m.Control()}}))
	write(t, m.Source, "data/large", random(t, 6<<20))
	m.do(moverapi.Task{Kind: moverapi.Final})
	assert.False(t, now().Direct)
	m.verified(true)
	same(t, m, filepath.Join("data", "large"))
}

// Rsync begins with its version, and waits for that of the other end: it sends nothing more that
// would fail when the other end is gone.
func TestRsyncDoesNotWaitForAReceiverThatSaysNothingMore(t *testing.T) {
	harness.Require(t)
	program, err := os.Executable()
	require.NoError(t, err)
	source := some(t)
	for name, row := range map[string]struct {
		then func(receiver *wire.Conn)
		want func(err error)
	}{
		"the connection is lost": {
			func(receiver *wire.Conn) { receiver.Close() },
			func(err error) { assert.ErrorIs(t, err, wire.ErrLost) },
		},
		"the receiver could not begin": {
			func(receiver *wire.Conn) { _ = receiver.Send(wire.FrameResponse, []byte(`{"error":"no rsync here"}`)) },
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
			sender, receiver := wire.NewConn(dialled, wire.DefaultTiming, nil), wire.NewConn(accepted, wire.DefaultTiming, nil)
			defer sender.Close()
			defer receiver.Close()
			ended := make(chan error, 1)
			go func() {
				ended <- rsync.Source{Self: program, Volume: source, Sent: func(int) {}}.Send(t.Context(), sender, rsync.All, nil)
			}()
			for kind := wire.FrameRequest; kind != wire.FrameData; {
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
