package store_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/cli"

	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/mover/app"
	"github.com/lodestone-storage/lodestone/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/pkg/moverepository"
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

var programs = sync.OnceValues(func() (store.Programs, error) {
	p, err := store.Build(context.Background(), os.Stderr)
	if err == nil {
		err = p.First()
	}
	return p, err
})

// serves starts an object store.
func serves(t *testing.T) *store.Server {
	t.Helper()
	testbed.Require(t)
	harness.Require(t)
	p, err := programs()
	require.NoError(t, err)
	server, err := store.Start(t.Context(), p.Server, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	return server
}

// ticket is what movers get of a store.
func ticket(t *testing.T, server *store.Server, change ...func(data map[string][]byte)) *moverepository.Ticket {
	t.Helper()
	data := server.Secret()
	for _, c := range change {
		c(data)
	}
	parsed, err := moverepository.Parse(data)
	require.NoError(t, err)
	given := parsed.For("move-0", "a password")
	return &given
}

// move is a move between two directories through a store.
type move struct {
	*harness.Move
	t      *testing.T
	ctx    context.Context
	expect json.RawMessage
	tasks  int
}

func begin(t *testing.T, given *moverepository.Ticket, source string) *move {
	t.Helper()
	return beginWith(t, harness.Setup{Store: given, Source: source})
}

func beginWith(t *testing.T, setup harness.Setup) *move {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(stop)
	setup.Program, setup.Folder, setup.Target = program, t.TempDir(), t.TempDir()
	started, err := harness.Start(ctx, setup)
	require.NoError(t, err)
	t.Cleanup(func() {
		started.Stop()
		if t.Failed() {
			t.Log(started.Log())
		}
	})
	return &move{Move: started, t: t, ctx: ctx}
}

func (m *move) do(task movecontrol.Task) *movecontrol.TaskStatus {
	m.t.Helper()
	m.tasks++
	task.ID, task.Expect = fmt.Sprintf("%s-%d", task.Kind, m.tasks), m.expect
	status, err := m.Do(m.ctx, task)
	require.NoError(m.t, err)
	if status.Prepared != nil {
		m.expect = status.Prepared.Source
	}
	return status
}

func (m *move) verified() {
	m.t.Helper()
	v := m.do(movecontrol.Task{Kind: movecontrol.Verify, Full: true}).Verified
	require.Empty(m.t, v.Differences)
	require.True(m.t, v.Equal)
}

func random(t *testing.T, path string, n int) {
	t.Helper()
	b := make([]byte, n)
	_, err := rand.Read(b)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, b, 0o640))
}

// volume has 44 MiB in large and small files, and what restic does not keep.
func volume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 4 {
		random(t, filepath.Join(dir, "data", fmt.Sprint(i)), 10<<20)
	}
	for i := range 200 {
		random(t, filepath.Join(dir, "small", fmt.Sprint(i))+"/- new\nline", 20_000)
	}
	require.NoError(t, os.Chown(filepath.Join(dir, "data"), 1234, 2345))
	require.NoError(t, os.Chmod(dir, 0o700))
	require.NoError(t, os.Link(filepath.Join(dir, "data", "0"), filepath.Join(dir, "again")))
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	require.NoError(t, err)
	require.NoError(t, sparse.Truncate(1<<40))
	_, err = sparse.WriteAt([]byte("end"), 1<<39)
	require.NoError(t, err)
	require.NoError(t, sparse.Close())
	return dir
}

// empties waits until nothing is kept in a store but what is in some folders.
func empties(t *testing.T, server *store.Server, but ...string) {
	t.Helper()
	var left []string
	for range 200 {
		files, err := server.Files()
		require.NoError(t, err)
		left = nil
		for path := range files {
			// A server that was killed leaves what it had not finished.
			kept := strings.Contains(path, ".rest-server-temp")
			for _, folder := range but {
				kept = kept || strings.HasPrefix(path, "move-0/"+folder)
			}
			if !kept {
				left = append(left, path)
			}
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Empty(t, left, "this is left in the object store")
}
