package upgrade

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// TestThePluginUpgradesWhatTheEarlierOneInstalledAndTheWayBack has both plugins install over what the other one has made. Kubelets are
// played: TestWhatIsThereOutlivesAnUpgradeAndTheWayBack has the programs run.
func TestThePluginUpgradesWhatTheEarlierOneInstalledAndTheWayBack(t *testing.T) {
	testbed.Require(t)
	if os.Getenv("E2E_LONG") == "" {
		t.Skip("another version has to be built for it: set E2E_LONG")
	}
	earlier, this := earlierVersion(t), thisVersion(t)
	clusters, err := testbed.Start(t.Context(), testbed.Config{Name: "plain"})
	require.NoError(t, err)
	cluster := clusters[0]
	_, err = fakekubelet.Start(t.Context(), fakekubelet.Options{Config: cluster.AdminConfig(), Nodes: []fakekubelet.Node{{Name: "plain-1"}}})
	require.NoError(t, err)
	plugin := func(v version, arguments ...string) string {
		t.Helper()
		output, err := run(t, v.program("kubectl-lodestone"), append(arguments, "--kubeconfig="+cluster.Kubeconfig())...)
		t.Logf("%s: kubectl lodestone %v\n%s", v.name, arguments, output)
		require.NoError(t, err)
		return output
	}
	roles := [][]string{{"install", "--remote"}, {"install"}} // in the order of docs/upgrade.md
	for _, step := range []struct {
		by  version
		tag string
	}{{earlier, "v0.0.1"}, {this, "v0.0.2"}, {earlier, "v0.0.1"}, {this, "v0.0.2"}} {
		for _, role := range roles {
			plugin(step.by, append(role, "--tag", step.tag)...)
		}
	}
	output, err := run(t, this.program("kubectl-lodestone"), "doctor", "--kubeconfig="+cluster.Kubeconfig())
	t.Log(output)
	assert.Error(t, err, "nothing runs")
	assert.Regexp(t, `ok +manifests`, output, "nothing of the earlier version is left in the way")
	plugin(this, "uninstall", "--yes")
	plugin(this, "uninstall", "--remote", "--yes")
	left := must.Kubectl(t, cluster, "", "get", "namespaces,crds,clusterroles,clusterrolebindings,storageclasses,csidrivers,"+
		"validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name")
	assert.NotContains(t, left, "lodestone")
}
