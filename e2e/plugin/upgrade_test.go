package plugin

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/confinement"
)

// TestBeforeAnUpgradeThePluginSaysWhatItChanges has an installation as versions before left it, in both clusters.
func TestBeforeAnUpgradeThePluginSaysWhatItChanges(t *testing.T) {
	testbed.Require(t)
	t.Cleanup(func() { unpeered(t) })
	check := func(context string) string {
		return lodestone(t, "check-upgrade", "--context", context).ends(t, done).out
	}
	require.NotContains(t, check("west"), "policy "+confinement.Name, "it is that of this version")

	_, err := bed.Agents.HomeClusters().Create(t.Context(), &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "older"}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	restore := func(ctx context.Context) {
		_, err := bed.West.Kubectl(ctx, "", "apply", "-k", filepath.Join(fabric.Root(), "deploy", "remote", "home"))
		require.NoError(t, err)
	}
	t.Cleanup(func() { restore(context.Background()) })
	_, err = bed.West.Kubectl(t.Context(), "", "delete", "validatingadmissionpolicybinding", confinement.Name)
	require.NoError(t, err)
	west := check("west")
	assert.Contains(t, west, "HomeCluster older: it lists no namespaces and so may have those of any name; after the upgrade")
	assert.Contains(t, west, "policy "+confinement.Name+": ")
	assert.Contains(t, west, "apply all of deploy/remote of the new version, the agent first")

	_, err = bed.Remotes.Create(t.Context(), &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "routed"},
		Spec: v1alpha1.RemoteClusterSpec{PodNetwork: v1alpha1.Routed,
			KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: fabric.System, Name: "routed"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Contains(t, check("home"), "RemoteCluster routed: its podNetwork is Routed and it has no podCIDRs; after the upgrade")

	restore(t.Context())
	assert.NotContains(t, check("west"), "policy "+confinement.Name)
}
