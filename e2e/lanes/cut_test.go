package lanes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/netlab"
)

// TestACutIsSaidInASentenceAndVolumesDoNotMind has all packets between the gateways of the two clusters get lost.
func TestACutIsSaidInASentenceAndVolumesDoNotMind(t *testing.T) {
	c := joined(t)
	require.NoError(t, c.Part(true))
	parted := true
	t.Cleanup(func() {
		if parted {
			_ = c.Part(false)
		}
	})
	said := becomes(t, metav1.ConditionFalse, "NoLane")
	t.Log(said.Message)
	assert.Regexp(t, `^no lane to cluster west is up: gateway home-gateway[12] does not reach west-gateway[12]: .`, said.Message)

	bed.CreateClaim(t, fabric.NewClaim(c.namespace, "data", fabric.Class))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(c.namespace, "db", "data")))
	bed.AwaitRunning(t, c.namespace, "db")
	claim := must.Get(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(c.namespace), "data")
	assert.Equal(t, corev1.ClaimBound, claim.Status.Phase, "a volume is made in west")
	there := must.Get(t, bed.West.Client().CoreV1().PersistentVolumeClaims(c.namespace), "data")
	assert.Equal(t, corev1.ClaimBound, there.Status.Phase)
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	assert.Equal(t, metav1.ConditionFalse, networkReady(t).Status, "meanwhile nothing has changed about the cut")

	require.NoError(t, c.Part(false))
	parted = false
	becomes(t, metav1.ConditionTrue, "Probed")
	require.NoError(t, netlab.Hear(c.client.Namespace, c.server, await.Long))
	bed.AwaitRunning(t, c.namespace, "db")
}
