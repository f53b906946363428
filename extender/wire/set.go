package wire

import (
	"hash/maphash"
	"math/bits"
)

var seed = maphash.MakeSeed()

// set is a set of items of one list of strings, by their place in it. It takes a
// fraction of the time and memory of a map. The zero value is empty.
type set struct {
	// slots hold 1 + the place of an item, or 0. Items whose slot is taken are in
	// the next that is free.
	slots []uint32
}

// add adds the i-th item of list, which must always be the same; false if an equal
// one was there.
func (s *set) add(list []string, i int) bool {
	if s.slots == nil {
		// At least half of the slots stay free.
		s.slots = make([]uint32, 2<<bits.Len(uint(len(list))))
	}
	mask := uint64(len(s.slots) - 1)
	for at := maphash.String(seed, list[i]) & mask; ; at = (at + 1) & mask {
		switch taken := s.slots[at]; {
		case taken == 0:
			s.slots[at] = uint32(i) + 1
			return true
		case list[taken-1] == list[i]:
			return false
		}
	}
}
