package pitfalls

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const repository = "../../"

// The table in the docs names tests; none of them may be gone.
func TestTableOfPitfallsNamesTestsThatExist(t *testing.T) {
	content, err := os.ReadFile(repository + "docs/scheduling-contract.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| (\d+) \|.*$`)
	named := regexp.MustCompile("`(Test\\w+)` in `([\\w/-]+)`")

	rows := row.FindAllStringSubmatch(string(content), -1)
	assert.Len(t, rows, 15)
	for _, found := range rows {
		tests := named.FindAllStringSubmatch(found[0], -1)
		assert.NotEmpty(t, tests, "pitfall %s has no test", found[1])
		assert.Len(t, tests, strings.Count(found[0], "`Test"), "pitfall %s names a test without its folder", found[1])
		for _, test := range tests {
			assert.True(t, declared(t, repository+test[2], test[1]), "pitfall %s: there is no %s in %s", found[1], test[1], test[2])
		}
	}
}

// declared says whether a test of this name is in a folder.
func declared(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(content), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
