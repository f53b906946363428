package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLimitsOfTestsAreThoseOfTheScripts: what ends a run is a number in a script, and pages say it.
func TestLimitsOfTestsAreThoseOfTheScripts(t *testing.T) {
	content := func(name string) string {
		data, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		return string(data)
	}
	number := func(name, pattern string) string {
		found := regexp.MustCompile(pattern).FindStringSubmatch(content(name))
		require.NotNil(t, found, "%s: %s", name, pattern)
		return found[1]
	}
	one, whole := number("Makefile", `-p 2 -count=1 -timeout (\d+)m`), number(".ci/run", `limit=\$\(\((\d+) \* 60\)\)`)
	suite, long := number("e2e/kind/run.sh", `(?m)^arguments=.* -timeout (\d+)m`), number("e2e/kind/run.sh", `E2E_LONG-.* -timeout (\d+)m`)
	page := strings.Join(strings.Fields(content("docs/testing.md")), " ")
	assert.Contains(t, page, "The integration tests of a package may take "+one+
		" minutes, those of `make e2e` "+suite+" ("+long+" with `E2E_LONG`), and all of `.ci/run` "+whole+":")
	assert.Contains(t, strings.Join(strings.Fields(content("docs/e2e.md")), " "), "is ended after "+suite+".")

	kind, err := filepath.Glob(filepath.Join(root, "e2e", "kind", "*_test.go"))
	require.NoError(t, err)
	short := 0
	for _, file := range kind {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		short += strings.Count(string(data), "\ttestbed.NotInShort(t)\n")
	}
	assert.Contains(t, page, "and on kind ["+strconv.Itoa(short)+"]")
}
