package built

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProgramsAreBuiltAnewWhenTheirSourcesChangeAndOnlyThen(t *testing.T) {
	directory := t.TempDir()
	write := func(name, content string) string {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600))
		hash, err := hashOf(directory)
		require.NoError(t, err)
		return hash
	}
	first := write("go.mod", "module a")
	assert.Equal(t, first, write("main_test.go", "package main"), "a test is no part of the program")
	assert.Equal(t, first, write("README.md", "text"))
	second := write("main.go", "package main")
	assert.NotEqual(t, first, second)
	assert.NotEqual(t, second, write("go.mod", "module b"))
}
