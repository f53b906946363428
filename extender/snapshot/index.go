package snapshot

import (
	"math/bits"
	"slices"
)

// index is an immutable hash table. Between two requests other programs use the
// processor's caches, so what a lookup costs is how much memory it touches: here a
// word in a small table, and an entry and its key, which are next to those that
// came with it. Hashes come from outside.
type index[V any] struct {
	// slots are a power of two; a third of them at least is 0, which is free. The
	// others are the upper half of a hash and 1 + the place of its entry. An entry
	// whose slot is taken has the next that is free.
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

// newIndex returns an index to which so many entries are put.
func newIndex[V any](entries int) *index[V] {
	return &index[V]{slots: make([]uint64, slotsFor(entries)), entries: make([]entry[V], 0, entries)}
}

func slotsFor(entries int) int {
	return max(8, 1<<bits.Len(uint(entries+entries/2)))
}

// guess returns the place of an entry that probably has the hash; missing if there
// is none.
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

// find returns the place of the key's entry; missing if there is none.
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

// add adds an entry whose key is not there. Only whoever has just made the index
// may do so, and it must have room.
func (x *index[V]) add(e entry[V]) {
	mask := uint64(len(x.slots) - 1)
	i := e.hash & mask
	for x.slots[i] != 0 {
		i = (i + 1) & mask
	}
	x.entries = append(x.entries, e)
	x.slots[i] = e.hash&upperHalf | uint64(len(x.entries))
}

// with returns the index with an entry added or changed.
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

// without returns the index without the entry at a place.
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
