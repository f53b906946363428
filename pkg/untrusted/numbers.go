package untrusted

import "io"

const (
	// maxDigits and maxExponent are the most digits of a number, and of its
	// exponent. To compare two quantities Kubernetes writes out all digits of both:
	// of 1e1000000000 that takes gigabytes, and for longer ones already reading does.
	maxDigits   = 64
	maxExponent = 4
	// spoiler replaces the first byte of a number with too many digits. No number contains it, and
	// a string may: so a quantity cannot be read, and any other string of that form, where one that
	// is read as a quantity could stand, only looks different.
	spoiler = '_'
)

// maxHeld is how many bytes of a word are read before it is judged.
const maxHeld = 4096

// numbers reads JSON and makes invalid each number, in quotes or not, that has more digits than a
// size could have, wherever a quantity may stand. Digits that are written as escapes are made
// invalid as well: API servers escape neither digits nor letters.
type numbers struct {
	reader io.Reader
	buffer []byte
	// ready has the bytes that may be read, of those in made; err is the result after them.
	ready, made []byte
	err         error
	// held is the end of a word that is made invalid if it is a number.
	held   []byte
	place  place
	state  state
	digits int
	// escape is how many bytes of \u00xy were read, high is its x.
	escape int
	high   byte
}

// state is the state of the reader within a word.
type state int

const (
	between  state = iota // between words
	mantissa              // in what may be a number
	unit                  // after a letter of its unit
	exponent              // after its e
	other                 // in a word that is no number
)

// Read implements io.Reader.
func (r *numbers) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.buffer == nil {
		r.buffer = make([]byte, 32<<10)
	}
	for len(r.ready) == 0 && r.err == nil {
		n, err := r.reader.Read(r.buffer)
		// Not ready[:0]: it has come to the end of its memory, and would get new memory each time.
		r.ready = r.made[:0]
		for rest := r.buffer[:n]; len(rest) > 0; {
			if skipped := r.skip(rest); skipped > 0 {
				r.ready = append(r.ready, rest[:skipped]...)
				rest = rest[skipped:]
				continue
			}
			r.next(rest[0])
			rest = rest[1:]
		}
		if r.err = err; err != nil {
			r.spoil()
		}
		r.made = r.ready
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	if len(r.ready) == 0 && r.err != nil {
		return n, r.err
	}
	return n, nil
}

// skip consumes bytes that only change the place, and returns how many: the text of a string that
// is no quantity, the rest of a word that is no number, or what is between words. That is most of
// an answer.
func (r *numbers) skip(rest []byte) int {
	skipped := 0
	switch {
	case r.escape != 0:
	case r.state == other:
		for skipped < len(rest) && inWord[rest[skipped]] {
			skipped++
		}
	case r.state == between && r.place.inString && r.place.plain:
		for skipped < len(rest) && rest[skipped] != '"' && rest[skipped] != '\\' {
			skipped++
		}
		r.place.text(rest[:skipped])
	case r.state == between:
		for skipped < len(rest) && !inWord[rest[skipped]] && rest[skipped] != '\\' {
			c := rest[skipped]
			skipped++
			if structural[c] {
				r.place.other(c, false)
				if c == '"' {
					break
				}
			}
		}
	}
	return skipped
}

// inWord are the bytes that words consist of.
var inWord = func() (in [256]bool) {
	for c := range in {
		b := byte(c)
		in[c] = letter(b) || b >= '0' && b <= '9' || b == '.' || b == '+' || b == '-' || b == '_'
	}
	return in
}()

// structural are the bytes that the place in the text depends on.
var structural = [256]bool{'"': true, ':': true, ',': true, '{': true, '}': true, '[': true, ']': true}

// next takes a byte.
func (r *numbers) next(c byte) {
	escaped := r.escape == 1
	if r.unescape(c) {
		c = 'x'
	}
	digit := c >= '0' && c <= '9'
	if digit && (r.state == mantissa || r.state == exponent) {
		r.digits++
	}
	switch {
	case !inWord[c]:
		r.spoil()
		r.state, r.digits = between, 0
		r.place.other(c, escaped)
	case r.state == between && (digit || c == '.' || c == '+' || c == '-') && !r.place.plain:
		r.state, r.digits = mantissa, 1
	case r.state == between:
		r.state = other
	case r.state == mantissa && (c == 'e' || c == 'E'):
		r.state, r.digits = exponent, 0
	case r.state == mantissa && (digit || c == '.'), r.state == exponent && digit:
	case (r.state == mantissa || r.state == unit) && letter(c):
		r.state = unit
	case r.state == exponent && (c == '+' || c == '-') && r.digits == 0:
	case r.state != other:
		r.state = other
		r.ready = append(r.ready, r.held...)
		r.held = r.held[:0]
	}
	if len(r.held) > 0 || (r.state == mantissa || r.state == unit) && r.digits > maxDigits || r.state == exponent && r.digits > maxExponent {
		if r.held = append(r.held, c); len(r.held) >= maxHeld {
			r.spoil()
		}
		return
	}
	r.ready = append(r.ready, c)
}

// spoil emits the bytes of the present word so that they are no number.
func (r *numbers) spoil() {
	if len(r.held) > 0 {
		r.held[0] = spoiler
	}
	r.ready = append(r.ready, r.held...)
	r.held = r.held[:0]
}

// unescape follows the escape \u00xy and says whether c is the y of one that
// stands for what numbers are made of.
func (r *numbers) unescape(c byte) bool {
	switch {
	case r.escape == 0 && c == '\\':
		r.escape = 1
	case r.escape == 1 && c == 'u', (r.escape == 2 || r.escape == 3) && c == '0':
		r.escape++
	case r.escape == 4:
		r.high = c
		r.escape++
	case r.escape == 5:
		r.escape = 0
		return ofNumber(r.high, c)
	default:
		r.escape = 0
	}
	return false
}

// ofNumber says whether the character with this hexadecimal code is a digit, a
// sign, a point or an e.
func ofNumber(high, low byte) bool {
	switch high {
	case '2':
		return low == 'b' || low == 'B' || low == 'd' || low == 'D' || low == 'e' || low == 'E'
	case '3':
		return low >= '0' && low <= '9'
	case '4', '6':
		return low == '5'
	}
	return false
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// plainKeys are the keys of objects, and of arrays, that hold no quantity wherever they
// stand: what is in them must arrive as it is, be it 12e345678. In a map of quantities,
// whose keys another cluster may choose, an object is an error.
var plainKeys = map[string]bool{
	"metadata": true, "labels": true, "annotations": true, "matchLabels": true, "nodeSelector": true,
	"claimRef": true, "involvedObject": true, "home": true,
}

// longestKey is as long as the longest of plainKeys.
const longestKey = 16

// place tracks which value of a JSON text the reader is in. For text that is no JSON its result
// does not matter: nobody can decode such text.
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

// text consumes a part of a string that is no quantity.
func (p *place) text(part []byte) {
	switch {
	case p.value || p.odd:
	case len(p.key)+len(part) > longestKey:
		p.odd = true
	default:
		p.key = append(p.key, part...)
	}
}

// other consumes a byte that is in no word; escaped says that a backslash is before it.
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
