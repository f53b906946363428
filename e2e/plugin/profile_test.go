package plugin

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/provisioner/clusterprofiles"
)

// inventory is where the provisioner of the tests writes ClusterProfiles, as deploy/components/cluster-profiles says.
const inventory = "cluster-inventory"

// inventoryModule has the custom resource definition of ClusterProfiles.
const inventoryModule = "sigs.k8s.io/cluster-inventory-api@v0.1.2"

// definition returns the file of that custom resource definition.
func definition(t *testing.T) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", inventoryModule).Output()
	require.NoError(t, err, string(output))
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(output, &module))
	return filepath.Join(module.Dir, "config", "crd", "bases", "multicluster.x-k8s.io_clusterprofiles.yaml")
}

// TestAClusterIsPeeredByItsClusterProfileAndHasOne: another tool has made a ClusterProfile of west, by which home is peered with it;
// Lodestone shows its RemoteCluster in the same way, with the rights that the component gives.
func TestAClusterIsPeeredByItsClusterProfileAndHasOne(t *testing.T) {
	testbed.Require(t)
	ctx := t.Context()
	for _, file := range []string{definition(t), filepath.Join(fabric.Root(), "deploy", "components", "cluster-profiles", "rights.yaml")} {
		must.Kubectl(t, bed.Home, "", "apply", "-f", file)
	}
	must.Kubectl(t, bed.Home, "", "wait", "--for=condition=Established", "crd/"+clusterprofiles.Resource.GroupResource().String(),
		"--timeout=30s")
	client, err := dynamic.NewForConfig(bed.Home.AdminConfig())
	require.NoError(t, err)
	profiles := client.Resource(clusterprofiles.Resource).Namespace(inventory)
	makeProfile(t, profiles)

	file := filepath.Join(t.TempDir(), "providers.json")
	login := fmt.Sprintf(`echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":%q}}'`,
		bed.West.AdminConfig().BearerToken)
	providers, err := json.Marshal(map[string]any{"providers": []any{map[string]any{"name": "fleet",
		"execConfig": map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": []string{"-c", login}}}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, providers, 0o600))
	by := []string{"peer", "--cluster-profile", inventory + "/occident", "--cluster-profile-providers", file}

	t.Cleanup(func() { unpeered(t) })
	r := lodestone(t, append(by, "--name", "west", "--timeout", "60s")...).ends(t, done)
	assert.Equal(t, "remotecluster.lodestone.dev/west peered\n", r.out)

	var shown *unstructured.Unstructured
	await.Until(t, "west has a ClusterProfile that is healthy", func() bool {
		shown, err = profiles.Get(ctx, "west", metav1.GetOptions{})
		if err != nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(shown.Object, "status", "conditions")
		for _, condition := range conditions {
			if c, is := condition.(map[string]any); is && c["type"] == "ControlPlaneHealthy" {
				return c["status"] == "True"
			}
		}
		return false
	}, func() any { return err }, func() any { return await.Events(t, bed.Home.Client(), metav1.NamespaceDefault) })
	version, _, _ := unstructured.NestedString(shown.Object, "status", "version", "kubernetes")
	assert.NotEmpty(t, version)
	other, err := profiles.Get(ctx, "occident", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "fleet", other.GetLabels()["x-k8s.io/cluster-manager"], "that of the other tool stays")

	t.Run("what is wrong is said", func(t *testing.T) {
		for says, args := range map[string][]string{
			`there is no ClusterProfile "mars" in namespace "` + inventory + `" of home`: {"--cluster-profile", inventory + "/mars"},
			`is not <namespace>/<name> of a ClusterProfile`:                              {"--cluster-profile", "occident"},
			`ClusterProfile cluster-inventory/west gives no way to log in: its access providers are none, and the file has fleet`: {
				"--cluster-profile", inventory + "/west"},
		} {
			assert.Contains(t, lodestone(t, append(by, args...)...).ends(t, usage).stderr, says)
		}
	})
	t.Run("one of another tool with the name of a RemoteCluster stays as it is", func(t *testing.T) {
		lodestone(t, "unpeer", "west").ends(t, done)
		await.Until(t, "the profile of west is gone", func() bool {
			_, err := profiles.Get(ctx, "west", metav1.GetOptions{})
			return err != nil
		})
		lodestone(t, append(by, "--name", "occident", "--timeout", "60s")...).ends(t, done)
		said := await.Event(t, bed.Home.Client(), metav1.NamespaceDefault, "occident", "ClusterProfileNotWritten")
		assert.Contains(t, said, "ClusterProfile occident is not Lodestone's")
		other, err := profiles.Get(ctx, "occident", metav1.GetOptions{})
		require.NoError(t, err)
		manager, _, _ := unstructured.NestedString(other.Object, "spec", "clusterManager", "name")
		assert.Equal(t, "fleet", manager)
	})
}

// makeProfile makes a ClusterProfile of west, as another cluster manager does.
func makeProfile(t *testing.T, profiles dynamic.ResourceInterface) {
	t.Helper()
	profile := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterprofiles.Resource.GroupVersion().String(), "kind": "ClusterProfile",
		"metadata": map[string]any{"name": "occident", "labels": map[string]any{"x-k8s.io/cluster-manager": "fleet"}},
		"spec":     map[string]any{"displayName": "occident", "clusterManager": map[string]any{"name": "fleet"}},
	}}
	made, err := profiles.Create(t.Context(), profile, metav1.CreateOptions{})
	require.NoError(t, err)
	config := bed.West.AdminConfig()
	cluster := map[string]any{"server": config.Host}
	if len(config.CAData) > 0 {
		cluster["certificate-authority-data"] = config.CAData
	}
	status, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{},
		"accessProviders": []any{map[string]any{"name": "fleet", "cluster": cluster}}}})
	require.NoError(t, err)
	_, err = profiles.Patch(t.Context(), made.GetName(), "application/merge-patch+json", status, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}
