package history

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func space(t *testing.T) string {
	t.Helper()
	namespace := testbed.Namespace(t, bed.Home, bed.West)
	require.NoError(t, bed.Bind(t.Context(), namespace))
	return namespace
}

// create makes a claim whose pod goes to a node.
func create(t *testing.T, namespace, name, node string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := fabric.NewClaim(namespace, name, virtual)
	claim.Annotations = map[string]string{keys.SelectedNode: node}
	claim, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	return claim
}

// served waits until a claim and its shadow are bound, and returns the handle of the
// shadow's volume.
func served(t *testing.T, claim *corev1.PersistentVolumeClaim) (handle string) {
	t.Helper()
	await.Until(t, "claim "+claim.Name+" and its shadow are bound", func() bool {
		return bound(t, bed.Home, claim) && bound(t, bed.West, claim)
	}, func() any { return await.Events(t, bed.Home.Client(), claim.Namespace) })
	shadow := await.Claim(t, bed.West.Client(), claim.Namespace, claim.Name)
	return await.Volume(t, bed.West.Client(), shadow.Spec.VolumeName).Spec.CSI.VolumeHandle
}

func bound(t *testing.T, cluster *testbed.Cluster, claim *corev1.PersistentVolumeClaim) bool {
	t.Helper()
	found := await.Claim(t, cluster.Client(), claim.Namespace, claim.Name)
	return found != nil && found.Status.Phase == corev1.ClaimBound
}

func remove(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	require.NoError(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}))
}

// ask has a claim ask for a size.
func ask(t *testing.T, cluster *testbed.Cluster, claim *corev1.PersistentVolumeClaim, size string) {
	t.Helper()
	_, err := cluster.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size), metav1.PatchOptions{})
	require.NoError(t, err)
}

// volumeOf returns the virtual volume of a claim, nil if there is none.
func volumeOf(t *testing.T, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	t.Helper()
	return await.Volume(t, bed.Home.Client(), "pvc-"+string(claim.UID))
}
