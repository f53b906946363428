package restic

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

func claim(root string) *Store {
	return &Store{Ticket: (&moverapi.Repository{Claim: "moves"}).For("move-0", "word"), Root: root, Temporary: "/scratch/restic"}
}

func TestARepositoryInAClaimIsTheOpenDirectoryThatResticIsGiven(t *testing.T) {
	s := claim("/repository")
	assert.Contains(t, s.environment(), "RESTIC_REPOSITORY=local:/proc/self/fd/3")
	assert.NotContains(t, strings.Join(s.environment(), " "), "move-0")
	for _, name := range []string{"", "..", "../other-0/ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz",
		"ABCDEFGHIJKLMNOPQRSTUVWXYZ/"} {
		require.ErrorContains(t, s.Check(t.Context(), name), "no part of a repository", name)
		require.ErrorContains(t, s.Fetch(t.Context(), "/volume", Saved{Snapshot: strings.Repeat("a", 64), Part: name}, 0, Output{}),
			"is no snapshot", name)
	}
}

func TestWhatResticSaysOfAClaimIsOneSentence(t *testing.T) {
	for name, row := range map[string]struct {
		code int
		said string
		want string
	}{
		"well":                 {code: 0, said: "/proc/self/fd/3/data: odd"},
		"a file of the volume": {code: 1, said: "/volume/a: no space left on device"},
		"no repository":        {code: noRepository, said: "unable to open config file: stat /proc/self/fd/3/config: no such file or directory"},
		"a full one": {1, "open /proc/self/fd/3/data/ab/c-tmp-1: no space left on device",
			"it is full: make room in it (open the repository/data/ab/c-tmp-1"},
		"a quota":            {1, "write /proc/self/fd/3/data/ab/c: disk quota exceeded", "it is full: make room in it"},
		"one to be read":     {1, "mkdir /proc/self/fd/3/data: read-only file system", "lets nobody write"},
		"one without rights": {1, "mkdir /proc/self/fd/3/data: permission denied", "does not let root in"},
		"one that is gone": {3, "open /proc/self/fd/3/data/ab/c: stale NFS file handle",
			"cannot be used: open the repository/data/ab/c: stale NFS file handle"},
	} {
		t.Run(name, func(t *testing.T) {
			err := claimError(row.code, row.said)
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.want)
			assert.NotContains(t, err.Error(), "/proc/")
		})
	}
}

func TestNothingOutsideOfAClaimIsTouchedThroughLinksInIt(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(outside, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), 0o700))
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "move-0")))
	s := claim(root)
	var unusable *Error
	_, err := s.openPart(t.Context(), "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	require.ErrorAs(t, err, &unusable)
	require.NoError(t, s.Remove(t.Context()))
	assert.DirExists(t, filepath.Join(outside, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	assert.NoFileExists(t, filepath.Join(root, "move-0"))
}

func TestAClaimThatDoesNotAnswerIsNotWaitedFor(t *testing.T) {
	s := claim(t.TempDir())
	hangs := make(chan struct{})
	defer close(hangs)
	err := s.withClaim(t.Context(), time.Millisecond, func(*os.Root) error { <-hangs; return nil })
	require.ErrorContains(t, err, "its storage does not answer")
	// A call that still hangs there comes first.
	require.ErrorContains(t, s.withClaim(t.Context(), time.Millisecond, func(*os.Root) error { return nil }), "its storage does not answer")
}
