package snapshot

import "slices"

// few is how many names are found faster one after another than by their hash.
const few = 16

// names is a set of names that a user writes, so there can be very many. The zero
// value is empty.
type names struct {
	list []string
	// set has all names once there are many.
	set map[string]struct{}
}

// add adds a name; false if it was there.
func (n *names) add(name string) bool {
	if len(n.list) < few {
		if slices.Contains(n.list, name) {
			return false
		}
		n.list = append(n.list, name)
		return true
	}
	if n.set == nil {
		n.set = map[string]struct{}{}
		for _, earlier := range n.list {
			n.set[earlier] = struct{}{}
		}
	}
	before := len(n.set)
	n.set[name] = struct{}{}
	return len(n.set) > before
}
