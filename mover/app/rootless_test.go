package app_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// owner is whose files the volumes of these tests have, of a pod with its own user, group and fsGroup.
var owner = harness.User{ID: 12345, Groups: []int{12345, 23456}}

// given makes a volume's root directory as kubelets do for an fsGroup.
func given(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chown(dir, 0, owner.Groups[1]))
	require.NoError(t, unix.Chmod(dir, 0o2775))
	return dir
}

// owned is a volume with files of all sizes, all of them of the owner.
func owned(t *testing.T) string {
	t.Helper()
	dir := given(t, some(t))
	require.NoError(t, unix.Chmod(filepath.Join(dir, "data", "large"), 0o440))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	require.NoError(t, unix.Setxattr(filepath.Join(dir, "small"), "user.kept", []byte("kept"), 0))
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return os.Lchown(path, owner.ID, owner.Groups[0])
	}))
	require.NoError(t, os.Lchown(filepath.Join(dir, "a"), owner.ID, owner.Groups[1]))
	require.NoError(t, unix.Chmod(filepath.Join(dir, "a"), 0o2770))
	return dir
}

// rootless starts movers of which those of some verbs are not root.
func rootless(t *testing.T, source, target string, verbs ...string) *move {
	t.Helper()
	harness.Require(t)
	ctx, stop := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(stop)
	// The test's own folder is root's alone.
	self, err := os.Executable()
	require.NoError(t, err)
	content, err := os.ReadFile(self)
	require.NoError(t, err)
	program, folder := filepath.Join(t.TempDir(), "mover"), t.TempDir()
	require.NoError(t, os.WriteFile(program, content, 0o755))
	for _, dir := range []string{filepath.Dir(program), folder, source, target} {
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	}
	as := map[string]harness.User{}
	for _, verb := range verbs {
		as[verb] = owner
	}
	// The folders of both movers are beside each other.
	for _, name := range []string{"keys", "scratch"} {
		require.NoError(t, os.Mkdir(filepath.Join(folder, name), 0o755))
	}
	started, err := harness.Start(ctx, harness.Setup{Program: program, Folder: folder, Source: source, Target: target, As: as, Watched: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		started.Stop()
		if t.Failed() {
			t.Log(started.Log())
		}
	})
	return &move{Move: started, t: t, ctx: ctx}
}

// prepared does Prepare, and returns what is refused.
func (m *move) prepared() []moverapi.Refusal {
	m.t.Helper()
	prepared := m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared
	m.expect = prepared.Source
	return prepared.Refusals
}

func TestAVolumeOfOneOwnerIsMovedWithoutRoot(t *testing.T) {
	for name, verbs := range map[string][]string{
		"the receiver is not root": {"receive"}, "the sender is not root": {"send"}, "neither is root": {"send", "receive"},
	} {
		t.Run(name, func(t *testing.T) {
			m := rootless(t, owned(t), given(t, t.TempDir()), verbs...)
			require.Empty(t, m.prepared())
			m.do(moverapi.Task{Kind: moverapi.Pass})

			// The application goes on: it also writes to a file that it may not open any more, and changes the root directory.
			large, err := os.OpenFile(filepath.Join(m.Source, "data", "large"), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = large.WriteAt([]byte("changed"), 7<<20)
			require.NoError(t, err)
			require.NoError(t, large.Close())
			require.NoError(t, os.Remove(filepath.Join(m.Source, "empty")))
			require.NoError(t, os.Chown(write(t, m.Source, "new", []byte("new")), owner.ID, owner.Groups[1]))
			final := m.do(moverapi.Task{Kind: moverapi.Final}).Passed
			assert.Less(t, final.BytesSent, int64(1<<20), "only what has changed is sent")
			m.verified(false)
			m.verified(true)
			same(t, m, "data/large")
			var s unix.Stat_t
			require.NoError(t, unix.Stat(filepath.Join(m.Target, "a"), &s))
			assert.Equal(t, []uint32{uint32(owner.ID), uint32(owner.Groups[1]), 0o2770}, []uint32{s.Uid, s.Gid, s.Mode & 0o7777})
		})
	}
}

func TestWhatAMoverWithoutRootCannotKeepIsRefusedInPrepare(t *testing.T) {
	for name, row := range map[string]struct {
		verb   string
		change func(t *testing.T, source, target string)
		path   string
		want   string
	}{
		"a file of another user": {"receive", func(t *testing.T, source, _ string) {
			require.NoError(t, os.Chown(filepath.Join(source, "small"), 999, owner.Groups[0]))
		}, "small", "it belongs to another user or group than the mover at the target has (user 12345, groups [12345 23456]), which is not " +
			"root and can make no such file; entries of others: 1"},
		"a file of another group": {"receive", func(t *testing.T, source, _ string) {
			require.NoError(t, os.Chown(filepath.Join(source, "small"), owner.ID, 999))
		}, "small", "it belongs to another user or group"},
		"a device": {"receive", func(t *testing.T, source, _ string) {
			path := filepath.Join(source, "device")
			require.NoError(t, unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
			require.NoError(t, os.Chown(path, owner.ID, owner.Groups[0]))
		}, "device", "the target cannot keep devices"},
		"a file capability": {"receive", func(t *testing.T, source, _ string) {
			require.NoError(t, unix.Setxattr(filepath.Join(source, "small"), "security.capability",
				append([]byte{1, 0, 0, 2, 0, 4}, make([]byte, 14)...), 0))
		}, "small", "the target cannot keep file capabilities"},
		"a root directory of another owner": {"receive", func(t *testing.T, _, target string) {
			require.NoError(t, os.Chown(target, 0, owner.Groups[0]))
		}, "", "the volume's root directory belongs to 0:23456 with mode 2775, and at the target to 0:12345 with mode 2775"},
		"a root directory in which it may not write": {"receive", func(t *testing.T, _, target string) {
			require.NoError(t, unix.Chmod(target, 0o2755))
		}, "", "may not write to the volume"},
		"a file that it may not read": {"send", func(t *testing.T, source, _ string) {
			require.NoError(t, os.Chown(filepath.Join(source, "small"), 0, 0))
			require.NoError(t, os.Chmod(filepath.Join(source, "small"), 0o600))
		}, "", `the mover at the source runs as user 12345 and not as root, and may not read all of the volume (read "small": permission denied)`},
		"a folder that it may not read": {"send", func(t *testing.T, source, _ string) {
			require.NoError(t, os.Chown(filepath.Join(source, "data"), 0, 0))
			require.NoError(t, os.Chmod(filepath.Join(source, "data"), 0o700))
		}, "", "and may not read all of the volume"},
	} {
		t.Run(name, func(t *testing.T) {
			source, target := owned(t), given(t, t.TempDir())
			row.change(t, source, target)
			m := rootless(t, source, target, row.verb)
			refused := m.prepared()
			require.Len(t, refused, 1)
			assert.Equal(t, row.path, refused[0].Path)
			assert.Contains(t, refused[0].Reason, row.want)
			left, err := os.ReadDir(target)
			require.NoError(t, err)
			assert.Empty(t, left, "nothing is written")
		})
	}
}

func TestAFileOfAnotherOwnerThatComesLaterIsNotLostInSilence(t *testing.T) {
	m := rootless(t, owned(t), given(t, t.TempDir()), "receive")
	require.Empty(t, m.prepared())
	m.do(moverapi.Task{Kind: moverapi.Pass})
	require.NoError(t, os.Chown(write(t, m.Source, "later", []byte("later")), 999, 999))
	_, err := m.try(moverapi.Task{Kind: moverapi.Pass})
	require.ErrorContains(t, err, "later: it belongs to another user or group than the mover at the target has")
}
