package wire

import (
	"encoding/binary"
	"encoding/json"
	"math/bits"
)

// maxDepth bounds how deep the values that a scanner skips may nest. Those of
// Kubernetes are far from it.
const maxDepth = 64

// scanner reads a JSON text once, from start to end. It knows only what
// kube-scheduler writes: its methods return false at anything else, be it wrong
// or just unusual (a null, an escape in a key, a key that comes twice or in other
// letters), and then encoding/json must say what the text means. After false a
// scanner is of no more use.
type scanner struct {
	text  []byte
	at    int
	depth int
}

// next skips white space and returns the byte after it; 0 at the end.
func (s *scanner) next() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// take consumes c, if it comes next.
func (s *scanner) take(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return s.takeLater(c)
}

// takeLater consumes c, if it comes after white space.
func (s *scanner) takeLater(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

// end says that nothing is left.
func (s *scanner) end() bool {
	s.next()
	return s.at == len(s.text)
}

// word consumes a literal.
func (s *scanner) word(literal string) bool {
	if s.next(); len(s.text)-s.at < len(literal) || string(s.text[s.at:s.at+len(literal)]) != literal {
		return false
	}
	s.at += len(literal)
	return true
}

// plain consumes a string of ASCII characters without escapes and returns what
// is between its quotes.
func (s *scanner) plain() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	start := s.at
	s.toSpecial()
	if s.at == len(s.text) || s.text[s.at] != '"' {
		return nil, false
	}
	s.at++
	return s.text[start : s.at-1], true
}

// into consumes any string and decodes it.
func (s *scanner) into(to *string) bool {
	if s.next() != '"' {
		return false
	}
	start := s.at
	if value, ok := s.plain(); ok {
		*to = string(value)
		return true
	}
	s.at = start
	return s.skipString() && json.Unmarshal(s.text[start:s.at], to) == nil
}

// Eight bytes at a time: in each of these every byte is the same.
const (
	ones      = 0x0101010101010101
	highBits  = 0x80 * ones
	quotes    = '"' * ones
	escapes   = '\\' * ones
	printable = ' ' * ones
)

// special marks the bytes of eight that cannot be in a plain string, each by its
// highest bit. Bytes above the lowest mark may be marked in error.
func special(eight uint64) uint64 {
	quote, escape := eight^quotes, eight^escapes
	return ((quote-ones)&^quote | (escape-ones)&^escape | (eight-printable)&^eight | eight) & highBits
}

// toSpecial moves to the next byte that ends a plain string, or to the end.
func (s *scanner) toSpecial() {
	at := s.at
	for ; at+8 <= len(s.text); at += 8 {
		if marks := special(binary.LittleEndian.Uint64(s.text[at:])); marks != 0 {
			s.at = at + bits.TrailingZeros64(marks)/8
			return
		}
	}
	for ; at < len(s.text); at++ {
		if c := s.text[at]; c < ' ' || c == '"' || c == '\\' || c >= 0x80 {
			break
		}
	}
	s.at = at
}
