package remotepods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// TestEphemeralVolumeLivesInWestAsLongAsItsPod has a pod with a claim of its own
// beside the ephemeral volume, and then another pod of the same name.
func TestEphemeralVolumeLivesInWestAsLongAsItsPod(t *testing.T) {
	namespace := open(t)
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), fabric.NewClaim(namespace, "data", fabric.Class), metav1.CreateOptions{})
	require.NoError(t, err)
	handles := map[string]bool{}
	for range 2 {
		made := create(t, fabric.WithScratch(inWest(fabric.NewPod(namespace, "db", "data")), fabric.Class))
		_, west := runs(t, namespace, "db")
		assert.Equal(t, []string{"data", "db-scratch"}, claimNames(west))
		virtual := claim(t, bed.Home, namespace, "db-scratch")
		assert.True(t, metav1.IsControlledBy(virtual, made))
		backing := claim(t, bed.West, namespace, "db-scratch")
		require.Equal(t, corev1.ClaimBound, backing.Status.Phase)
		real, err := bed.West.Client().CoreV1().PersistentVolumes().Get(t.Context(), backing.Spec.VolumeName, metav1.GetOptions{})
		require.NoError(t, err)
		assert.False(t, handles[real.Spec.CSI.VolumeHandle], "each pod has a volume of its own")
		handles[real.Spec.CSI.VolumeHandle] = true

		remove(t, namespace, "db", metav1.DeleteOptions{})
		gone(t, namespace, "db", made.UID)
		await.Until(t, "the volume is gone", func() bool {
			_, err := bed.Home.Client().CoreV1().PersistentVolumes().Get(t.Context(), virtual.Spec.VolumeName, metav1.GetOptions{})
			return apierrors.IsNotFound(err) && !bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle)
		})
		assert.Nil(t, claim(t, bed.West, namespace, "db-scratch"))
	}
	assert.NotNil(t, claim(t, bed.West, namespace, "data"), "the other claim stays")
}

// claim returns a claim of a cluster, nil if there is none.
func claim(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	found, err := cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return found
}

func claimNames(pod *corev1.Pod) []string {
	var names []string
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}
