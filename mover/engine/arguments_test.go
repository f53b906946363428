package engine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheReceiversArgumentsAreThoseThatRsyncAsksFor(t *testing.T) {
	if Installed() != nil {
		t.Skip("rsync is not installed")
	}
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	shell := filepath.Join(dir, "shell")
	require.NoError(t, os.WriteFile(shell, []byte("#!/bin/sh\nshift 2\necho \"$@\" >"+asked+"\n"), 0o755))
	for variant, arguments := range client {
		t.Run(string(variant), func(t *testing.T) {
			if variant == Redo {
				arguments = append(arguments, "--files-from=-")
			}
			// It fails, for nobody answers; what it asked for is what counts.
			_ = exec.Command(program(), append(arguments, "-e", shell, dir+"/", "receiver:.")...).Run()
			content, err := os.ReadFile(asked)
			require.NoError(t, err)
			assert.Equal(t, asks[variant], strings.Fields(string(content)))
		})
	}
}
