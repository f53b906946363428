package provisioning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

func TestClaimOfAPodAtHomeGetsATwinThere(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	claim := createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "data")))
	node := runs(t, namespace, "db")

	_, virtual := bound(t, bed.Home, namespace, "data")
	twin, real := bound(t, bed.Home, fabric.Storage, twinOf(claim))
	cluster, ok := locality.OfVolume(virtual.Spec.NodeAffinity)
	require.True(t, ok)
	assert.Equal(t, keys.Home, cluster)
	assert.Equal(t, real.Spec.CSI.VolumeHandle, virtual.Spec.CSI.VolumeHandle)
	assert.Equal(t, node, twin.Annotations[keys.SelectedNode])
	assert.Contains(t, twin.Finalizers, keys.BackingFinalizer)
	assert.Equal(t, fabric.HomeWait, *twin.Spec.StorageClassName)
	assert.Nil(t, claimOf(t, bed.West, namespace, "data"))
}

func TestClaimOfAPodInTheRemoteClusterGetsAShadowThere(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	require.Equal(t, fabric.WestNode, runs(t, namespace, "db"))

	_, virtual := bound(t, bed.Home, namespace, "data")
	shadow, _ := bound(t, bed.West, namespace, "data")
	cluster, ok := locality.OfVolume(virtual.Spec.NodeAffinity)
	require.True(t, ok)
	assert.Equal(t, "west", cluster)
	assert.Equal(t, keys.Driver, virtual.Spec.CSI.Driver)
	assert.Equal(t, string(shadow.UID), lastPart(virtual.Spec.CSI.VolumeHandle))
	assert.Contains(t, shadow.Finalizers, keys.BackingFinalizer)
	assert.Equal(t, corev1.ClaimBound, shadow.Status.Phase)
}
