package tenancy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// named finds tests in the table of attacks: a folder, a colon, a test.
var named = regexp.MustCompile("`([a-z0-9/]+): (Test[A-Za-z0-9]+)`")

// TestTheTestsThatSecurityNamesExist: the table of attacks promises only what is
// tested.
func TestTheTestsThatSecurityNamesExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(fabric.Root(), "docs", "security.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "\n## Attacks and their tests\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| attack ") || strings.HasPrefix(line, "| ---") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		assert.NotEmpty(t, tests, "a promise without a test: %s", line)
		for _, test := range tests {
			assert.True(t, defined(t, test[1], test[2]), "no test %s in %s", test[2], test[1])
		}
	}
	assert.Greater(t, rows, 15)
}

func defined(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(fabric.Root(), filepath.FromSlash(folder), "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
