package provisioning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestClaimSaysThatTheNodeOfItsDataIsNotReadyOrGone is about home, and about a remote
// cluster without the remote agent; with it is tested with that.
func TestClaimSaysThatTheNodeOfItsDataIsNotReadyOrGone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		route
		class, node string
		// at names the node of the data, for those who may know its name.
		at func(node string) string
	}{
		{routes[0], keys.LocalClass, "home-1", func(node string) string { return "(only on " + node + "): bring the node back" }},
		{routes[1], keys.RemoteClass, fabric.WestNode, func(string) string { return "left there: let its administrator bring the node back" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			remove, err := fabric.MakeLocalVolume(t.Context(), test.cluster(), namespace)
			t.Cleanup(remove)
			require.NoError(t, err)
			createClaim(t, selecting(fabric.NewClaim(namespace, "data", newClass(t, with(test.class, namespace))), test.node))
			bound(t, bed.Home, namespace, "data")
			assert.Empty(t, warnings(t, namespace))

			nodes := test.cluster().Client().CoreV1().Nodes()
			_, err = nodes.Patch(t.Context(), namespace, types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`), metav1.PatchOptions{}, "status")
			require.NoError(t, err)
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingNodeNotReady"), "on no node that is ready there")
			require.NoError(t, nodes.Delete(t.Context(), namespace, metav1.DeleteOptions{}))
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingNodeGone"), test.at(namespace))
			eventually(t, func() bool {
				condition := trouble(t, namespace, "data")
				return condition != nil && condition.Reason == "BackingNodeGone"
			}, func() string { return "the claim has no condition that says so" })
			_, virtual := bound(t, bed.Home, namespace, "data")
			assert.NotNil(t, backingOf(t, virtual), "nothing is deleted for it")
		})
	}
}
