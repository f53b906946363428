package snapshot

import (
	"hash/maphash"
	"maps"
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
// never waits: each shard is an immutable map behind an atomic pointer, and a
// write replaces the one shard that its key is in. Values must not be changed
// after they are stored. The zero value is not usable: call NewTable.
type Table[V any] struct {
	seed    maphash.Seed
	writers sync.Mutex
	shards  []atomic.Pointer[map[string]V]
	size    atomic.Int64
	// same says whether a value may stay in place of a new one; nil: never.
	same func(old, value V) bool
}

// NewTable returns an empty table of so many shards.
func NewTable[V any](shards int) *Table[V] {
	return &Table[V]{seed: maphash.MakeSeed(), shards: make([]atomic.Pointer[map[string]V], shards)}
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
	if shard := t.shards[t.shardOf(key)].Load(); shard != nil {
		value, ok := (*shard)[key]
		return value, ok
	}
	var none V
	return none, false
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
	t.change(key, func(shard map[string]V) { shard[key] = value })
}

// Delete removes key, if it is there.
func (t *Table[V]) Delete(key string) {
	if _, ok := t.Get(key); ok {
		t.change(key, func(shard map[string]V) { delete(shard, key) })
	}
}

func (t *Table[V]) change(key string, edit func(map[string]V)) {
	t.writers.Lock()
	defer t.writers.Unlock()
	at := &t.shards[t.shardOf(key)]
	shard := map[string]V{}
	if old := at.Load(); old != nil {
		shard = maps.Clone(*old)
	}
	before := len(shard)
	edit(shard)
	at.Store(&shard)
	t.size.Add(int64(len(shard) - before))
}

// Replace makes entries the whole content. A reader meanwhile sees each key
// either as it was or as it will be.
func (t *Table[V]) Replace(entries map[string]V) {
	t.writers.Lock()
	defer t.writers.Unlock()
	shards := make([]map[string]V, len(t.shards))
	for key, value := range entries {
		i := t.shardOf(key)
		if shards[i] == nil {
			shards[i] = map[string]V{}
		}
		shards[i][key] = value
	}
	for i := range shards {
		if shards[i] == nil {
			t.shards[i].Store(nil)
			continue
		}
		t.shards[i].Store(&shards[i])
	}
	t.size.Store(int64(len(entries)))
}

func (t *Table[V]) shardOf(key string) uint64 {
	if len(t.shards) == oneShard {
		return 0
	}
	return maphash.String(t.seed, key) % uint64(len(t.shards))
}
