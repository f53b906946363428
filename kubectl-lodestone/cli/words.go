package cli

import (
	"cmp"
	"slices"
	"strings"
)

// Or joins words to a list in which the last two are joined by or.
func Or(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// nearest returns the words that are most like one that was mistyped, at most n of them, sorted.
func nearest(words []string, typed string, n int) []string {
	if len(words) > n {
		words = slices.SortedStableFunc(slices.Values(slices.Sorted(slices.Values(words))), func(a, b string) int {
			return cmp.Or(cmp.Compare(common(b, typed), common(a, typed)), cmp.Compare(distance(a, typed), distance(b, typed)))
		})[:n]
	}
	return slices.Sorted(slices.Values(words))
}

// Meant returns the words that somebody may have meant who typed another: those that begin with it, and those that differ in two
// letters at most.
func Meant(words []string, typed string) []string {
	const least, most = 3, 2
	var all []string
	for _, word := range words {
		if len(typed) >= least && (strings.HasPrefix(word, typed) || distance(word, typed) <= most) {
			all = append(all, word)
		}
	}
	slices.Sort(all)
	return all
}

// common is how many letters two words have in common at their beginning.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// distance is how many letters must be added, removed or replaced to make one word of another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := last
			if a[i] != b[j] {
				replaced++
			}
			last = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
