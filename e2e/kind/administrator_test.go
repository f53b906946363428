package kind

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestFilesOutliveTheDeletionOfTheirNamespaceInWest(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: inWest}
	home.apply(t, db.manifest())
	pod := db.ready(t, 1)[0]
	data := volumeOf(t, shop, db.claim(0))
	before := data.sum(t, "blob")
	deleted := must.Get(t, west.client.CoreV1().Namespaces(), shop)

	must.Delete(t, west.client.CoreV1().Namespaces(), shop)

	requireReplaced(t, pod)
	again := must.Get(t, west.client.CoreV1().Namespaces(), shop)
	assert.NotEqual(t, deleted.UID, again.UID, "the agent made the namespace anew")
	assert.Equal(t, data, volumeOf(t, shop, db.claim(0)))
	assert.Equal(t, before, data.sum(t, "blob"))
	assert.Len(t, data.starts(t), 2)

	t.Log("When the user gives up the claim, files and namespace go.")
	db.scale(t, 0)
	home.kubectl(t, "delete", "pvc", db.claim(0), "-n", shop)
	data.requireGone(t)
}

func TestUnpeerIsRefusedWhileVolumesAreThere(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: inWest}
	home.apply(t, db.manifest())
	pod := db.ready(t, 1)[0]
	data := volumeOf(t, shop, db.claim(0))
	before := data.sum(t, "blob")

	refused := func(message string) {
		t.Helper()
		said, code := lodestone(t, "unpeer", "west", "--remote-context", "kind-west", "--yes")
		assert.Equal(t, 3, code, "%s: %s", message, said)
		assert.Contains(t, said, shop+"/"+db.claim(0), message)
	}
	refused("with a pod")
	db.scale(t, 0)
	refused("with a claim alone")

	home.kubectl(t, "get", "remotecluster", "west")
	assert.Empty(t, home.kubectl(t, "get", "remotecluster", "west", "-o", "jsonpath={.metadata.deletionTimestamp}"))
	db.scale(t, 1)
	assert.NotEqual(t, pod.UID, db.ready(t, 1)[0].UID)
	assert.Equal(t, before, data.sum(t, "blob"))
}

// lodestone runs the kubectl plugin on home, also while a test cleans up; it returns what it said and its exit code.
func lodestone(t *testing.T, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "bin", "kubectl-lodestone"),
		append([]string{"--context", "kind-home"}, args...)...)
	cmd.Env = environment()
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(said), exit.ExitCode()
	}
	require.NoError(t, err)
	return string(said), 0
}
