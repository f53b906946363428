// This file is the fast way to read a request: the text that kube-scheduler writes, without encoding/json. It is long because
// its second half is the scanner that the first half reads with, and neither is of use without the other.

package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// Scan reads an ExtenderArgs in the form that kube-scheduler writes; it returns false for any other
// body, which Decode must read. Its result is that of Decode, in a fraction of the time and with
// memory of a few times the body. names, which may be nil, is an empty slice whose capacity is used
// for the names of the request.
func Scan(body []byte, names []string) (Request, bool) {
	request := Request{Names: names}
	var pod podJSON
	var hasPod, hasNames bool
	s := &scanner{text: body}
	ok := s.object(
		member{"Pod", func() bool { hasPod = true; return s.pod(&pod) }},
		member{"Nodes", func() bool {
			request.NodeMode = !s.null()
			return !request.NodeMode || s.nodes(&request)
		}},
		member{"NodeNames", func() bool {
			hasNames = !s.null()
			return !hasNames || s.names(&request)
		}},
	)
	// If the body has both lists, Decode decides which of them counts.
	if !ok || !s.end() || !hasPod || hasNames == request.NodeMode {
		return Request{}, false
	}
	request.Pod = podOf(&pod)
	return request, true
}

// nodes consumes a NodeList.
func (s *scanner) nodes(to *Request) bool {
	to.Nodes = []Node{}
	return s.object(member{"items", func() bool {
		return s.null() || s.list(func() bool { return s.node(to) })
	}})
}

func (s *scanner) node(to *Request) bool {
	s.next()
	start := s.at
	var name string
	var labels map[string]string
	ok := s.object(member{"metadata", func() bool {
		return s.object(
			member{"name", func() bool { return s.into(&name) }},
			member{"labels", func() bool {
				cluster, found, ok := s.entry(keys.Cluster)
				if found {
					labels = map[string]string{keys.Cluster: cluster}
				}
				return ok
			}},
		)
	}})
	if !ok || name == "" {
		return false
	}
	to.addNode(name, locality.OfNode(labels), s.text[start:s.at:s.at])
	return true
}

func (s *scanner) pod(to *podJSON) bool {
	return s.object(
		member{"metadata", func() bool { return s.podMeta(&to.Metadata) }},
		member{"spec", func() bool { return s.podSpec(&to.Spec) }},
	)
}

func (s *scanner) podSpec(to *podSpecJSON) bool {
	return s.object(
		member{"volumes", func() bool {
			return s.list(func() bool { return s.volume(&to.Volumes) })
		}},
		member{"affinity", func() bool {
			return s.object(member{"podAntiAffinity", func() bool {
				return s.object(
					member{"requiredDuringSchedulingIgnoredDuringExecution", func() bool { return s.count(&to.Affinity.Apart.Required) }},
					member{"preferredDuringSchedulingIgnoredDuringExecution", func() bool { return s.count(&to.Affinity.Apart.Preferred) }},
				)
			}})
		}},
		member{"topologySpreadConstraints", func() bool { return s.count(&to.Spread) }},
	)
}

// count consumes a list of objects of which only the number counts.
func (s *scanner) count(to *[]struct{}) bool {
	return s.list(func() bool {
		*to = append(*to, struct{}{})
		return s.next() == '{' && s.skip()
	})
}

func (s *scanner) podMeta(to *podMetaJSON) bool {
	return s.object(
		member{"namespace", func() bool { return s.into(&to.Namespace) }},
		member{"name", func() bool { return s.into(&to.Name) }},
		member{"uid", func() bool { return s.into(&to.UID) }},
		member{"annotations", func() bool {
			value, found, ok := s.entry(keys.Near)
			if found {
				to.Annotations = map[string]string{keys.Near: value}
			}
			return ok
		}},
		member{"ownerReferences", func() bool {
			return s.list(func() bool { return s.owner(&to.Owners) })
		}},
	)
}

func (s *scanner) owner(to *[]ownerJSON) bool {
	var owner ownerJSON
	ok := s.object(
		member{"apiVersion", func() bool { return s.into(&owner.APIVersion) }},
		member{"kind", func() bool { return s.into(&owner.Kind) }},
		member{"name", func() bool { return s.into(&owner.Name) }},
		member{"controller", func() bool {
			owner.Controller = s.next() == 't'
			return s.word("true") || s.word("false")
		}},
	)
	if owner.Controller {
		*to = append(*to, owner)
	}
	return ok
}

func (s *scanner) volume(to *[]volumeJSON) bool {
	var volume volumeJSON
	ok := s.object(
		member{"name", func() bool { return s.into(&volume.Name) }},
		member{"persistentVolumeClaim", func() bool {
			volume.Claim = &claimJSON{}
			return s.object(member{"claimName", func() bool { return s.into(&volume.Claim.ClaimName) }})
		}},
		member{"ephemeral", func() bool {
			volume.Ephemeral = &struct{}{}
			return s.next() == '{' && s.skip()
		}},
	)
	if volume.Claim != nil || volume.Ephemeral != nil {
		*to = append(*to, volume)
	}
	return ok
}

// minName is the least number of bytes of a node name in a list, with quotes and comma.
const minName = 4

// names consumes a list of plain node names. They are most of a request.
func (s *scanner) names(to *Request) bool {
	s.next()
	start := s.at
	rest := s.text[start:]
	// One string is made of the list and all names are substrings of it. In a request of
	// kube-scheduler only the list is left here, and no name contains a comma.
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

// ScanPreempt reads an ExtenderPreemptionArgs in the form that kube-scheduler writes, as Scan does
// an ExtenderArgs; false for any other body, which DecodePreempt must read.
func ScanPreempt(body []byte, names []string) (PreemptRequest, bool) {
	var pod podJSON
	var found []candidate
	var hasPod bool
	lists := 0
	s := &scanner{text: body}
	list := func(uid func(to *string) bool) func() bool {
		return func() bool {
			if s.null() {
				return true
			}
			lists++
			return s.candidates(&found, uid)
		}
	}
	ok := s.object(
		member{"Pod", func() bool { hasPod = true; return s.pod(&pod) }},
		member{"NodeNameToVictims", list(s.uidOfPod)},
		member{"NodeNameToMetaVictims", list(s.uidOfMetaPod)},
	)
	if !ok || !s.end() || !hasPod || lists != 1 {
		return PreemptRequest{}, false
	}
	slices.SortFunc(found, func(a, b candidate) int { return strings.Compare(a.name, b.name) })
	request := PreemptRequest{Pod: podOf(&pod), Names: slices.Grow(names, len(found)), Victims: make([]Victims, 0, len(found))}
	for i, c := range found {
		if i > 0 && c.name == found[i-1].name {
			return PreemptRequest{}, false
		}
		request.Names, request.Victims = append(request.Names, c.name), append(request.Victims, c.victims)
	}
	return request, true
}

type candidate struct {
	name    string
	victims Victims
}

// candidates consumes the victims of all candidates. uid consumes one victim.
func (s *scanner) candidates(to *[]candidate, uid func(to *string) bool) bool {
	return s.keys(func(name []byte) bool {
		found := candidate{name: string(name), victims: Victims{UIDs: []string{}}}
		ok := s.object(
			member{"Pods", func() bool {
				return s.null() || s.list(func() bool {
					var id string
					ok := uid(&id) && id != ""
					found.victims.UIDs = append(found.victims.UIDs, id)
					return ok
				})
			}},
			member{"NumPDBViolations", func() bool { return s.integer(&found.victims.NumPDBViolations) }},
		)
		*to = append(*to, found)
		return ok
	})
}

func (s *scanner) uidOfMetaPod(to *string) bool {
	return s.object(member{"UID", func() bool { return s.into(to) }})
}

func (s *scanner) uidOfPod(to *string) bool {
	return s.object(member{"metadata", func() bool {
		return s.object(member{"uid", func() bool { return s.into(to) }})
	}})
}

// integer consumes a number that is an int64.
func (s *scanner) integer(to *int64) bool {
	s.next()
	start := s.at
	if !s.skipNumber() {
		return false
	}
	number, err := strconv.ParseInt(string(s.text[start:s.at]), 10, 64)
	*to = number
	return err == nil
}

// maxDepth limits the nesting of values that a scanner skips. Objects of Kubernetes are far below
// it.
const maxDepth = 64

// scanner reads a JSON text once, from start to end. It accepts only what kube-scheduler writes:
// its methods return false for anything else, whether it is invalid or just unusual (a null, an
// escape in a key, a key that comes twice or in other letter case), and then encoding/json must
// decode the text. After false a scanner must not be used any more.
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

// takeLater consumes c, if it follows after white space.
func (s *scanner) takeLater(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

// end reports whether nothing is left.
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

// plain consumes a string of ASCII characters without escapes and returns the text between its
// quotes.
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

// Eight bytes are compared at a time: in each of these constants every byte is the same.
const (
	ones      = 0x0101010101010101
	highBits  = 0x80 * ones
	quotes    = '"' * ones
	escapes   = '\\' * ones
	printable = ' ' * ones
)

// special marks the bytes of eight that cannot be in a plain string, each by its highest bit. Bytes
// above the lowest mark may be marked falsely.
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

// member is an expected member of an object: read consumes its value.
type member struct {
	name string
	read func() bool
}

// object consumes an object that stands for a struct, and skips all members that are not listed. At
// most 8 may be listed.
func (s *scanner) object(members ...member) bool {
	var seen uint8
	return s.keys(func(key []byte) bool {
		for i, m := range members {
			if len(m.name) != len(key) || !alike(key, m.name) {
				continue
			}
			// In another letter case it is the same member for encoding/json; a second one
			// overwrites the first or adds to it.
			if string(key) != m.name || seen&(1<<i) != 0 {
				return false
			}
			seen |= 1 << i
			return m.read()
		}
		return s.skip()
	})
}

// alike reports whether the key may be the name in another letter case, which has the same length.
// It may also report that for some other keys.
func alike(key []byte, name string) bool {
	for i, c := range key {
		if c|0x20 != name[i]|0x20 {
			return false
		}
	}
	return true
}

// entry consumes an object that stands for a map of strings and copies the value of that key; found
// is false if there is none.
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

// keys consumes an object with plain keys. It calls read for each of them, which consumes the
// value.
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

// list consumes an array. It calls read for each item, which consumes the item.
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

// skip consumes a value of any type, and checks that it is valid.
func (s *scanner) skip() bool {
	switch c := s.next(); c {
	case '"':
		return s.skipString()
	case '{', '[':
		if s.depth++; s.depth > maxDepth {
			return false
		}
		s.at++
		ok := s.skipMembers(c == '{')
		s.depth--
		return ok
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.skipNumber()
}

// skipMembers consumes the rest of an object, or of an array.
func (s *scanner) skipMembers(object bool) bool {
	closing := byte(']')
	if object {
		closing = '}'
	}
	if s.take(closing) {
		return true
	}
	for {
		if object && (s.next() != '"' || !s.skipString() || !s.take(':')) {
			return false
		}
		if !s.skip() {
			return false
		}
		if !s.take(',') {
			return s.take(closing)
		}
	}
}

// skipString consumes a string that starts here. Like encoding/json it accepts any bytes beyond
// ASCII.
func (s *scanner) skipString() bool {
	for s.at++; ; {
		s.toSpecial()
		if s.at == len(s.text) {
			return false
		}
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return true
		case c >= 0x80:
			s.at++
		case c != '\\' || !s.skipEscape():
			return false
		}
	}
}

func (s *scanner) skipEscape() bool {
	rest := s.text[s.at+1:]
	if len(rest) == 0 {
		return false
	}
	switch rest[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return true
	case 'u':
		if len(rest) < 5 {
			return false
		}
		for _, c := range rest[1:5] {
			if lower := c | 0x20; (c < '0' || c > '9') && (lower < 'a' || lower > 'f') {
				return false
			}
		}
		s.at += 6
		return true
	}
	return false
}

// skipNumber consumes a number as JSON defines it.
func (s *scanner) skipNumber() bool {
	s.takeHere('-')
	if !s.takeHere('0') && !s.skipDigits() {
		return false
	}
	if s.takeHere('.') && !s.skipDigits() {
		return false
	}
	if s.takeHere('e') || s.takeHere('E') {
		_ = s.takeHere('+') || s.takeHere('-')
		return s.skipDigits()
	}
	return true
}

// takeHere consumes c, if it comes next without white space before it.
func (s *scanner) takeHere(c byte) bool {
	if s.at == len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) skipDigits() bool {
	start := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at > start
}
