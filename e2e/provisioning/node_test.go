package provisioning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestClaimSaysThatTheNodeOfItsDataIsGone is about home; that in a remote cluster,
// whose nodes home sees with the remote agent alone, is tested with that.
func TestClaimSaysThatTheNodeOfItsDataIsGone(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	remove, err := fabric.MakeLocalVolume(t.Context(), bed.Home, namespace)
	t.Cleanup(remove)
	require.NoError(t, err)
	createClaim(t, selecting(fabric.NewClaim(namespace, "data", newClass(t, with(keys.LocalClass, namespace))), "home-1"))
	bound(t, bed.Home, namespace, "data")
	assert.Empty(t, warnings(t, namespace))

	require.NoError(t, bed.Home.Client().CoreV1().Nodes().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	told := await.Event(t, bed.Home.Client(), namespace, "data", "BackingNodeGone")
	assert.Contains(t, told, "(only on "+namespace+"): bring the node back")
	claim, _ := bound(t, bed.Home, namespace, "data")
	assert.NotNil(t, claimOf(t, bed.Home, fabric.Storage, twinOf(claim)), "nothing is deleted for it")
}
