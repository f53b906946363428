package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// TestTheChartIsInstalledUpgradedAndRemoved does with Helm what its users do. That the chart has what kubectl lodestone install
// applies is tested beside it.
func TestTheChartIsInstalledUpgradedAndRemoved(t *testing.T) {
	testbed.NotInShort(t)
	testbed.Require(t)
	helm := os.Getenv("HELM")
	if helm == "" {
		require.Empty(t, os.Getenv("LODESTONE_COMPLETE"), "HELM names no program: make integration does that")
		t.Skip("HELM names no program: make integration does that")
	}
	directory := t.TempDir()
	generate := exec.CommandContext(t.Context(), "go", "run", "../../deploy/chart", "--to", directory, "--version", "v0.3.0")
	output, err := generate.CombinedOutput()
	require.NoError(t, err, string(output))
	run := func(args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), helm, append(args, "--kubeconfig", cluster.Kubeconfig())...)
		command.Env = append(os.Environ(), "HELM_CACHE_HOME="+directory, "HELM_CONFIG_HOME="+directory, "HELM_DATA_HOME="+directory)
		output, err := command.CombinedOutput()
		require.NoError(t, err, string(output))
		return string(output)
	}
	// What other tests here have applied with kubectl is Helm's from now on.
	own := []string{"--take-ownership", filepath.Join(directory, "lodestone")}
	client := cluster.Client()
	said := run(append([]string{"install", "lodestone", "--set", "certificates=job"}, own...)...)
	assert.Contains(t, said, "kubectl lodestone peer")
	deployment := must.Get(t, client.AppsV1().Deployments(systemNamespace), "lodestone-provisioner")
	assert.Equal(t, "ghcr.io/lodestone-storage/lodestone-provisioner:v0.3.0", deployment.Spec.Template.Spec.Containers[0].Image)

	// The pods of a Job cannot be changed, and an upgrade changes their image.
	run(append([]string{"upgrade", "lodestone", "--set", "tag=v0.4.0,replicas=3"}, own...)...)
	deployment = must.Get(t, client.AppsV1().Deployments(systemNamespace), "lodestone-provisioner")
	assert.Equal(t, "ghcr.io/lodestone-storage/lodestone-provisioner:v0.4.0", deployment.Spec.Template.Spec.Containers[0].Image)
	assert.EqualValues(t, 3, *deployment.Spec.Replicas)
	run(append([]string{"install", "lodestone-remote", "--set", "role=remote"}, own...)...)

	var releases []struct{ Name, Status string }
	require.NoError(t, json.Unmarshal([]byte(run("list", "-o", "json")), &releases))
	assert.Len(t, releases, 2)
	run("uninstall", "lodestone")
	run("uninstall", "lodestone-remote")
	_, err = client.AppsV1().Deployments(systemNamespace).Get(t.Context(), "lodestone-provisioner", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	for _, namespace := range []string{systemNamespace, "lodestone-storage", "lodestone-remote"} {
		_, err = client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		require.NoError(t, err, "what may hold something of users stays")
	}
	must.Get(t, client.StorageV1().StorageClasses(), "lodestone")
}
