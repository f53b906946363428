package snapshot_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

func TestTable(t *testing.T) {
	table := snapshot.NewTable[int](8)
	_, ok := table.Get("a")
	assert.False(t, ok, "a new table is empty")

	table.Set("a", 1)
	table.Set("b", 2)
	table.Set("a", 3)
	value, ok := table.Get("a")
	assert.True(t, ok)
	assert.Equal(t, 3, value, "the last value counts")
	assert.Equal(t, 2, table.Len())

	table.Delete("a")
	table.Delete("never there")
	_, ok = table.Get("a")
	assert.False(t, ok)
	assert.Equal(t, 1, table.Len())
}

func TestSteadyTableKeepsWhatIsTheSame(t *testing.T) {
	table := snapshot.NewSteadyTable[string](1)
	table.Set("a", "x")
	assert.Zero(t, testing.AllocsPerRun(10, func() { table.Set("a", "x") }), "nothing is copied")
	table.Set("a", "y")
	value, _ := table.Get("a")
	assert.Equal(t, "y", value)
	table.Delete("a")
	table.Set("a", "y")
	_, ok := table.Get("a")
	assert.True(t, ok)
}

func TestTableReplace(t *testing.T) {
	table := snapshot.NewTable[int](8)
	entries := map[string]int{}
	for i := range 5000 {
		table.Set(fmt.Sprintf("old-%d", i), i)
		entries[fmt.Sprintf("new-%d", i)] = i
	}
	table.Replace(entries)
	require.Equal(t, 5000, table.Len())
	for key, want := range entries {
		value, ok := table.Get(key)
		require.True(t, ok)
		require.Equal(t, want, value)
	}
	_, ok := table.Get("old-1")
	assert.False(t, ok, "what is not in the new content is gone")
}

// Readers run beside writers, so that the race detector sees every pairing; each
// reader must see values that were really stored, and never go back in time.
func TestTableServesReadersWhileItChanges(t *testing.T) {
	const keys, rounds = 64, 500
	table := snapshot.NewTable[*[2]int](8)
	for k := range keys {
		table.Set(fmt.Sprint(k), &[2]int{k, 0})
	}
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			last := [keys]int{}
			for {
				for k := range keys {
					value, ok := table.Get(fmt.Sprint(k))
					if !assert.True(t, ok) || !assert.Equal(t, k, value[0]) || !assert.GreaterOrEqual(t, value[1], last[k]) {
						return
					}
					last[k] = value[1]
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for half := range 2 {
		writers.Go(func() {
			for round := range rounds {
				for k := half; k < keys; k += 2 {
					table.Set(fmt.Sprint(k), &[2]int{k, round})
				}
				other := fmt.Sprintf("passing-%d", half)
				table.Set(other, &[2]int{})
				table.Delete(other)
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	assert.Equal(t, keys, table.Len())
}
