package plugin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestDryRunPrintsWhatAppliesInBothClusters(t *testing.T) {
	testbed.Require(t)
	t.Cleanup(func() { unpeered(t) })
	args := []string{"peer", "--remote-context", "west", "--dry-run=client", "--offer", "cpu=2", "--storage-class", "west-now"}
	r := lodestone(t, args...).ends(t, done)
	assert.Contains(t, r.out, "# For the remote cluster (context west)")
	assert.Contains(t, r.out, "# For the home cluster (context home)")
	assert.Contains(t, r.out, "token: REDACTED")
	_, err := homeClusterOf(t)
	assert.True(t, apierrors.IsNotFound(err), "a dry run changes nothing")

	there := lodestone(t, append(args, "--for", "remote")...).ends(t, done)
	_, err = bed.West.Kubectl(t.Context(), there.out, "apply", "-f", "-")
	require.NoError(t, err)
	here := lodestone(t, append(args, "--for", "home", "-o", "json")...).ends(t, done)
	_, err = bed.Home.Kubectl(t.Context(), here.out, "apply", "-f", "-")
	require.NoError(t, err)

	home, err := homeClusterOf(t)
	require.NoError(t, err)
	assert.Equal(t, "2", home.Spec.Offer.Cpu().String())
	remote, err := bed.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "west-now", remote.Spec.StorageClassName)

	t.Run("and peer goes on from there", func(t *testing.T) {
		lodestone(t, "peer", "--remote-context", "west").ends(t, done)
		assert.True(t, accepted(t, kubeconfigOf(t, "west")))
	})
	t.Run("and credentials are shown only on request", func(t *testing.T) {
		assert.Contains(t, lodestone(t, args...).ends(t, done).out, "token: REDACTED")
		assert.NotContains(t, lodestone(t, append(args, "--show-secrets")...).ends(t, done).out, "REDACTED")
	})
}
