// Package sentence makes texts of other authors, such as messages of another cluster, fit to be
// shown to users: cut to a length (Cut, Short), on one line without control characters (Plain), put behind a word of ours (Prefixed),
// and marked with the cluster that it comes from (Of). Size writes numbers of bytes. It is pure.
package sentence

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Cut shortens a text to a number of bytes, at a character's end, and drops what is no
// UTF-8.
func Cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// Short is a text of at most a number of bytes, which ends with … where it was cut.
func Short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return Cut(text, most-len("…")) + "…"
}

// Plain is a text on one line, with spaces for control characters, for characters that are not
// seen but change how others are, and for what is no UTF-8, cut to a number of bytes.
func Plain(text string, most int) string {
	return Cut(strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text), most)
}

// Prefixed is a text with a prefix; empty for an empty text.
func Prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// Of marks a text with the cluster that it comes from.
func Of(cluster, text string) string { return mark(cluster) + text }

// Unmarked is a text without the mark of a cluster.
func Unmarked(cluster, text string) string { return strings.TrimPrefix(text, mark(cluster)) }

func mark(cluster string) string { return "cluster " + cluster + ": " }

// maxReason is the length of the longest reason of an event, in bytes.
const maxReason = 64

// IsReason says whether a text can be the reason of an event: one word of letters and digits.
func IsReason(text string) bool {
	for _, r := range text {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return text != "" && len(text) <= maxReason
}

// Size writes a number of bytes for people.
func Size(bytes int64) string {
	const unit = 1024
	if bytes < unit {
		return fmt.Sprintf("%d B", bytes)
	}
	value, names := float64(bytes)/unit, []string{"KiB", "MiB", "GiB", "TiB", "PiB"}
	for value >= unit && len(names) > 1 {
		value, names = value/unit, names[1:]
	}
	return fmt.Sprintf("%.1f %s", value, names[0])
}
