package provisioning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestEphemeralVolumeLivesAsLongAsItsPod has a pod with a claim of its own beside
// the ephemeral volume. Those in remote clusters need Lodestone's virtual node.
func TestEphemeralVolumeLivesAsLongAsItsPod(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	createPod(t, fabric.WithScratch(fabric.AtHome(fabric.NewPod(namespace, "db", "data")), fabric.Class))
	runs(t, namespace, "db")
	claim, virtual := bound(t, bed.Home, namespace, "db-scratch")
	twin, real := bound(t, bed.Home, fabric.Storage, twinOf(claim))
	assert.Equal(t, twin.UID, backingOf(t, virtual).UID)

	deletePod(t, namespace, "db")
	absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	assert.False(t, bed.HomeStorage.Exists(real.Spec.CSI.VolumeHandle), "the real volume is left")
	assert.Nil(t, claimOf(t, bed.Home, namespace, "db-scratch"))
	_, kept := bound(t, bed.Home, namespace, "data")
	assert.NotNil(t, backingOf(t, kept), "the other claim stays")
}

// TestEphemeralVolumeIsRefusedOnTheNodeOfAnotherProgram has a node that is none of
// Lodestone's virtual node program, as those of Liqo and Admiralty.
func TestEphemeralVolumeIsRefusedOnTheNodeOfAnotherProgram(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	createPod(t, fabric.WithScratch(preferWest(fabric.NewPod(namespace, "db")), fabric.Class))
	assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "db"), "the extender knows a better one")

	// A node that was chosen without the extender.
	owner := podOf(t, namespace, "db")
	claim := selecting(fabric.NewClaim(namespace, "sent", fabric.Class), fabric.WestNode)
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true)}}
	createClaim(t, claim)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "sent", "EphemeralVolume"), `whose virtual node is not Lodestone's`)
	eventually(t, func() bool { return claimOf(t, bed.Home, namespace, "sent").Annotations[keys.SelectedNode] == "" }, func() string { return "the claim still has its node" })
	require.Nil(t, claimOf(t, bed.West, namespace, "sent"))
}
