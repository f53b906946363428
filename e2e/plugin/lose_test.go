package plugin

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Only the very volume that somebody names is given up, only while its cluster
// is away, and if the cluster comes back its data is there.
func TestAVolumeIsLostOnlyWhenAUserSaysSo(t *testing.T) {
	peered(t)
	namespace := openNamespace(t)
	gone, kept := volumeInWest(t, namespace, "gone"), volumeInWest(t, namespace, "kept")
	shadow, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "gone", metav1.GetOptions{})
	require.NoError(t, err)
	r := lodestone(t, "lose", "pv", gone, "--yes", "--away", "0s").ends(t, refused)
	assert.Contains(t, r.stderr, `cluster "west" answers, so nothing there is lost`)

	require.NoError(t, bed.West.StopAPIServer(t.Context()))
	t.Cleanup(func() { dropShadow(t, namespace, "gone") })
	await.Until(t, "status says that west is not Ready", func() bool {
		return strings.Contains(lodestone(t, "status").ends(t, done).out, "NotReachable")
	})
	require.NoError(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	await.Until(t, "its deletion waits for west", func() bool {
		volume := volumeOf(t, gone)
		return volume != nil && volume.Status.Phase == corev1.VolumeReleased
	})

	r = lodestone(t, "lose", "pv", gone, "--yes").ends(t, refused)
	assert.Contains(t, r.stderr, "which may be a short outage")
	r = withInput(t, "gone\n", "lose", "pv", gone, "--away", "0s").ends(t, refused)
	assert.Contains(t, r.stderr, "claim      "+namespace+"/gone")
	assert.Contains(t, r.stderr, "data       cluster west, real claim "+namespace+"/gone")
	assert.NotContains(t, volumeOf(t, gone).Annotations, keys.Lost)
	r = withInput(t, gone+"\n", "lose", "pv", gone, "--away", "0s").ends(t, done)
	assert.Equal(t, "persistentvolume/"+gone+" declared lost\n", r.out)
	await.Until(t, "the volume is gone without west", func() bool { return volumeOf(t, gone) == nil })

	lodestone(t, "lose", "pvc", "kept", "-n", namespace, "--yes", "--away", "0s").ends(t, done)
	assert.Contains(t, volumeOf(t, kept).Annotations, keys.Lost)
	lodestone(t, "lose", "pvc", "kept", "-n", namespace, "--yes").ends(t, done)
	lodestone(t, "lose", "pvc", "kept", "-n", namespace, "--undo").ends(t, done)
	assert.NotContains(t, volumeOf(t, kept).Annotations, keys.Lost, "the other one is not given up with it")

	require.NoError(t, bed.West.StartAPIServer(t.Context()))
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	await.Until(t, "what is left in west is told of", func() bool {
		events, err := bed.Home.Client().CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=BackingLeft"})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, namespace+"/gone") })
	})
	// That of the other one goes, so the provisioner deletes there again.
	require.NoError(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "kept", metav1.DeleteOptions{}))
	await.Until(t, "the other volume is gone with its data", func() bool { return volumeOf(t, kept) == nil })
	after, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "gone", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, shadow.UID, after.UID)
	assert.Nil(t, after.DeletionTimestamp)
	assert.Contains(t, after.Finalizers, keys.BackingFinalizer)
}

// volumeOf returns a volume of home, nil if it is gone.
func volumeOf(t *testing.T, name string) *corev1.PersistentVolume {
	t.Helper()
	volume, err := bed.Home.Client().CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return volume
}

// dropShadow removes a backing claim in west that home has let go.
func dropShadow(t *testing.T, namespace, name string) {
	t.Helper()
	claims := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace)
	// In the other order the agent would make it anew.
	_, err := claims.Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	deleted(t, err)
	deleted(t, claims.Delete(context.Background(), name, metav1.DeleteOptions{}))
}
