package mtls_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/extender/app"
)

var shellBlock = regexp.MustCompile("(?s)\n   ```sh\n(.*?)\n   ```\n")

// copying returns the command of the documentation that stores kube-scheduler's
// certificate, for a directory of this test.
func (w *world) copying(directory string, more ...string) *exec.Cmd {
	w.t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "scheduling.md"))
	require.NoError(w.t, err)
	var script string
	for _, block := range shellBlock.FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(block[1], app.ClientSecret) {
			script = block[1]
		}
	}
	require.Contains(w.t, script, "/etc/kubernetes/lodestone")
	script = strings.ReplaceAll(script, "/etc/kubernetes/lodestone", directory)
	command := exec.CommandContext(w.t.Context(), "sh", "-c", strings.NewReplacer(more...).Replace(script))
	command.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig(), "PATH="+filepath.Dir(w.KubectlPath())+":"+os.Getenv("PATH"))
	return command
}

// startCopying runs the command before there is a certificate. The function that it
// returns checks what came of it.
func (w *world) startCopying() (requireCopied func()) {
	w.t.Helper()
	directory := filepath.Join(w.t.TempDir(), "lodestone")
	first := w.copying(directory)
	require.NoError(w.t, first.Start())
	return func() {
		w.t.Helper()
		require.NoError(w.t, first.Wait())
		// The Secret may have changed since.
		output, err := w.copying(directory).CombinedOutput()
		require.NoError(w.t, err, string(output))
		w.requireFiles(directory)

		output, err = w.copying(directory, "secret lodestone-extender-client", "secret lodestone-missing").CombinedOutput()
		require.Error(w.t, err, string(output))
		w.requireFiles(directory)
	}
}

// requireFiles checks that a directory has what the Secret holds, for its owner only.
func (w *world) requireFiles(directory string) {
	w.t.Helper()
	secret, err := w.Client().CoreV1().Secrets(system).Get(w.t.Context(), app.ClientSecret, metav1.GetOptions{})
	require.NoError(w.t, err)
	found, err := os.ReadDir(directory)
	require.NoError(w.t, err)
	require.Len(w.t, found, len(secret.Data))
	for name, want := range secret.Data {
		content, err := os.ReadFile(filepath.Join(directory, name))
		require.NoError(w.t, err)
		assert.Equal(w.t, string(want), string(content), name)
		about, err := os.Stat(filepath.Join(directory, name))
		require.NoError(w.t, err)
		assert.Equal(w.t, os.FileMode(0o600), about.Mode().Perm(), name)
	}
}
