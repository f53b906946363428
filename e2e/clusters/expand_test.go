package clusters

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// grow makes a claim at home ask for a size.
func grow(t *testing.T, namespace, name, size string) {
	t.Helper()
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size), metav1.PatchOptions{})
	require.NoError(t, err)
}

// has waits until a claim at home has a size.
func has(t *testing.T, namespace, name, size string) {
	t.Helper()
	await.Until(t, "claim "+name+" has "+size, func() bool {
		return claimOf(t, bed.Home, namespace, name).Status.Capacity.Storage().String() == size
	}, func() any { return claimOf(t, bed.Home, namespace, name).Status }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

func TestAClaimThatAsksForMoreWhileItsClusterIsAwayGrowsLater(t *testing.T) {
	namespace := space(t)
	createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	runs(t, namespace, "db")
	has(t, namespace, "data", "1Gi")

	require.NoError(t, bed.West.StopAPIServer(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, bed.West.StartAPIServer(context.Background()))
		becomes(t, "west", metav1.ConditionTrue, "Ready")
	})
	becomes(t, "west", metav1.ConditionFalse, "NotReachable")
	grow(t, namespace, "data", "3Gi")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "ExpansionWaits"), "once cluster west can be used again")

	require.NoError(t, bed.West.StartAPIServer(t.Context()))
	becomes(t, "west", metav1.ConditionTrue, "Ready")
	has(t, namespace, "data", "3Gi")
}

func TestAClaimGrowsThoughNobodyKnowsWhetherItsClusterHeard(t *testing.T) {
	namespace := space(t)
	createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	runs(t, namespace, "db")

	require.NoError(t, bed.West.PauseAPIServer())
	t.Cleanup(func() {
		_ = bed.West.ResumeAPIServer()
		becomes(t, "west", metav1.ConditionTrue, "Ready")
	})
	// Not known to be dead yet: it is asked.
	grow(t, namespace, "data", "3Gi")
	becomes(t, "west", metav1.ConditionFalse, "NotReachable")
	grow(t, namespace, "data", "4Gi")
	require.NoError(t, bed.West.ResumeAPIServer())
	becomes(t, "west", metav1.ConditionTrue, "Ready")
	has(t, namespace, "data", "4Gi")
	assert.Equal(t, "4Gi", claimOf(t, bed.West, namespace, "data").Spec.Resources.Requests.Storage().String())
}
