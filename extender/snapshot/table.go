package snapshot

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Numbers of shards. A change copies one shard. Many shards make that cheap for tables that change
// often; few make lookups fast in tables that rarely change, and a single one where a decision
// looks up thousands of keys.
const (
	manyShards = 1024
	fewShards  = 16
	oneShard   = 1
)

// Table is a map from string to V for many readers and few writers. A reader never waits: each
// shard is an immutable index behind an atomic pointer, and a write replaces the shard of its key.
// Values must not be changed after they are stored. Use NewTable; the zero value is not usable.
type Table[V any] struct {
	seed    maphash.Seed
	writers sync.Mutex
	shards  []atomic.Pointer[index[V]]
	size    atomic.Int64
	// same reports whether an old value may stay instead of a new one; nil: never.
	same func(old, value V) bool
}

// NewTable returns an empty table with so many shards.
func NewTable[V any](shards int) *Table[V] {
	t := &Table[V]{seed: maphash.MakeSeed(), shards: make([]atomic.Pointer[index[V]], shards)}
	t.Replace(nil)
	return t
}

// NewSteadyTable returns an empty table that ignores writes of an equal value: objects often change
// in fields that are not stored here.
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

// batch is how many lookups GetAll interleaves.
const batch = 32

// GetAll looks up many keys and calls with for each of them, in their order. It does each step for
// many lookups before the next step, so that the processor waits for the memory of many of them at
// once.
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
		// This counts as a write now, before any write that is under way.
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

// Replace replaces the whole content by entries. A reader meanwhile gets for each key either the
// old or the new value.
func (t *Table[V]) Replace(entries map[string]V) {
	t.writers.Lock()
	defer t.writers.Unlock()
	shards := make([][]entry[V], len(t.shards))
	// Requests name nodes in nearly this order, so the keys are stored in it, one behind the other.
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

// shardOf uses other bits of the hash than an index does.
func (t *Table[V]) shardOf(hash uint64) uint64 {
	if len(t.shards) == oneShard {
		return 0
	}
	return (hash >> 32) % uint64(len(t.shards))
}

func (t *Table[V]) hash(key string) uint64 {
	return maphash.String(t.seed, key)
}

// index is an immutable hash table. Between two requests other programs use the processor's caches,
// so the cost of a lookup is how much memory it touches: here a word in a small table, and an entry
// with its key, which are stored next to those that were added together with it. The caller
// computes the hashes.
type index[V any] struct {
	// slots are as many as a power of two; at least a third of them are 0, which means free. The
	// others have the upper half of a hash and 1 + the position of its entry. An entry whose slot
	// is taken uses the next free one.
	slots   []uint64
	entries []entry[V]
}

type entry[V any] struct {
	hash  uint64
	key   string
	value V
}

const (
	upperHalf = 0xffffffff << 32
	lowerHalf = 0xffffffff
	missing   = -1
)

// newIndex returns an empty index for so many entries.
func newIndex[V any](entries int) *index[V] {
	return &index[V]{slots: make([]uint64, slotsFor(entries)), entries: make([]entry[V], 0, entries)}
}

func slotsFor(entries int) int {
	return max(8, 1<<bits.Len(uint(entries+entries/2)))
}

// guess returns the position of an entry that probably has the hash; missing if there is none.
func (x *index[V]) guess(hash uint64) int {
	mask := uint64(len(x.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch slot := x.slots[i]; {
		case slot == 0:
			return missing
		case slot&upperHalf == hash&upperHalf:
			return int(slot&lowerHalf) - 1
		}
	}
}

// find returns the position of the key's entry; missing if there is none.
func (x *index[V]) find(hash uint64, key string) int {
	mask := uint64(len(x.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		slot := x.slots[i]
		if slot == 0 {
			return missing
		}
		if place := int(slot&lowerHalf) - 1; slot&upperHalf == hash&upperHalf && x.entries[place].key == key {
			return place
		}
	}
}

// add adds an entry whose key is not in the index. Only the creator of the index may call it, and
// the index must have room.
func (x *index[V]) add(e entry[V]) {
	mask := uint64(len(x.slots) - 1)
	i := e.hash & mask
	for x.slots[i] != 0 {
		i = (i + 1) & mask
	}
	x.entries = append(x.entries, e)
	x.slots[i] = e.hash&upperHalf | uint64(len(x.entries))
}

// with returns a copy of the index with an entry added or changed.
func (x *index[V]) with(e entry[V]) *index[V] {
	if place := x.find(e.hash, e.key); place != missing {
		entries := slices.Clone(x.entries)
		entries[place].value = e.value
		return &index[V]{slots: x.slots, entries: entries}
	}
	after := newIndex[V](len(x.entries) + 1)
	if len(after.slots) == len(x.slots) {
		copy(after.slots, x.slots)
		after.entries = append(after.entries, x.entries...)
	} else {
		after.addAll(x.entries)
	}
	after.add(e)
	return after
}

// without returns a copy of the index without the entry at a position.
func (x *index[V]) without(place int) *index[V] {
	after := newIndex[V](len(x.entries) - 1)
	after.addAll(x.entries[:place])
	after.addAll(x.entries[place+1:])
	return after
}

func (x *index[V]) addAll(entries []entry[V]) {
	for _, e := range entries {
		x.add(e)
	}
}
