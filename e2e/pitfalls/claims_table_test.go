package pitfalls

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table of what a claim may ask for names tests for both routes; none of them
// may be gone.
func TestTableOfClaimsNamesTestsThatExist(t *testing.T) {
	content, err := os.ReadFile(repository + "docs/classes.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(content), "| a claim asks for |")
	require.True(t, found, "docs/classes.md has the table")
	named := regexp.MustCompile("`(Test\\w+)` in `([\\w/-]+)`")
	rows := 0
	for _, row := range strings.Split(table, "\n")[2:] {
		if !strings.HasPrefix(row, "|") {
			break
		}
		rows++
		cells := strings.Split(strings.Trim(row, "|"), "|")
		require.Len(t, cells, 3, row)
		for _, cell := range cells[1:] {
			tests := named.FindAllStringSubmatch(cell, -1)
			assert.NotEmpty(t, tests, "no test in %q", row)
			for _, test := range tests {
				assert.True(t, declared(t, repository+test[2], test[1]), "there is no %s in %s", test[1], test[2])
			}
		}
	}
	assert.Greater(t, rows, 15)
}
