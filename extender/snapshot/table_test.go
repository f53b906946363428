package snapshot

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	table := NewTable[int](8)
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
	table := NewSteadyTable[string](1)
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
	table := NewTable[int](8)
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

// Readers run in parallel with writers, so that the race detector sees every combination. Each
// reader must get values that were really stored, and never an older one than before.
func TestTableServesReadersWhileItChanges(t *testing.T) {
	const keys, rounds = 64, 500
	table := NewTable[*[2]int](8)
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

func contents(x *index[int]) map[string]int {
	all := map[string]int{}
	for _, e := range x.entries {
		all[e.key] = e.value
	}
	return all
}

// These hashes are so bad that many keys share one, and that most slots are taken when a key is
// added.
func TestIndexTellsKeysOfTheSameHashApart(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	hash := func(key int) uint64 { return uint64(key%5)<<32 + 6 }
	have, x := map[string]int{}, newIndex[int](0)
	for step := range 3000 {
		number := random.IntN(40)
		key := fmt.Sprint(number)
		before, old := contents(x), x
		if found := x.find(hash(number), key); found != missing && random.IntN(2) == 0 {
			x = x.without(found)
			delete(have, key)
		} else {
			x = x.with(entry[int]{hash: hash(number), key: key, value: step})
			have[key] = step
		}
		require.Equal(t, have, contents(x))
		require.Equal(t, before, contents(old), "an index never changes")
		require.LessOrEqual(t, len(x.entries)*3, len(x.slots)*2, "a third is free")
		for number := range 40 {
			found := x.find(hash(number), fmt.Sprint(number))
			value, ok := have[fmt.Sprint(number)]
			require.Equal(t, ok, found != missing)
			if ok {
				require.Equal(t, value, x.entries[found].value)
			}
		}
	}
}

func TestTableGetsManyAtOnce(t *testing.T) {
	for _, shards := range []int{oneShard, fewShards} {
		table := NewTable[int](shards)
		entries := map[string]int{}
		var keys []string
		for i := range 1000 {
			keys = append(keys, fmt.Sprint(i))
			if i%3 > 0 {
				entries[fmt.Sprint(i)] = i
			}
		}
		table.Replace(maps.Clone(entries))
		for _, asked := range [][]string{nil, keys[:1], keys[:batch], keys[:batch+1], keys} {
			next := 0
			table.GetAll(asked, func(i int, value int, ok bool) {
				assert.Equal(t, next, i, "in their order")
				next++
				want, there := entries[asked[i]]
				assert.Equal(t, there, ok)
				assert.Equal(t, want, value)
			})
			assert.Equal(t, len(asked), next)
		}
	}
}

// BenchmarkTable measures a table of 5,000 nodes with different numbers of
// shards: how long a decision takes to look them all up, and what a change costs.
func BenchmarkTable(b *testing.B) {
	names := make([]string, 5000)
	entries := map[string]string{}
	for i := range names {
		names[i] = fmt.Sprintf("node-%d.region.internal", i)
		entries[names[i]] = "home"
	}
	for _, shards := range []int{1, 16, 1024} {
		table := NewTable[string](shards)
		table.Replace(entries)
		b.Run(fmt.Sprintf("lookups/shards=%d", shards), func(b *testing.B) {
			for b.Loop() {
				for _, name := range names {
					if _, ok := table.Get(name); !ok {
						b.Fatal(name)
					}
				}
			}
		})
		b.Run(fmt.Sprintf("change/shards=%d", shards), func(b *testing.B) {
			cluster := "home"
			for b.Loop() {
				cluster, entries[names[0]] = entries[names[0]], cluster
				table.Set(names[0], fmt.Sprint(cluster))
				table.Set(names[0], "west")
			}
		})
	}
}
