package built

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProgramsAreBuiltAnewWhenTheirSourcesChangeAndOnlyThen(t *testing.T) {
	directory := t.TempDir()
	write := func(name, content string) string {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600))
		hash, err := hashOf(directory, "go.mod")
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

func TestABuildSaysHowFarItIsAndHandsOnWhatGoSays(t *testing.T) {
	root, err := SourceTree()
	require.NoError(t, err)
	for line, want := range map[string]bool{
		"k8s.io/api/core/v1":             false,
		"fmt":                            false,
		"go: downloading k8s.io/api v0":  false,
		"# example.com/broken":           true,
		"./main.go:3:1: undefined: x":    true,
		"\thint: rename the declaration": true,
	} {
		directory := t.TempDir()
		program := "#!/bin/sh\nprintf 'answer\\n'\nprintf '%s\\n' '" + line + "' >&2\nexit 3\n"
		require.NoError(t, os.WriteFile(filepath.Join(directory, "go"), []byte(program), 0o700)) //nolint:gosec // it is to run
		cmd := command(t.Context(), directory, filepath.Join(root, "hack", "go.sh"), "x", "build", "./...")
		cmd.Env = append(cmd.Env, "PATH="+directory+":"+os.Getenv("PATH"))
		var messages strings.Builder
		cmd.Stderr = &messages
		answer, err := cmd.Output()
		var failed *exec.ExitError
		require.ErrorAs(t, err, &failed, line)
		assert.Equal(t, 3, failed.ExitCode(), line)
		assert.Equal(t, "answer\n", string(answer), line)
		assert.Equal(t, want, messages.String() == line+"\n", "%q: %q", line, messages.String())
		assert.Equal(t, !want, messages.String() == "", "%q: %q", line, messages.String())
	}
}
