package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHowManyLettersWordsDifferIn(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want int
	}{
		{"west", "west", 0}, {"west", "wst", 1}, {"west", "east", 2}, {"west", "", 4}, {"", "west", 4}, {"data", "dtaa", 2},
	} {
		assert.Equal(t, row.want, distance(row.a, row.b), row.a+" "+row.b)
	}
}

func TestTheWordsAreNamedThatAreMostLikeWhatWasTyped(t *testing.T) {
	assert.Equal(t, []string{"data", "log", "wal"}, nearest([]string{"wal", "data", "log"}, "x", 3))
	assert.Equal(t, []string{"data", "data-2"}, nearest([]string{"a", "b", "data-2", "c", "data"}, "dta", 2))
	assert.Equal(t, []string{"target-cluster", "target-node"}, Meant([]string{"target-node", "yes", "target-cluster"}, "target"))
	assert.Equal(t, []string{"passes"}, Meant([]string{"passes", "verify"}, "pases"))
	assert.Empty(t, Meant([]string{"passes", "verify"}, "ve"), "too short to tell")
}
