package app_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/component-base/cli"

	"github.com/lodestone-storage/lodestone/e2e/mover/cases"
	"github.com/lodestone-storage/lodestone/e2e/mover/cases/disk"
	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/mover/app"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// TestMain lets the test's program be the mover, in processes of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (app.RunHelper(os.Args[1:])) {
		return
	}
	if len(os.Args) > 1 && (os.Args[1] == "send" || os.Args[1] == "receive") {
		os.Exit(cli.Run(app.NewCommand()))
	}
	os.Exit(m.Run())
}

// move is a move between two directories, with the steps that a controller takes.
type move struct {
	*harness.Move
	t      *testing.T
	ctx    context.Context
	expect json.RawMessage
	tasks  int
	// patient, if not nil, gets a value when a mover that was killed runs again.
	patient chan error
}

// setUp starts both movers and does Prepare.
func setUp(t *testing.T, source string, spliced bool) *move {
	t.Helper()
	m := starts(t, source, spliced)
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	return m
}

// starts starts both movers.
func starts(t *testing.T, source string, spliced bool) *move {
	t.Helper()
	harness.Require(t)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(stop)
	program, err := os.Executable()
	require.NoError(t, err)
	target := t.TempDir()
	started, err := harness.Start(ctx, harness.Setup{Program: program, Folder: t.TempDir(), Source: source, Target: target, Spliced: spliced})
	require.NoError(t, err)
	t.Cleanup(func() {
		started.Stop()
		if t.Failed() {
			t.Log(started.Log())
		}
	})
	return &move{Move: started, t: t, ctx: ctx}
}

// do runs a task that must succeed.
func (m *move) do(task moverapi.Task) *moverapi.TaskStatus {
	m.t.Helper()
	status, err := m.try(task)
	require.NoError(m.t, err)
	require.Equal(m.t, moverapi.Done, status.State)
	return status
}

func (m *move) try(task moverapi.Task) (*moverapi.TaskStatus, error) {
	m.tasks++
	task.ID, task.Expect = string(task.Kind)+"-"+string(rune('a'+m.tasks)), m.expect
	if m.patient == nil {
		return m.Do(m.ctx, task)
	}
	// The request may fail while a mover is down.
	status, err := m.Do(m.ctx, task)
	require.NoError(m.t, <-m.patient)
	m.patient = nil
	if err != nil && m.ctx.Err() == nil {
		return m.Do(m.ctx, task)
	}
	return status, err
}

// verified runs Verify and requires both ends to be equal.
func (m *move) verified(full bool) *moverapi.Verified {
	m.t.Helper()
	v := m.do(moverapi.Task{Kind: moverapi.Verify, Full: full}).Verified
	require.Empty(m.t, v.Differences)
	require.True(m.t, v.Equal)
	require.Equal(m.t, v.SourceRoot, v.TargetRoot)
	return v
}

func write(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, content, 0o644))
	return path
}

func random(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	_, err := rand.Read(b)
	require.NoError(t, err)
	return b
}

// some makes a volume with files of all sizes, of which two are sent in blocks.
func some(t *testing.T) string {
	t.Helper()
	return sized(t, 5<<20)
}

// sized makes one with a large file of so many bytes.
func sized(t *testing.T, large int) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "small", []byte("hello"))
	write(t, dir, "a/b/c/deep", random(t, 70_000))
	write(t, dir, "empty", nil)
	write(t, dir, "data/large", random(t, large))
	write(t, dir, "data/zeros", make([]byte, 5<<20))
	require.NoError(t, os.Link(filepath.Join(dir, "data", "large"), filepath.Join(dir, "another")))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	return dir
}

func same(t *testing.T, m *move, name string) {
	t.Helper()
	a, err := os.ReadFile(filepath.Join(m.Source, name))
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(m.Target, name))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(a, b), "%s has another content at the target", name)
}

func TestAVolumeIsMovedWhileItChanges(t *testing.T) {
	for name, spliced := range map[string]bool{"direct": false, "spliced": true} {
		t.Run(name, func(t *testing.T) {
			m := setUp(t, sized(t, 20<<20), spliced)
			first := m.do(moverapi.Task{Kind: moverapi.Pass}).Passed
			assert.Greater(t, first.BytesSent, int64(20<<20))
			assert.Less(t, first.BytesSent, int64(22<<20), "holes and second names are not sent")

			large, err := os.OpenFile(filepath.Join(m.Source, "data", "large"), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = large.WriteAt([]byte("changed"), 7<<20)
			require.NoError(t, err)
			require.NoError(t, large.Close())
			require.NoError(t, os.Remove(filepath.Join(m.Source, "empty")))
			require.NoError(t, os.MkdirAll(filepath.Join(m.Source, "empty", "now", "a"), 0o755))

			final := m.do(moverapi.Task{Kind: moverapi.Final}).Passed
			assert.Less(t, final.BytesSent, int64(1<<20), "only what has changed is sent")
			v := m.verified(false)
			assert.Equal(t, v.SourceRoot, m.verified(true).SourceRoot)
			same(t, m, "data/large")
		})
	}
}

func TestTheStopDoesNotReadWhatDidNotChange(t *testing.T) {
	source := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, os.Chown(write(t, source, name, random(t, 5<<20)), 1234, 2345))
		require.NoError(t, os.Chmod(filepath.Join(source, name), 0o750|os.ModeSetgid))
	}
	m := setUp(t, source, false)
	m.do(moverapi.Task{Kind: moverapi.Pass})
	times := func() (all []int64) {
		for _, name := range []string{"a", "b", "c"} {
			info, err := os.Stat(filepath.Join(m.Target, name))
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o750)|os.ModeSetgid, info.Mode())
			status := info.Sys().(*syscall.Stat_t)
			assert.EqualValues(t, 1234, status.Uid)
			assert.EqualValues(t, 2345, status.Gid)
			all = append(all, status.Ctim.Nano())
		}
		return all
	}
	before := times()
	file, err := os.OpenFile(filepath.Join(source, "b"), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt([]byte("changed"), 1<<20)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	m.do(moverapi.Task{Kind: moverapi.Final})
	after := times()
	assert.Equal(t, []int64{before[0], before[2]}, []int64{after[0], after[2]}, "change times decide what Verify reads")
	assert.NotEqual(t, before[1], after[1])
	m.verified(false)
}

// TestEveryCaseEndsAsItIsDocumented is `make move-cases` of the mover alone.
func TestEveryCaseEndsAsItIsDocumented(t *testing.T) {
	harness.Require(t)
	program, err := os.Executable()
	require.NoError(t, err)
	for _, c := range cases.All(cases.Scale{FileBytes: 32 << 20, Files: 500}) {
		t.Run(c.Number+" "+c.Name, func(t *testing.T) {
			result, err := cases.Run(t.Context(), c, harness.Engine{Program: program}, t.TempDir())
			if errors.Is(err, disk.ErrNone) {
				t.Skip(err)
			}
			require.NoError(t, err)
			assert.NoError(t, harness.Check(c, result))
		})
	}
}

// labelled sets attributes of a file that belong to the machine. Only a program with CAP_SYS_ADMIN
// may set or remove security.lodestone-test.
func labelled(t *testing.T, path, label string) {
	t.Helper()
	for _, name := range []string{"security.selinux", "security.lodestone-test"} {
		if err := unix.Lsetxattr(path, name, []byte(label), 0); err != nil {
			t.Skipf("attributes %s cannot be set here: %v", name, err)
		}
	}
}

func attribute(t *testing.T, path, name string) string {
	t.Helper()
	value := make([]byte, 100)
	n, err := unix.Lgetxattr(path, name, value)
	require.NoError(t, err, name)
	return string(value[:n])
}

func TestAttributesOfTheMachineStayAtBothEndsAsTheyAre(t *testing.T) {
	harness.Require(t)
	source := t.TempDir()
	files := []string{write(t, source, "d/small", []byte("small")), write(t, source, "d/large", random(t, 5<<20))}
	for _, path := range append(files, source, filepath.Join(source, "d")) {
		labelled(t, path, "source")
		require.NoError(t, unix.Lsetxattr(path, "user.kept", []byte("kept"), 0))
		require.NoError(t, unix.Lsetxattr(path, "user.kept/with.slash", []byte("kept"), 0))
	}
	m := setUp(t, source, false)
	m.do(moverapi.Task{Kind: moverapi.Final})
	m.verified(true)
	there := func(name string) string { return filepath.Join(m.Target, name) }
	for _, name := range []string{".", "d", "d/small", "d/large"} {
		assert.Equal(t, "kept", attribute(t, there(name), "user.kept"))
		assert.Equal(t, "kept", attribute(t, there(name), "user.kept/with.slash"))
		_, err := unix.Lgetxattr(there(name), "security.lodestone-test", nil)
		assert.ErrorIs(t, err, unix.ENODATA, "labels of the source mean nothing at the target")
	}
	// The target gets labels, as its kernel sets them, and a content that only the file's change
	// time shows: for such files rsync gets a list, and no filter from the sender.
	for _, name := range []string{".", "d", "d/small", "d/large"} {
		labelled(t, there(name), "target")
		require.NoError(t, unix.Lsetxattr(there(name), "user.stale", []byte("stale"), 0))
	}
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	write(t, source, "d/small", []byte("SMALL"))
	require.NoError(t, os.Chtimes(files[0], info.ModTime(), info.ModTime()))
	m.do(moverapi.Task{Kind: moverapi.Final})
	m.verified(true)
	for _, name := range []string{".", "d", "d/large"} {
		assert.Equal(t, "target", attribute(t, there(name), "security.lodestone-test"))
		assert.Equal(t, "target", attribute(t, there(name), "security.selinux"))
	}
	for _, name := range []string{".", "d", "d/small", "d/large"} {
		_, err := unix.Lgetxattr(there(name), "user.stale", nil)
		assert.ErrorIs(t, err, unix.ENODATA)
	}
}
