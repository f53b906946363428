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
			m := begin(t, some(t), false)
			m.do(movecontrol.Task{Kind: movecontrol.Pass})
			m.do(movecontrol.Task{Kind: movecontrol.Final})
			flip(t, filepath.Join(m.Target, filepath.FromSlash(row.file)))
			for range 2 {
				v := m.do(movecontrol.Task{Kind: movecontrol.Verify, Full: row.full}).Verified
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

// flip turns one bit of a file, and gives the file the time that it had.
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
		// lose: the sender knows nothing; forget: the controller does not either.
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
			m := begin(t, some(t), false)
			m.do(movecontrol.Task{Kind: movecontrol.Pass})
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
			for _, kind := range []movecontrol.Kind{movecontrol.Pass, movecontrol.Final, movecontrol.Final, movecontrol.Verify} {
				_, err := m.try(movecontrol.Task{Kind: kind})
				assert.ErrorContains(t, err, row.want)
			}
			assert.FileExists(t, filepath.Join(m.Target, "data", "large"))
			assert.FileExists(t, filepath.Join(m.Target, "a", "b", "c", "deep"))
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
