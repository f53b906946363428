package snapshot

import (
	"math/bits"
	"slices"
)

// index is an immutable hash table. Between two requests other programs use the
// processor's caches, so what a lookup costs is how much memory it touches: here
// mostly one slot and the key. The copy that a change needs is one block. Hashes
// come from outside and are not 0.
type index[V any] struct {
	// slots are a power of two; a third of them at least is free. An entry whose
	// slot is taken is in the next that is free.
	slots []slot[V]
	used  int
}

type slot[V any] struct {
	// hash is 0 in a free slot.
	hash  uint64
	key   string
	value V
}

// newIndex returns an index to which so many entries are put.
func newIndex[V any](entries int) *index[V] {
	return &index[V]{slots: make([]slot[V], slotsFor(entries))}
}

func slotsFor(entries int) int {
	return max(8, 1<<bits.Len(uint(entries+entries/2)))
}

// guess returns a slot with the hash, or a free one if there is none.
func (x *index[V]) guess(hash uint64) *slot[V] {
	mask := uint64(len(x.slots) - 1)
	i := hash & mask
	for x.slots[i].hash != hash && x.slots[i].hash != 0 {
		i = (i + 1) & mask
	}
	return &x.slots[i]
}

// find returns the slot of the key, or else the free one where it would be put.
func (x *index[V]) find(hash uint64, key string) *slot[V] {
	mask := uint64(len(x.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if s := &x.slots[i]; s.hash == 0 || (s.hash == hash && s.key == key) {
			return s
		}
	}
}

// put adds or changes an entry. Only whoever has just made the index may do so.
func (x *index[V]) put(entry slot[V]) {
	s := x.find(entry.hash, entry.key)
	if s.hash == 0 {
		x.used++
	}
	*s = entry
}

// grown returns the index, or one with the same entries, that has a slot for one
// more.
func (x *index[V]) grown() *index[V] {
	if slotsFor(x.used+1) <= len(x.slots) {
		return x
	}
	larger := newIndex[V](x.used + 1)
	larger.putAll(x, nil)
	return larger
}

// with returns the index with an entry added or changed.
func (x *index[V]) with(entry slot[V]) *index[V] {
	after := x.grown()
	if after == x {
		after = &index[V]{slots: slices.Clone(x.slots), used: x.used}
	}
	after.put(entry)
	return after
}

// without returns the index without one of its slots.
func (x *index[V]) without(gone *slot[V]) *index[V] {
	after := newIndex[V](x.used - 1)
	after.putAll(x, gone)
	return after
}

func (x *index[V]) putAll(from *index[V], but *slot[V]) {
	for i := range from.slots {
		if s := &from.slots[i]; s.hash != 0 && s != but {
			x.put(*s)
		}
	}
}
