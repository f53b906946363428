package tree

import (
	"strings"
	"unicode/utf8"
)

// usualNameAtMost is how long a name every file system takes.
const usualNameAtMost = 143

// needName takes note of what the last name of a path needs.
func (f *findings) needName(e *Entry) {
	last := e.Path[strings.LastIndexByte(e.Path, '/')+1:]
	plain, upper := true, false
	for i := range len(last) {
		switch b := last[i]; {
		case b < ' ' || b >= 0x7f || strings.IndexByte(`\:*?"<>|`, b) >= 0:
			plain = false
		case b >= 'A' && b <= 'Z':
			upper = true
		}
	}
	if upper {
		note(&f.needs, CaseSensitive, e.Path)
	}
	if len(last) > usualNameAtMost {
		note(&f.needs, LongNames, e.Path)
	}
	if last != "" && (last[len(last)-1] == ' ' || last[len(last)-1] == '.') {
		plain = false
	}
	if plain {
		return
	}
	note(&f.needs, UnusualNames, e.Path)
	if !utf8.ValidString(last) {
		note(&f.needs, NonUTF8Names, e.Path)
	}
}
