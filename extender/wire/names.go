package wire

import (
	"bytes"
	"slices"
)

// minName is how many bytes a node name takes at least in a list, with quotes and
// comma.
const minName = 4

// names consumes a list of plain node names. They are most of a request.
func (s *scanner) names(to *Request) bool {
	s.next()
	start := s.at
	rest := s.text[start:]
	// One copy is cut into all names. In the requests of kube-scheduler nothing
	// but the list is left here, and no name has a comma.
	text := string(rest)
	names := slices.Grow(to.Names, min(bytes.Count(rest, []byte(",")), len(rest)/minName)+1)
	if !s.take('[') {
		return false
	}
	for more := !s.take(']'); more; {
		name, plain := s.plain()
		if !plain || len(name) == 0 {
			return false
		}
		end := s.at - 1 - start
		names = append(names, text[end-len(name):end])
		if more = s.take(','); !more && !s.take(']') {
			return false
		}
	}
	to.Names, to.list = names, s.text[start:s.at]
	return true
}
