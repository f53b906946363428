package namespaces

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestAClaimSaysThatTheNodeOfItsDataInWestIsGone also has the RemoteCluster say so,
// until the node is back.
func TestAClaimSaysThatTheNodeOfItsDataInWestIsGone(t *testing.T) {
	namespace := space(t, "shop-", true)
	t.Parallel()
	remove, err := fabric.MakeLocalVolume(t.Context(), bed.West, namespace)
	t.Cleanup(remove)
	require.NoError(t, err)
	classes := bed.Home.Client().StorageV1().StorageClasses()
	_, err = classes.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}, Provisioner: keys.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters: map[string]string{keys.RemoteClass: namespace},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = classes.Delete(context.Background(), namespace, metav1.DeleteOptions{}) })
	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace)
	claim := fabric.NewClaim(namespace, "data", namespace)
	claim.Annotations = map[string]string{keys.SelectedNode: fabric.WestNode}
	_, err = claims.Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	await.Until(t, "the claim is bound", func() bool {
		claim, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, err)
		return claim.Status.Phase == corev1.ClaimBound
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })

	require.NoError(t, bed.West.Client().CoreV1().Nodes().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	told := await.Event(t, bed.Home.Client(), namespace, "data", "BackingNodeGone")
	assert.Contains(t, told, "in cluster west can be used on no node that is left there: let its administrator bring the node back")
	gone := func() bool {
		remote, err := bed.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
		require.NoError(t, err)
		if remote.Status.VolumeHealth != nil {
			for _, trouble := range remote.Status.VolumeHealth.Troubles {
				if trouble.Reason == "BackingNodeGone" {
					return true
				}
			}
		}
		return false
	}
	await.Until(t, "the RemoteCluster says so, too", gone)

	require.NoError(t, fabric.MakeEmptyNode(t.Context(), bed.West, namespace))
	await.Until(t, "the RemoteCluster says no more that a node is gone", func() bool { return !gone() })
}
