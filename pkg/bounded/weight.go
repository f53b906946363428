package bounded

const (
	// perItem is about what an item of a list, or an object that a watch brings,
	// takes in memory beside its text: {} is two bytes, and a claim has a thousand.
	perItem = 1 << 10
	// perValue is about what any other value takes beside its text.
	perValue = 64
)

// raw is the key of what is kept as text: who manages which fields of an object.
const raw = "fieldsV1"

// scale estimates what it takes to hold JSON once it is decoded, in bytes. Text
// alone says little: a list of {} takes two hundred times as much. It need not
// understand what is no JSON, for nothing of that is held.
type scale struct {
	// typed is true where objects are decoded into types of their own, which keep
	// what is below the key raw as text.
	typed bool

	// weight is that of all so far, documents is how many have begun, and document
	// is the weight of the present one.
	weight, document int64
	documents        int64

	depth, quiet     int
	inText, escaped  bool
	inList, afterKey bool
	// matched is how much of raw the present text begins with, -1 if it does not.
	matched int
}

// add weighs what comes next.
func (s *scale) add(text []byte) {
	s.weight += int64(len(text))
	begun := 0 // where in text the present document begins
	for i, c := range text {
		switch {
		case s.escaped:
			s.escaped = false
		case s.inText:
			s.within(c)
		case c == '"':
			s.inText, s.afterKey, s.matched = true, false, 0
		case c == '{' || c == '[':
			if s.depth <= 0 {
				s.depth, s.quiet, s.document, begun = 0, 0, 0, i
			}
			s.open(c)
		case c == '}' || c == ']':
			if s.depth--; s.depth <= s.quiet {
				s.quiet = 0
			}
		case c == ',':
			s.afterKey = false
			s.value(perValue)
		}
	}
	s.document += int64(len(text) - begun)
}

// within follows a text.
func (s *scale) within(c byte) {
	switch {
	case c == '\\':
		s.escaped, s.matched = true, -1
	case c == '"':
		s.inText, s.afterKey = false, s.matched == len(raw)
	case s.matched >= 0 && s.matched < len(raw) && raw[s.matched] == c:
		s.matched++
	default:
		s.matched = -1
	}
}

func (s *scale) open(c byte) {
	switch {
	case s.depth == 0:
		s.documents++
		s.value(perItem)
	case s.depth == 2 && s.inList && c == '{':
		s.value(perItem)
	default:
		s.value(perValue)
	}
	if s.depth == 1 {
		s.inList = c == '['
	}
	if s.typed && s.afterKey && c == '{' && s.quiet == 0 {
		s.quiet = s.depth
	}
	s.afterKey = false
	s.depth++
}

func (s *scale) value(weight int64) {
	if s.quiet == 0 {
		s.weight += weight
		s.document += weight
	}
}
