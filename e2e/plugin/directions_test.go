package plugin

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
)

// Two clusters may be home and remote to each other; what is not installed is
// said first.
func TestPeerInBothDirections(t *testing.T) {
	peered(t)
	back := []string{"peer", "--context", "west", "--remote-context", "home", "--name", "main", "--timeout", "60s"}
	r := lodestone(t, back...).ends(t, failed)
	assert.Contains(t, r.stderr, `Lodestone is not installed in the home cluster (context "west")`)

	apply := func(kubectl func(context.Context, string, ...string) (string, error), folder, crd string) {
		_, err := kubectl(t.Context(), "", "apply", "-k", filepath.Join(fabric.Root(), "deploy", folder))
		require.NoError(t, err)
		_, err = kubectl(t.Context(), "", "wait", "--for=condition=Established", "crd/"+crd, "--timeout=30s")
		require.NoError(t, err)
	}
	apply(bed.West.Kubectl, "base", "remoteclusters.lodestone.dev")
	r = lodestone(t, back...).ends(t, failed)
	assert.Contains(t, r.stderr, `the remote agent is not installed in the cluster of context "home"`)
	assert.Contains(t, r.stderr, "apply -k deploy/remote")

	apply(bed.Home.Kubectl, "remote", "homeclusters.remote.lodestone.dev")
	home, err := bed.Home.ServiceAccountConfig(t.Context(), "lodestone-remote", "lodestone-remote-agent")
	require.NoError(t, err)
	agentAtHome, err := bed.StartAgent(t.Context(), func(c *agent.Config) { c.Remote = home })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, agentAtHome.Stop()) })
	west, err := bed.West.ServiceAccountConfig(t.Context(), fabric.System, "lodestone-provisioner")
	require.NoError(t, err)
	provisionerInWest, err := bed.StartProvisioner(t.Context(), func(c *provisioner.Config) { c.Home = west })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, provisionerInWest.Stop()) })

	r = lodestone(t, back...).ends(t, done)
	assert.Equal(t, "remotecluster.lodestone.dev/main peered\n", r.out)
	assert.Contains(t, r.stderr, "from now on both directions work")
	r = lodestone(t, "unpeer", "main", "--context", "west", "--remote-context", "home").ends(t, done)
	assert.Equal(t, "remotecluster.lodestone.dev/main unpeered\n", r.out)
}
