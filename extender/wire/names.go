package wire

import (
	"encoding/json"
	"strings"
)

// names is a list of node names. Thousands of them are most of a request, so
// plain ones are cut out of one copy of the text instead of being decoded one by
// one.
type names []string

// UnmarshalJSON implements json.Unmarshaler. encoding/json has checked before
// that data is one JSON value.
func (n *names) UnmarshalJSON(data []byte) error {
	if plain, ok := cutPlain(string(data)); ok {
		*n = plain
		return nil
	}
	return json.Unmarshal(data, (*[]string)(n))
}

// cutPlain returns the items of a JSON array of strings without escapes and
// non-ASCII characters; false for anything else.
func cutPlain(text string) ([]string, bool) {
	text, ok := strings.CutPrefix(text, "[")
	if !ok {
		return nil, false
	}
	items := make([]string, 0, strings.Count(text, ",")+1)
	for {
		text = strings.TrimLeft(text, " \t\r\n,")
		if text == "]" {
			return items, true
		}
		if !strings.HasPrefix(text, `"`) {
			return nil, false
		}
		end := plainEnd(text)
		if end < 0 {
			return nil, false
		}
		items = append(items, text[1:end])
		text = text[end+1:]
	}
}

// plainEnd returns where the quoted string at the start of text ends; negative
// if it is not plain.
func plainEnd(text string) int {
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i
		case c == '\\' || c < ' ' || c > '~':
			return -1
		}
	}
	return -1
}
