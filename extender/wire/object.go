package wire

// member is a member of an object that matters: read consumes its value.
type member struct {
	name string
	read func() bool
}

// object consumes an object that stands for a struct, and skips all members that
// are not listed. There may be up to 8 of those.
func (s *scanner) object(members ...member) bool {
	var seen uint8
	return s.keys(func(key []byte) bool {
		for i, m := range members {
			if len(m.name) != len(key) || !alike(key, m.name) {
				continue
			}
			// In other letters it is the same member for encoding/json; one
			// that comes twice overwrites or adds to the first.
			if string(key) != m.name || seen&(1<<i) != 0 {
				return false
			}
			seen |= 1 << i
			return m.read()
		}
		return s.skip()
	})
}

// alike says whether the key may be the name in other letters, which have the
// same length. Some that are not alike count as alike.
func alike(key []byte, name string) bool {
	for i, c := range key {
		if c|0x20 != name[i]|0x20 {
			return false
		}
	}
	return true
}

// entry consumes an object that stands for a map of strings and copies the entry
// of that key; found is false if there is none.
func (s *scanner) entry(key string) (value string, found, ok bool) {
	ok = s.keys(func(at []byte) bool {
		if string(at) != key {
			return s.next() == '"' && s.skipString()
		}
		if found {
			return false
		}
		found = true
		return s.into(&value)
	})
	return value, found, ok
}

// keys consumes an object with plain keys. read is called for each of them and
// consumes its value.
func (s *scanner) keys(read func(key []byte) bool) bool {
	if !s.take('{') {
		return false
	}
	if s.take('}') {
		return true
	}
	for {
		key, ok := s.plain()
		if !ok || !s.take(':') || !read(key) {
			return false
		}
		if !s.take(',') {
			return s.take('}')
		}
	}
}

// list consumes an array. read is called for each item and consumes it.
func (s *scanner) list(read func() bool) bool {
	if !s.take('[') {
		return false
	}
	if s.take(']') {
		return true
	}
	for {
		if !read() {
			return false
		}
		if !s.take(',') {
			return s.take(']')
		}
	}
}

// null consumes a null, if that comes next.
func (s *scanner) null() bool {
	return s.next() == 'n' && s.word("null")
}
