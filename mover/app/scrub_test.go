package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// blockSize is how much one hash is of.
const blockSize = tree.BlockSize

// compared compares both ends before anything is sent, as a scrub does.
func (m *move) compared(settled time.Time) *moverapi.Verified {
	m.t.Helper()
	return m.do(moverapi.Task{Kind: moverapi.Verify, Full: true, Settled: settled}).Verified
}

// anew replaces both movers by those of the next point, which know nothing.
func (m *move) anew() {
	m.t.Helper()
	require.NoError(m.t, m.KillReceiver(true))
	m.More = nil
	require.NoError(m.t, m.StartReceiver(m.ctx))
	m.reads(m.Source, "--snapshot")
	m.expect = nil
}

// old gives a file a time of change that is a day ago.
func old(t *testing.T, volume, name string) {
	t.Helper()
	require.NoError(t, os.Chtimes(filepath.Join(volume, name), time.Time{}, time.Now().Add(-24*time.Hour)))
}

func TestAScrubFindsWhatNothingButTheContentShows(t *testing.T) {
	source := some(t)
	old(t, source, "small")
	old(t, source, "data/large")
	m := starts(t, source, false)
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	m.do(moverapi.Task{Kind: moverapi.Final})
	sealed := m.verified(true)
	assert.Nil(t, sealed.Unseen, "nobody asked")
	assert.Positive(t, sealed.TargetBytes)
	settled := time.Now().Add(-time.Hour)

	// The application goes on, and all of that shows.
	write(t, source, "new", []byte("new"))
	write(t, source, "small", append([]byte("more"), random(t, 100)...))
	m.anew()
	require.NoError(t, os.Chmod(filepath.Join(source, "data", "large"), 0o600))
	found := m.compared(settled)
	assert.Equal(t, &moverapi.Unseen{}, found.Unseen)
	assert.Equal(t, sealed.TargetRoot, found.TargetRoot, "the copy is as it was")
	assert.Equal(t, sealed.RootVersion, found.RootVersion)
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	m.do(moverapi.Task{Kind: moverapi.Final})
	sealed = m.verified(true)

	// A bit flips in the copy, of a file that has long been written.
	alike(t, m.Target, "data/large")
	m.anew()
	found = m.compared(settled)
	assert.False(t, found.Equal)
	assert.NotEqual(t, sealed.TargetRoot, found.TargetRoot, "the copy is another one than was sealed")
	assert.Equal(t, &moverapi.Unseen{Files: 2, First: "another", Bytes: 2 * blockSize}, found.Unseen,
		"the block that differs, by both names of the file")
	assert.Equal(t, &moverapi.Unseen{}, m.compared(time.Now().Add(-48*time.Hour)).Unseen, "what was just written counts for nothing")

	// It is asked again by a mover that was killed, and nothing was written meanwhile.
	m.anew()
	assert.Equal(t, found, m.compared(settled))

	// The point mends it.
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	m.do(moverapi.Task{Kind: moverapi.Final})
	assert.Equal(t, sealed.TargetRoot, m.verified(true).TargetRoot)
	same(t, m, "data/large")
	assert.Equal(t, &moverapi.Unseen{}, m.compared(settled).Unseen)
}

func TestFingerprintsSayWhetherAnythingHasChanged(t *testing.T) {
	m := starts(t, some(t), false)
	fingerprints := func() moverapi.Fingerprints { return *m.do(moverapi.Task{Kind: moverapi.Fingerprint}).Fingerprints }
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	m.do(moverapi.Task{Kind: moverapi.Final})
	verified := m.do(moverapi.Task{Kind: moverapi.Verify, Fingerprints: true}).Verified
	require.True(t, verified.Equal)
	known := *verified.Fingerprints
	if known == (moverapi.Fingerprints{}) {
		t.Skip("the file system of this machine's temporary files has no fingerprints")
	}
	assert.NotEqual(t, known.Source, known.Target, "inodes are others")

	// The movers of the next points know of nothing, and change nothing.
	for range 2 {
		m.anew()
		assert.Equal(t, known, fingerprints())
	}
	assert.Nil(t, m.verified(false).Fingerprints, "nobody asked")
	assert.Equal(t, known, fingerprints(), "that all was read changes nothing")
	alike(t, m.Target, "data/large")
	now := fingerprints()
	assert.Equal(t, known.Source, now.Source)
	assert.NotEqual(t, known.Target, now.Target, "the copy was written to, and has the times that it had")
	alike(t, m.Source, "small")
	assert.NotEqual(t, known.Source, fingerprints().Source)

	// A receiver that dies meanwhile is asked again.
	m.More = nil
	require.NoError(t, m.KillReceiver(true))
	require.NoError(t, m.StartReceiver(m.ctx))
	assert.Equal(t, now.Target, fingerprints().Target)
}

// TestWhatIsLookedAtAtBothEndsIsProgress: a controller gives up a copy that stands still.
func TestWhatIsLookedAtAtBothEndsIsProgress(t *testing.T) {
	source := some(t)
	for i := range 1500 {
		write(t, source, fmt.Sprintf("many/%d", i), []byte("x"))
	}
	m := starts(t, source, false)
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	m.do(moverapi.Task{Kind: moverapi.Final})
	looked := m.do(moverapi.Task{Kind: moverapi.Fingerprint})
	if *looked.Fingerprints == (moverapi.Fingerprints{}) {
		t.Skip("the file system of this machine's temporary files has no fingerprints")
	}
	assert.EqualValues(t, 2000, looked.Progress.FilesDone, "each end has told of 1000")
}

func TestAnEmptySourceIsComparedAndOnlyThenPrepared(t *testing.T) {
	m := starts(t, some(t), false)
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	m.do(moverapi.Task{Kind: moverapi.Final})
	sealed := m.verified(true)
	left, err := os.ReadDir(m.Source)
	require.NoError(t, err)
	for _, entry := range left {
		require.NoError(t, os.RemoveAll(filepath.Join(m.Source, entry.Name())))
	}
	m.anew()
	found := m.compared(time.Now())
	assert.Equal(t, sealed.TargetRoot, found.TargetRoot)
	assert.Equal(t, &moverapi.Unseen{}, found.Unseen)
	_, err = m.try(moverapi.Task{Kind: moverapi.Final})
	require.ErrorContains(t, err, "nothing is deleted at the target", "it was not prepared")
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	m.do(moverapi.Task{Kind: moverapi.Final})
	m.verified(true)
}

func TestAScrubOfABlockVolumeSaysWhetherTheCopyIsAsItWas(t *testing.T) {
	source, target := device(t, blocky(t)), device(t, random(t, 12<<20))
	m := beginBlock(t, source, target)
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	m.do(moverapi.Task{Kind: moverapi.Final})
	sealed := m.verified(true)
	assert.EqualValues(t, 11<<20+4096, sealed.TargetBytes)

	put(t, source, 3<<20, []byte("changed"))
	found := m.compared(time.Now())
	assert.Equal(t, sealed.TargetRoot, found.TargetRoot)
	assert.Equal(t, sealed.TargetBytes, found.TargetBytes)
	assert.Equal(t, &moverapi.Unseen{Bytes: blockSize}, found.Unseen, "a device has no times")

	put(t, target, 7<<20, []byte{1})
	found = m.compared(time.Now())
	assert.NotEqual(t, sealed.TargetRoot, found.TargetRoot)
	assert.EqualValues(t, 2*blockSize, found.Unseen.Bytes)
}
