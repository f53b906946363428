package snapshot

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A change copies one shard. Many shards keep that small where much changes; few
// keep lookups fast where little does, and one where a decision looks up thousands
// of keys.
const (
	manyShards = 1024
	fewShards  = 16
	oneShard   = 1
)

// Table is a map from string to V for many readers and few writers. A reader
// never waits: each shard is an immutable index behind an atomic pointer, and a
// write replaces the one shard that its key is in. Values must not be changed
// after they are stored. The zero value is not usable: call NewTable.
type Table[V any] struct {
	seed    maphash.Seed
	writers sync.Mutex
	shards  []atomic.Pointer[index[V]]
	size    atomic.Int64
	// same says whether a value may stay in place of a new one; nil: never.
	same func(old, value V) bool
}

// NewTable returns an empty table of so many shards.
func NewTable[V any](shards int) *Table[V] {
	t := &Table[V]{seed: maphash.MakeSeed(), shards: make([]atomic.Pointer[index[V]], shards)}
	t.Replace(nil)
	return t
}

// NewSteadyTable returns an empty table that a value which equals the one before
// does not change: objects often change in what does not matter here.
func NewSteadyTable[V comparable](shards int) *Table[V] {
	t := NewTable[V](shards)
	t.same = func(old, value V) bool { return old == value }
	return t
}

// Get returns the value of key, and whether there is one.
func (t *Table[V]) Get(key string) (V, bool) {
	hash := t.hash(key)
	shard := t.shard(hash).Load()
	if place := shard.find(hash, key); place != missing {
		return shard.entries[place].value, true
	}
	var none V
	return none, false
}

// batch is how many lookups GetAll has under way at once.
const batch = 32

// GetAll gets many keys and calls with for each of them, in their order. It goes
// through each step of many lookups before the next step, so that the processor
// waits for the memory of many of them at once.
func (t *Table[V]) GetAll(keys []string, with func(i int, value V, ok bool)) {
	var hashes [batch]uint64
	var shards [batch]*index[V]
	var places [batch]int
	for start := 0; start < len(keys); start += batch {
		some := keys[start:min(start+batch, len(keys))]
		for i, key := range some {
			hashes[i] = t.hash(key)
		}
		for i := range some {
			shards[i] = t.shard(hashes[i]).Load()
			places[i] = shards[i].guess(hashes[i])
		}
		for i, key := range some {
			if places[i] != missing && shards[i].entries[places[i]].key != key {
				places[i] = shards[i].find(hashes[i], key)
			}
		}
		for i := range some {
			if places[i] == missing {
				var none V
				with(start+i, none, false)
				continue
			}
			with(start+i, shards[i].entries[places[i]].value, true)
		}
	}
}

// Len returns the number of entries.
func (t *Table[V]) Len() int {
	return int(t.size.Load())
}

// Set stores value under key.
func (t *Table[V]) Set(key string, value V) {
	if t.same != nil {
		// It then counts as set now, before any write that is on its way.
		if old, ok := t.Get(key); ok && t.same(old, value) {
			return
		}
	}
	t.writers.Lock()
	defer t.writers.Unlock()
	hash := t.hash(key)
	at := t.shard(hash)
	before := at.Load()
	after := before.with(entry[V]{hash: hash, key: key, value: value})
	at.Store(after)
	t.size.Add(int64(len(after.entries) - len(before.entries)))
}

// Delete removes key, if it is there.
func (t *Table[V]) Delete(key string) {
	t.writers.Lock()
	defer t.writers.Unlock()
	hash := t.hash(key)
	at := t.shard(hash)
	before := at.Load()
	if place := before.find(hash, key); place != missing {
		at.Store(before.without(place))
		t.size.Add(-1)
	}
}

// Replace makes entries the whole content. A reader meanwhile sees each key
// either as it was or as it will be.
func (t *Table[V]) Replace(entries map[string]V) {
	t.writers.Lock()
	defer t.writers.Unlock()
	shards := make([][]entry[V], len(t.shards))
	// Requests name nodes in an order not far from this one, so keys are laid out in
	// it too, one behind the other.
	sorted := slices.Sorted(maps.Keys(entries))
	text := strings.Join(sorted, "")
	for _, key := range sorted {
		value := entries[key]
		key, text = text[:len(key)], text[len(key):]
		hash := t.hash(key)
		at := t.shardOf(hash)
		shards[at] = append(shards[at], entry[V]{hash: hash, key: key, value: value})
	}
	for i := range shards {
		shard := newIndex[V](len(shards[i]))
		shard.addAll(shards[i])
		t.shards[i].Store(shard)
	}
	t.size.Store(int64(len(entries)))
}

func (t *Table[V]) shard(hash uint64) *atomic.Pointer[index[V]] {
	return &t.shards[t.shardOf(hash)]
}

// shardOf takes other bits of the hash than an index does.
func (t *Table[V]) shardOf(hash uint64) uint64 {
	if len(t.shards) == oneShard {
		return 0
	}
	return (hash >> 32) % uint64(len(t.shards))
}

func (t *Table[V]) hash(key string) uint64 {
	return maphash.String(t.seed, key)
}
