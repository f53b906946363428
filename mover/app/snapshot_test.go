package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// reads replaces the sender by one with an empty scratch directory and another volume.
func (m *move) reads(volume string, more ...string) {
	m.t.Helper()
	require.NoError(m.t, m.KillSender(true))
	m.Source, m.More = volume, more
	require.NoError(m.t, m.StartSender(m.ctx))
}

// alike writes another content of the same size, and restores the times.
func alike(t *testing.T, volume, name string) {
	t.Helper()
	path := filepath.Join(volume, name)
	before, err := os.Stat(path)
	require.NoError(t, err)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	content[len(content)/2] ^= 1
	require.NoError(t, os.WriteFile(path, content, before.Mode()))
	require.NoError(t, os.Chtimes(path, time.Time{}, before.ModTime()))
}

func TestASnapshotIsOnlyTheBeginningOfACopy(t *testing.T) {
	source, clone := some(t), filepath.Join(t.TempDir(), "clone")
	out, err := exec.Command("cp", "-a", source, clone).CombinedOutput()
	require.NoError(t, err, string(out))
	m := starts(t, source, false)
	m.reads(clone, "--snapshot")
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	assert.Greater(t, m.do(moverapi.Task{Kind: moverapi.Pass}).Passed.BytesSent, int64(5<<20))

	// Changes that neither size nor time shows, and others that they show.
	alike(t, source, "small")
	alike(t, source, "data/large")
	write(t, source, "new", []byte("new"))
	require.NoError(t, os.Remove(filepath.Join(source, "link")))

	m.reads(source)
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	final := m.do(moverapi.Task{Kind: moverapi.Final}).Passed
	assert.Less(t, final.BytesSent, int64(1<<20), "only what differs is sent")
	m.verified(true)
	for _, name := range []string{"small", "data/large", "new"} {
		same(t, m, name)
	}

	// The snapshot is old by now, also for a receiver that was restarted.
	require.NoError(t, m.KillReceiver(false))
	require.NoError(t, m.StartReceiver(m.ctx))
	m.reads(clone, "--snapshot")
	m.expect = nil
	_, err = m.try(moverapi.Task{Kind: moverapi.Pass})
	require.ErrorContains(t, err, "the source itself is read by now")
	m.reads(source)
	m.verified(true)
}

func TestAnEmptyVolumeIsNotTakenForThatOfItsSnapshot(t *testing.T) {
	clone := some(t)
	m := starts(t, t.TempDir(), false)
	empty := m.Source
	m.reads(clone, "--snapshot")
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	m.do(moverapi.Task{Kind: moverapi.Pass})
	m.reads(empty)
	_, err := m.try(moverapi.Task{Kind: moverapi.Prepare})
	require.ErrorContains(t, err, "it is empty, and had")
	m.reads(clone)
	m.expect = nil
	m.verified(true)
}

func TestAReceiverOfTheStopTakesNothingFromASnapshot(t *testing.T) {
	m := starts(t, some(t), false)
	m.reads(m.Source, "--snapshot")
	require.NoError(t, m.KillReceiver(true))
	m.More = []string{"--no-snapshot"}
	require.NoError(t, m.StartReceiver(m.ctx))
	_, err := m.try(moverapi.Task{Kind: moverapi.Prepare})
	require.ErrorContains(t, err, "remove the mover at the snapshot")
}

func TestAReceiverThatHasLetItsTargetGoWritesNothingMore(t *testing.T) {
	m := starts(t, some(t), false)
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	m.do(moverapi.Task{Kind: moverapi.Final})
	m.verified(true)
	m.do(moverapi.Task{Kind: moverapi.Release})
	m.do(moverapi.Task{Kind: moverapi.Release})
	write(t, m.Target, "new", []byte("what the application writes now"))
	for range 2 {
		for _, kind := range []moverapi.Kind{moverapi.Prepare, moverapi.Pass, moverapi.Final, moverapi.Verify} {
			_, err := m.try(moverapi.Task{Kind: kind})
			require.ErrorContains(t, err, "has let the target go", kind)
		}
		content, err := os.ReadFile(filepath.Join(m.Target, "new"))
		require.NoError(t, err)
		assert.Equal(t, "what the application writes now", string(content))
		// Nor once both were started anew.
		require.NoError(t, m.KillReceiver(false))
		require.NoError(t, m.StartReceiver(m.ctx))
		m.reads(m.Source)
	}
}
