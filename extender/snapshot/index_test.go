package snapshot

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func contents(x *index[int]) map[string]int {
	all := map[string]int{}
	for _, e := range x.entries {
		all[e.key] = e.value
	}
	return all
}

// The hashes here are so bad that many keys share one, and that most slots are
// taken when a key comes.
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
