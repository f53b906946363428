package app_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/cli"

	"github.com/lodestone-storage/lodestone/mover/app"
	"github.com/lodestone-storage/lodestone/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// TestMain lets the test's program be the mover, in processes of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (app.Helper(os.Args[1:])) {
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
	// patient, if not nil, tells when a mover that was killed runs again.
	patient chan error
}

// begin starts both movers and does Prepare.
func begin(t *testing.T, source string, spliced bool) *move {
	t.Helper()
	m := starts(t, source, spliced)
	m.expect = m.do(movecontrol.Task{Kind: movecontrol.Prepare}).Prepared.Source
	return m
}

// starts starts both movers.
func starts(t *testing.T, source string, spliced bool) *move {
	t.Helper()
	harness.Require(t)
	ctx, stop := context.WithTimeout(t.Context(), 90*time.Second)
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

// do does a task that must succeed.
func (m *move) do(task movecontrol.Task) *movecontrol.TaskStatus {
	m.t.Helper()
	status, err := m.try(task)
	require.NoError(m.t, err)
	require.Equal(m.t, movecontrol.Done, status.State)
	return status
}

func (m *move) try(task movecontrol.Task) (*movecontrol.TaskStatus, error) {
	m.tasks++
	task.ID, task.Expect = string(task.Kind)+"-"+string(rune('a'+m.tasks)), m.expect
	if m.patient == nil {
		return m.Do(m.ctx, task)
	}
	// A task may fail to be asked for while a mover is down.
	status, err := m.Do(m.ctx, task)
	require.NoError(m.t, <-m.patient)
	m.patient = nil
	if err != nil && m.ctx.Err() == nil {
		return m.Do(m.ctx, task)
	}
	return status, err
}

// verified does Verify and wants both ends equal.
func (m *move) verified(full bool) *movecontrol.Verified {
	m.t.Helper()
	v := m.do(movecontrol.Task{Kind: movecontrol.Verify, Full: full}).Verified
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

// some makes a volume with files of all sizes.
func some(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "small", []byte("hello"))
	write(t, dir, "a/b/c/deep", random(t, 70_000))
	write(t, dir, "empty", nil)
	write(t, dir, "data/large", random(t, 20<<20))
	write(t, dir, "data/zeros", make([]byte, 9<<20))
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
			m := begin(t, some(t), spliced)
			first := m.do(movecontrol.Task{Kind: movecontrol.Pass}).Passed
			assert.Greater(t, first.BytesSent, int64(20<<20))
			assert.Less(t, first.BytesSent, int64(22<<20), "holes and second names are not sent")

			large, err := os.OpenFile(filepath.Join(m.Source, "data", "large"), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = large.WriteAt([]byte("changed"), 7<<20)
			require.NoError(t, err)
			require.NoError(t, large.Close())
			require.NoError(t, os.Remove(filepath.Join(m.Source, "empty")))
			require.NoError(t, os.MkdirAll(filepath.Join(m.Source, "empty", "now", "a"), 0o755))

			final := m.do(movecontrol.Task{Kind: movecontrol.Final}).Passed
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
	m := begin(t, source, false)
	m.do(movecontrol.Task{Kind: movecontrol.Pass})
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
	m.do(movecontrol.Task{Kind: movecontrol.Final})
	after := times()
	assert.Equal(t, []int64{before[0], before[2]}, []int64{after[0], after[2]}, "change times decide what Verify reads")
	assert.NotEqual(t, before[1], after[1])
	m.verified(false)
}
