package bounded

// plainKeys are the keys of objects, and of arrays, that hold no quantity wherever they
// stand: what is in them must arrive as it is, be it 12e345678. In a map of quantities,
// whose keys another cluster may choose, an object is an error.
var plainKeys = map[string]bool{
	"metadata": true, "labels": true, "annotations": true, "matchLabels": true, "nodeSelector": true,
	"claimRef": true, "involvedObject": true, "home": true,
}

// longestKey is as long as the longest of plainKeys.
const longestKey = 16

// place follows where in a JSON text a reader is. Of text that is no JSON it says
// nothing that matters: nobody can decode it.
type place struct {
	open     []frame
	inString bool
	// value is set where the next string or number is no key, plain where that is read as
	// no quantity: keys are none, and no array has quantities for elements.
	value, plain bool
	// key is the last key, unless it is odd: too long, or with an escape.
	key []byte
	odd bool
}

// frame is an object or array that is open.
type frame struct{ array, plain bool }

// text takes a part of a string that is no quantity.
func (p *place) text(part []byte) {
	switch {
	case p.value || p.odd:
	case len(p.key)+len(part) > longestKey:
		p.odd = true
	default:
		p.key = append(p.key, part...)
	}
}

// other takes a byte that is in no word; escaped if a backslash is before it.
func (p *place) other(c byte, escaped bool) {
	if p.inString {
		if c == '"' && !escaped {
			p.inString = false
		} else {
			p.odd = p.odd || c == '\\'
		}
		return
	}
	switch c {
	case '"':
		p.inString = true
		if !p.value {
			p.key, p.odd = p.key[:0], false
		}
	case ':':
		p.value = true
	case ',':
		p.value = p.inArray()
	case '{', '[':
		p.open = append(p.open, frame{array: c == '[', plain: p.beginsPlain()})
		p.value = c == '['
	case '}', ']':
		if len(p.open) > 0 {
			p.open = p.open[:len(p.open)-1]
		}
		p.value = p.inArray()
	default:
		return
	}
	p.plain = false
	if len(p.open) > 0 {
		top := p.open[len(p.open)-1]
		p.plain = !p.value || top.array || top.plain
	}
}

func (p *place) inArray() bool { return len(p.open) > 0 && p.open[len(p.open)-1].array }

// beginsPlain says whether an object or array that begins here holds no quantity.
func (p *place) beginsPlain() bool {
	if len(p.open) == 0 {
		return false
	}
	top := p.open[len(p.open)-1]
	return top.plain || !top.array && p.value && !p.odd && plainKeys[string(p.key)]
}
