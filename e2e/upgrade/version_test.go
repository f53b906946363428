package upgrade

import (
	"bytes"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// from is the version that is upgraded: a commit, until there are tags.
//
//go:embed from
var from string

// version is a state of the source tree, and its programs.
type version struct{ name, tree, programs string }

// programs are those that run in clusters, and the plugin.
var programs = []string{"provisioner", "extender", "virtualnode", "remoteagent", "mover", "kubectl-lodestone"}

func (v version) program(name string) string { return filepath.Join(v.programs, name) }

// mover is the image of the version's mover.
func (v version) mover() string { return "lodestone-mover:" + v.name }

func (v version) build(t *testing.T) version {
	t.Helper()
	arguments := []string{"build", "-ldflags", "-s -w", "-o", v.programs + "/"} // linked in half the time
	for _, program := range programs {
		arguments = append(arguments, "./"+program)
	}
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Dir = v.tree
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	return v
}

// thisVersion is that of this source tree.
func thisVersion(t *testing.T) version {
	t.Helper()
	return version{name: "this", tree: fabric.Root(), programs: t.TempDir()}.build(t)
}

// earlierVersion is the one that is upgraded. Its tree is always at the same place, so that it is compiled once.
func earlierVersion(t *testing.T) version {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	commit := strings.TrimSpace(from)
	earlier := version{name: "earlier", tree: filepath.Join(cache, "lodestone", "upgrade-"+commit[:12]), programs: t.TempDir()}
	if _, err := os.Stat(earlier.tree); err == nil {
		return earlier.build(t)
	}
	var complaint bytes.Buffer
	archive := exec.CommandContext(t.Context(), "git", "archive", commit)
	archive.Dir, archive.Stderr = fabric.Root(), &complaint
	content, err := archive.Output()
	require.NoError(t, err, "commit %s, which is upgraded, is not in this clone: git fetch --unshallow\n%s", commit, complaint.String())
	unpacked := earlier.tree + ".part"
	require.NoError(t, os.RemoveAll(unpacked))
	require.NoError(t, os.MkdirAll(unpacked, 0o755))
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", unpacked)
	unpack.Stdin = bytes.NewReader(content)
	output, err := unpack.CombinedOutput()
	require.NoError(t, err, string(output))
	require.NoError(t, os.Rename(unpacked, earlier.tree))
	return earlier.build(t)
}

// run runs a program, and returns what it says.
func run(t *testing.T, path string, arguments ...string) (string, error) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), path, arguments...).CombinedOutput()
	return string(output), err
}
