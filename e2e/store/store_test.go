package store_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/component-base/cli"

	"github.com/lodestone-storage/lodestone/e2e/mover/cases"
	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/mover/app"
	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

func TestContentGoesThroughTheObjectStoreAndNothingStaysThere(t *testing.T) {
	server := serves(t)
	m := begin(t, ticket(t, server), volume(t))
	require.Empty(t, m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Refusals)
	first := m.do(moverapi.Task{Kind: moverapi.Pass})
	assert.Greater(t, first.Progress.BytesStored, int64(42<<20))
	assert.Less(t, m.Wire.Bytes(), int64(5<<20), "the content goes over the connection")
	assert.Greater(t, first.Passed.ChangedBytes, int64(42<<20))
	// The key and the configuration are for the next pass.
	empties(t, server, "keys", "config")

	// Little is not worth the way through the store, nor is a part of a large file.
	changed, err := os.OpenFile(filepath.Join(m.Source, "data", "1"), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = changed.WriteAt([]byte("changed"), 5<<20)
	require.NoError(t, err)
	require.NoError(t, changed.Close())
	random(t, filepath.Join(m.Source, "data", "new"), 1<<20)
	final := m.do(moverapi.Task{Kind: moverapi.Final})
	assert.Zero(t, final.Progress.BytesStored)
	m.verified()
	require.NoError(t, m.EndSender())
	empties(t, server)
}

func TestEveryCaseOfACopySurvivesTheObjectStore(t *testing.T) {
	testbed.NotInShort(t)
	server := serves(t)
	program, err := os.Executable()
	require.NoError(t, err)
	engine := harness.Engine{Program: program, Store: ticket(t, server), More: []string{"--store-from=1"}}
	result, err := cases.Run(t.Context(), cases.Together(cases.Scale{FileBytes: 16 << 20, Files: 100}), engine, t.TempDir())
	require.NoError(t, err)
	assert.True(t, result.Meets, "%s: %s", result.Outcome, result.Reason)
}

func TestAnObjectStoreThatCannotBeUsedRefusesTheMove(t *testing.T) {
	server := serves(t)
	source := t.TempDir()
	for name, row := range map[string]struct {
		change func(data map[string][]byte)
		stop   bool
		want   string
	}{
		"another password": {change: func(data map[string][]byte) { data["RESTIC_REST_PASSWORD"] = []byte("wrong") },
			want: "it refuses the credentials"},
		"no password": {change: func(data map[string][]byte) { delete(data, "RESTIC_REST_PASSWORD") },
			want: "it refuses the credentials"},
		"an authority unknown": {change: func(data map[string][]byte) { delete(data, "ca.crt") }, want: "its certificate is not to be trusted"},
		"a store that is down": {stop: true, want: "it cannot be reached now"},
		"a place that is none": {change: func(data map[string][]byte) { data["url"] = append(data["url"], "a/b/c/d"...) },
			want: "the mover at the source cannot use the object store"},
	} {
		t.Run(name, func(t *testing.T) {
			if row.stop {
				server.Stop()
				defer func() { require.NoError(t, server.Run(t.Context())) }()
			}
			change := row.change
			if change == nil {
				change = func(map[string][]byte) {}
			}
			m := begin(t, ticket(t, server, change), source)
			refusals := m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Refusals
			require.Len(t, refusals, 1)
			assert.Contains(t, refusals[0].Reason, "the mover at the source cannot use the object store 127.0.0.1:")
			assert.Contains(t, refusals[0].Reason, row.want)
			assert.NotContains(t, refusals[0].Reason, server.Password)
		})
	}
}

func TestAMoveOutlivesItsObjectStoreAndItsMovers(t *testing.T) {
	for name, disturb := range map[string]func(m *move, server *store.Server) error{
		"the store is away for a while": func(m *move, server *store.Server) error {
			server.Stop()
			time.Sleep(3 * time.Second)
			return server.Run(m.ctx)
		},
		"the sender is killed": func(m *move, _ *store.Server) error {
			if err := m.KillSender(true); err != nil {
				return err
			}
			return m.StartSender(m.ctx)
		},
		"the receiver is killed": func(m *move, _ *store.Server) error {
			if err := m.KillReceiver(true); err != nil {
				return err
			}
			return m.StartReceiver(m.ctx)
		},
		"somebody removes what is in the store": func(_ *move, server *store.Server) error {
			return server.Lose()
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := serves(t)
			m := begin(t, ticket(t, server), volume(t))
			m.do(moverapi.Task{Kind: moverapi.Prepare})
			disturbed := make(chan error, 1)
			go func() {
				for range 1000 {
					if files, _ := server.Files(); len(files) > 3 {
						break
					}
					time.Sleep(5 * time.Millisecond)
				}
				disturbed <- disturb(m, server)
			}()
			task := moverapi.Task{ID: "pass", Kind: moverapi.Pass, Expect: m.expect}
			_, err := m.Do(m.ctx, task)
			require.NoError(t, <-disturbed)
			require.NoError(t, err)
			m.do(moverapi.Task{Kind: moverapi.Final})
			m.verified()
			require.NoError(t, m.EndSender())
			empties(t, server)
		})
	}
}

func TestTheBandwidthLimitHoldsForTheObjectStore(t *testing.T) {
	testbed.NotInShort(t)
	server := serves(t)
	source := t.TempDir()
	random(t, filepath.Join(source, "file"), 40<<20)
	m := begin(t, ticket(t, server), source)
	m.do(moverapi.Task{Kind: moverapi.Prepare})
	const rate = 10 << 20
	began := time.Now()
	m.do(moverapi.Task{Kind: moverapi.Pass, BytesPerSecond: rate})
	// 40 MiB go there and back, and the first second's are free.
	assert.Greater(t, time.Since(began), 6*time.Second, "no faster than the limit allows")
	m.verified()
	var here, there []byte
	here, err := os.ReadFile(filepath.Join(m.Source, "file"))
	require.NoError(t, err)
	there, err = os.ReadFile(filepath.Join(m.Target, "file"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(here, there))
}

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
func ticket(t *testing.T, server *store.Server, change ...func(data map[string][]byte)) *moverapi.Ticket {
	t.Helper()
	data := server.Secret()
	for _, c := range change {
		c(data)
	}
	parsed, err := moverapi.ParseRepository(data)
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

func begin(t *testing.T, given *moverapi.Ticket, source string) *move {
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

func (m *move) do(task moverapi.Task) *moverapi.TaskStatus {
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
	v := m.do(moverapi.Task{Kind: moverapi.Verify, Full: true}).Verified
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

// claimed is what movers get whose contents go through a claim.
func claimed(t *testing.T) *moverapi.Ticket {
	t.Helper()
	testbed.Require(t)
	harness.Require(t)
	if _, err := sandbox.LandlockVersion(); err != nil {
		t.Skip(err)
	}
	_, err := programs()
	require.NoError(t, err)
	given := (&moverapi.Repository{Claim: "moves"}).For("move-0", "a password")
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
	testbed.NotInShort(t)
	given, claim := claimed(t), t.TempDir()
	// What another move left a long time ago, what one has now, and what is somebody else's.
	for name, age := range map[string]time.Duration{"old-0": 60 * 24 * time.Hour, "young-0": time.Hour, ".snapshot": 60 * 24 * time.Hour} {
		require.NoError(t, os.MkdirAll(filepath.Join(claim, name, "part"), 0o700))
		at := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(filepath.Join(claim, name), at, at))
	}
	m := beginWith(t, harness.Setup{Store: given, Source: volume(t), SourceClaim: claim, TargetClaim: claim})
	require.Empty(t, m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Refusals)
	assert.NoDirExists(t, filepath.Join(claim, "old-0"))
	first := m.do(moverapi.Task{Kind: moverapi.Pass})
	assert.Greater(t, first.Progress.BytesStored, int64(42<<20))
	assert.Less(t, m.Wire.Bytes(), int64(5<<20), "the content goes over the connection")
	// Again, in a part of its own.
	random(t, filepath.Join(m.Source, "data", "more"), 40<<20)
	second := m.do(moverapi.Task{Kind: moverapi.Pass})
	assert.Greater(t, second.Progress.BytesStored, int64(39<<20))
	m.do(moverapi.Task{Kind: moverapi.Final})
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
		"two volumes behind one name": {plain, plain, "the mover at the target cannot use claim moves: what the mover at the source has just " +
			"written there is not in it, so the claims of this name lead to different storage"},
		"one that is full": {full, plain, "the mover at the source cannot use claim moves: it is full: make room in it"},
		"one that may only be read": {func(t *testing.T) string { t.Helper(); return mounted(t, unix.MS_RDONLY) }, plain,
			"the mover at the source cannot use claim moves: its storage lets nobody write"},
		"one that is not mounted": {func(*testing.T) string { return "/nowhere" }, plain, "the mover at the source cannot use claim moves: "},
	} {
		t.Run(name, func(t *testing.T) {
			m := beginWith(t, harness.Setup{Store: given, Source: t.TempDir(), SourceClaim: row.source(t), TargetClaim: row.target(t)})
			refusals := m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Refusals
			require.Len(t, refusals, 1)
			assert.Contains(t, refusals[0].Reason, row.want)
		})
	}
}

func TestAWayToTheSourceInAClaimLeadsNoMoverThere(t *testing.T) {
	given, claim := claimed(t), t.TempDir()
	m := beginWith(t, harness.Setup{Store: given, Source: volume(t), SourceClaim: claim, TargetClaim: claim})
	m.do(moverapi.Task{Kind: moverapi.Prepare})
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
	_, err := m.Do(m.ctx, moverapi.Task{ID: "pass", Kind: moverapi.Pass, Expect: m.expect})
	require.NoError(t, <-disturbed)
	require.NoError(t, err)
	m.do(moverapi.Task{Kind: moverapi.Final})
	m.verified()
	require.NoError(t, m.EndSender())
	assert.NoFileExists(t, filepath.Join(claim, "move-0"))
	assert.Len(t, kept(t, m.Source), before, "nothing is written into the source")
}
