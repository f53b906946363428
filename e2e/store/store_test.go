package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/mover/cases"
	"github.com/lodestone-storage/lodestone/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

func TestContentGoesThroughTheObjectStoreAndNothingStaysThere(t *testing.T) {
	server := serves(t)
	m := begin(t, ticket(t, server), volume(t))
	require.Empty(t, m.do(movecontrol.Task{Kind: movecontrol.Prepare}).Prepared.Refusals)
	first := m.do(movecontrol.Task{Kind: movecontrol.Pass})
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
	final := m.do(movecontrol.Task{Kind: movecontrol.Final})
	assert.Zero(t, final.Progress.BytesStored)
	m.verified()
	require.NoError(t, m.EndSender())
	empties(t, server)
}

func TestEveryCaseOfACopySurvivesTheObjectStore(t *testing.T) {
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
		"another password":     {change: func(data map[string][]byte) { data["RESTIC_REST_PASSWORD"] = []byte("wrong") }, want: "it refuses the credentials"},
		"no password":          {change: func(data map[string][]byte) { delete(data, "RESTIC_REST_PASSWORD") }, want: "it refuses the credentials"},
		"an authority unknown": {change: func(data map[string][]byte) { delete(data, "ca.crt") }, want: "its certificate is not to be trusted"},
		"a store that is down": {stop: true, want: "it cannot be reached now"},
		"a place that is none": {change: func(data map[string][]byte) { data["url"] = append(data["url"], "a/b/c/d"...) }, want: "the mover at the source cannot use the object store"},
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
			refusals := m.do(movecontrol.Task{Kind: movecontrol.Prepare}).Prepared.Refusals
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
			m.do(movecontrol.Task{Kind: movecontrol.Prepare})
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
			task := movecontrol.Task{ID: "pass", Kind: movecontrol.Pass, Expect: m.expect}
			_, err := m.Do(m.ctx, task)
			require.NoError(t, <-disturbed)
			require.NoError(t, err)
			m.do(movecontrol.Task{Kind: movecontrol.Final})
			m.verified()
			require.NoError(t, m.EndSender())
			empties(t, server)
		})
	}
}

func TestTheBandwidthLimitHoldsForTheObjectStore(t *testing.T) {
	server := serves(t)
	source := t.TempDir()
	random(t, filepath.Join(source, "file"), 40<<20)
	m := begin(t, ticket(t, server), source)
	m.do(movecontrol.Task{Kind: movecontrol.Prepare})
	const rate = 10 << 20
	began := time.Now()
	m.do(movecontrol.Task{Kind: movecontrol.Pass, BytesPerSecond: rate})
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
