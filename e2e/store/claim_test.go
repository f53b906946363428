package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/mover/confine"
	"github.com/lodestone-storage/lodestone/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/pkg/moverepository"
)

// claimed is what movers get whose contents go through a claim.
func claimed(t *testing.T) *moverepository.Ticket {
	t.Helper()
	testbed.Require(t)
	harness.Require(t)
	if _, err := confine.Version(); err != nil {
		t.Skip(err)
	}
	_, err := programs()
	require.NoError(t, err)
	given := (&moverepository.Repository{Claim: "moves"}).For("move-0", "a password")
	return &given
}

// mounted is a small disk with room for few files.
func mounted(t *testing.T, flags uintptr) string {
	t.Helper()
	at := t.TempDir()
	if err := unix.Mount("tmpfs", at, "tmpfs", flags, "size=64k,nr_inodes=20"); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(at, unix.MNT_DETACH)) })
	return at
}

// kept are the paths of all that is in a directory but a few.
func kept(t *testing.T, directory string, but ...string) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || path == directory {
			return nil // removed meanwhile
		}
		for _, one := range but {
			if path == filepath.Join(directory, one) {
				return filepath.SkipDir
			}
		}
		paths = append(paths, path)
		return err
	}))
	return paths
}

func TestContentGoesThroughAClaimAndNothingStaysThere(t *testing.T) {
	given, claim := claimed(t), t.TempDir()
	// What another move left a long time ago, what one has now, and what is somebody else's.
	for name, age := range map[string]time.Duration{"old-0": 60 * 24 * time.Hour, "young-0": time.Hour, ".snapshot": 60 * 24 * time.Hour} {
		require.NoError(t, os.MkdirAll(filepath.Join(claim, name, "part"), 0o700))
		at := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(filepath.Join(claim, name), at, at))
	}
	m := beginWith(t, harness.Setup{Store: given, Source: volume(t), SourceClaim: claim, TargetClaim: claim})
	require.Empty(t, m.do(movecontrol.Task{Kind: movecontrol.Prepare}).Prepared.Refusals)
	assert.NoDirExists(t, filepath.Join(claim, "old-0"))
	first := m.do(movecontrol.Task{Kind: movecontrol.Pass})
	assert.Greater(t, first.Progress.BytesStored, int64(42<<20))
	assert.Less(t, m.Wire.Bytes(), int64(5<<20), "the content goes over the connection")
	// Again, in a part of its own.
	random(t, filepath.Join(m.Source, "data", "more"), 40<<20)
	second := m.do(movecontrol.Task{Kind: movecontrol.Pass})
	assert.Greater(t, second.Progress.BytesStored, int64(39<<20))
	m.do(movecontrol.Task{Kind: movecontrol.Final})
	m.verified()
	require.NoError(t, m.EndSender())
	assert.Empty(t, kept(t, claim, "young-0", ".snapshot"))
	assert.DirExists(t, filepath.Join(claim, "young-0", "part"))
	assert.DirExists(t, filepath.Join(claim, ".snapshot", "part"))
}

func TestAClaimThatCannotBeUsedRefusesTheMove(t *testing.T) {
	given := claimed(t)
	full := func(t *testing.T) string { t.Helper(); return mounted(t, 0) }
	plain := func(t *testing.T) string { t.Helper(); return t.TempDir() }
	for name, row := range map[string]struct {
		source, target func(t *testing.T) string
		want           string
	}{
		"two volumes behind one name": {plain, plain, "the mover at the target cannot use claim moves: what the mover at the source has just written there is not in it, so the claims of this name lead to different storage"},
		"one that is full":            {full, plain, "the mover at the source cannot use claim moves: it is full: make room in it"},
		"one that may only be read":   {func(t *testing.T) string { t.Helper(); return mounted(t, unix.MS_RDONLY) }, plain, "the mover at the source cannot use claim moves: its storage lets nobody write"},
		"one that is not mounted":     {func(*testing.T) string { return "/nowhere" }, plain, "the mover at the source cannot use claim moves: "},
	} {
		t.Run(name, func(t *testing.T) {
			m := beginWith(t, harness.Setup{Store: given, Source: t.TempDir(), SourceClaim: row.source(t), TargetClaim: row.target(t)})
			refusals := m.do(movecontrol.Task{Kind: movecontrol.Prepare}).Prepared.Refusals
			require.Len(t, refusals, 1)
			assert.Contains(t, refusals[0].Reason, row.want)
		})
	}
}

func TestAWayToTheSourceInAClaimLeadsNoMoverThere(t *testing.T) {
	given, claim := claimed(t), t.TempDir()
	m := beginWith(t, harness.Setup{Store: given, Source: volume(t), SourceClaim: claim, TargetClaim: claim})
	m.do(movecontrol.Task{Kind: movecontrol.Prepare})
	before := len(kept(t, m.Source))
	disturbed := make(chan error, 1)
	go func() {
		for range 1000 {
			if parts, _ := filepath.Glob(filepath.Join(claim, "move-0", "*", "data", "*", "*")); len(parts) > 1 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		at := filepath.Join(claim, "move-0")
		disturbed <- errors.Join(os.Rename(at, at+".away"), os.Symlink(m.Source, at))
	}()
	_, err := m.Do(m.ctx, movecontrol.Task{ID: "pass", Kind: movecontrol.Pass, Expect: m.expect})
	require.NoError(t, <-disturbed)
	require.NoError(t, err)
	m.do(movecontrol.Task{Kind: movecontrol.Final})
	m.verified()
	require.NoError(t, m.EndSender())
	assert.NoFileExists(t, filepath.Join(claim, "move-0"))
	assert.Len(t, kept(t, m.Source), before, "nothing is written into the source")
}
