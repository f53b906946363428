package app_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

func TestAConnectionIsCutAtRandomBytesAndTheMoveGoesOn(t *testing.T) {
	m := begin(t, some(t), false)
	random := rand.New(rand.NewPCG(7, 7))
	for range 4 {
		m.Wire.CutAfter(random.Int64N(16 << 20))
		m.do(movecontrol.Task{Kind: movecontrol.Pass})
		require.NoError(t, os.RemoveAll(filepath.Join(m.Target, "data")))
	}
	m.Wire.CutAfter(random.Int64N(16 << 20))
	final := m.do(movecontrol.Task{Kind: movecontrol.Final})
	m.verified(true)
	assert.Positive(t, m.Wire.Cuts())
	assert.Positive(t, final.Progress.Reconnects)
}

func TestAFlippedBitOnTheWireIsNoticedAndTheMoveGoesOn(t *testing.T) {
	m := begin(t, some(t), false)
	m.Wire.FlipAfter(5 << 20)
	status := m.do(movecontrol.Task{Kind: movecontrol.Pass})
	assert.EqualValues(t, 1, status.Progress.Reconnects)
	m.do(movecontrol.Task{Kind: movecontrol.Final})
	assert.Zero(t, m.verified(true).SentAgain)
}

func TestEitherMoverIsKilledInTheMiddleAndTheMoveGoesOn(t *testing.T) {
	for name, row := range map[string]struct{ sender, lose bool }{
		"the sender, whose scratch is kept":   {sender: true},
		"the sender, whose scratch is lost":   {sender: true, lose: true},
		"the receiver, whose scratch is kept": {},
		"the receiver, whose scratch is lost": {lose: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := begin(t, some(t), false)
			for _, kind := range []movecontrol.Kind{movecontrol.Pass, movecontrol.Final, movecontrol.Verify} {
				killed := make(chan error, 1)
				go func() {
					before := m.Wire.Bytes()
					// Verify may be over before anything passes.
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
				m.do(movecontrol.Task{Kind: kind})
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

func TestASpoiltDiskAtTheTargetIsNoticedAndMended(t *testing.T) {
	for name, file := range map[string]string{"in a large file": "data/large", "in a small file": "a/b/c/deep"} {
		t.Run(name, func(t *testing.T) {
			m := begin(t, some(t), false)
			m.do(movecontrol.Task{Kind: movecontrol.Final})
			path := filepath.Join(m.Target, filepath.FromSlash(file))
			was, err := os.Stat(path)
			require.NoError(t, err)
			spoilt, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			one := make([]byte, 1)
			_, err = spoilt.ReadAt(one, 50_000)
			require.NoError(t, err)
			_, err = spoilt.WriteAt([]byte{one[0] ^ 4}, 50_000)
			require.NoError(t, err)
			require.NoError(t, spoilt.Close())
			require.NoError(t, os.Chtimes(path, was.ModTime(), was.ModTime()))
			assert.Positive(t, m.verified(true).SentAgain)
			same(t, m, file)
		})
	}
}

func TestAnEmptySourceWipesNothing(t *testing.T) {
	for name, lose := range map[string]bool{"seen before": false, "by a sender that knows nothing": true} {
		t.Run(name, func(t *testing.T) {
			m := begin(t, some(t), false)
			m.do(movecontrol.Task{Kind: movecontrol.Pass})
			entries, err := os.ReadDir(m.Source)
			require.NoError(t, err)
			for _, e := range entries {
				require.NoError(t, os.RemoveAll(filepath.Join(m.Source, e.Name())))
			}
			if lose {
				require.NoError(t, m.KillSender(true))
				require.NoError(t, m.StartSender(m.ctx))
				m.expect = nil
			}
			for range 2 {
				_, err = m.try(movecontrol.Task{Kind: movecontrol.Final})
				assert.ErrorContains(t, err, "empty")
			}
			assert.FileExists(t, filepath.Join(m.Target, "data", "large"))
		})
	}
}

func TestAStoppedTaskWritesNothingMore(t *testing.T) {
	m := begin(t, some(t), false)
	status, err := m.Client.Start(m.ctx, movecontrol.Task{ID: "slow", Kind: movecontrol.Pass, Expect: m.expect, BytesPerSecond: 200_000})
	require.NoError(t, err)
	require.Equal(t, movecontrol.Running, status.State)
	_, err = m.Client.Start(m.ctx, movecontrol.Task{ID: "other", Kind: movecontrol.Pass, Expect: m.expect})
	require.ErrorIs(t, err, movecontrol.ErrBusy)
	require.NoError(t, m.Client.Cancel(m.ctx, "slow"))
	state, err := m.Client.Status(m.ctx)
	require.NoError(t, err)
	assert.Equal(t, movecontrol.Cancelled, state.Task.State)
	assert.True(t, state.Connected)
	m.do(movecontrol.Task{Kind: movecontrol.Final})
	m.verified(false)
}
