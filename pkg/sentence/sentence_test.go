package sentence_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

func TestCutEndsWithAWholeCharacter(t *testing.T) {
	assert.Equal(t, "abc", sentence.Cut("abc", 3))
	assert.Equal(t, "ab", sentence.Cut("abc", 2))
	assert.Equal(t, "a", sentence.Cut("aé", 2), "half an é is none")
	assert.Equal(t, "ac", sentence.Cut("a\xffc", 9), "what is no text goes")
	assert.Empty(t, sentence.Cut("", 5))
}

func TestPlainHasOneLine(t *testing.T) {
	assert.Equal(t, "a b [31mc ", sentence.Plain("a\nb\x1b[31mc\x7f", 64))
	assert.Equal(t, "a ", sentence.Plain("a\nb", 2))
	assert.Equal(t, "a 31mb c", sentence.Plain("a\u009b31mb\xffc", 64), "what terminals take for orders, too")
	assert.Equal(t, "a b c d", sentence.Plain("a\u202eb\u2028c\u200bd", 64), "nor what turns the text around, breaks lines or hides")
	assert.Equal(t, "größer → 10 €", sentence.Plain("größer → 10 €", 64))
}

func TestShortSaysThatItWasCut(t *testing.T) {
	assert.Equal(t, "abcdef", sentence.Short("abcdef", 6))
	assert.Equal(t, "abc…", sentence.Short("abcdefg", 6))
	assert.Equal(t, "ab…", sentence.Short("abédefg", 6))
}

func TestPrefixedSaysNothingOfNothing(t *testing.T) {
	assert.Equal(t, ": it is full", sentence.Prefixed(": ", "it is full"))
	assert.Empty(t, sentence.Prefixed(": ", ""))
}

func TestATextIsMarkedWithItsCluster(t *testing.T) {
	assert.Equal(t, "cluster west: it is full", sentence.Of("west", "it is full"))
	assert.Equal(t, "it is full", sentence.Unmarked("west", sentence.Of("west", "it is full")))
	assert.Equal(t, "it is full", sentence.Unmarked("west", "it is full"))
}

func TestAReasonIsOneWord(t *testing.T) {
	for text, want := range map[string]bool{
		"FailedMount": true, "Failed2": true, "": false, "Failed Mount": false, "Failed\nMount": false, "Größe": false,
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
	} {
		assert.Equal(t, want, sentence.IsReason(text), text)
	}
}
