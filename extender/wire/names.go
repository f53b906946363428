package wire

import "bytes"

// minName is how many bytes a node name takes at least in a list, with quotes and
// comma.
const minName = 4

// names consumes a list of plain node names.
func (s *scanner) names(to *Request) bool {
	s.next()
	start := s.at
	rest := s.text[start:]
	// One copy is cut into all names. In the requests of kube-scheduler nothing
	// but the list is left here, and no name has a comma.
	text := string(rest)
	to.Names = make([]string, 0, min(bytes.Count(rest, []byte(",")), len(rest)/minName)+1)
	ok := s.list(func() bool {
		name, ok := s.plain()
		if !ok || len(name) == 0 {
			return false
		}
		end := s.at - 1 - start
		to.Names = append(to.Names, text[end-len(name):end])
		return true
	})
	to.list = s.text[start:s.at]
	return ok
}
