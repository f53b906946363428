package plugin

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestImportFromARemoteClusterGoesOnAfterAKillAtEachWrite(t *testing.T) {
	peered(t)
	namespace, class, k := openNamespace(t), keepingClass(t), newKiller(t)
	for n := 1; ; n++ {
		// One that the people of west made, one that home kept there.
		name, old := fmt.Sprintf("data-%d", n), ""
		if n == 2 {
			old = released(t, namespace, name, class, fabric.InWest)
		} else {
			realClaim(t, bed.West, namespace, name, fabric.WestNow)
		}
		before := claimOf(t, bed.West, namespace, name)
		args := []string{"import", "pvc", name, "-n", namespace, "--class", fabric.Class, "--yes", "--cluster", "west", "--remote-context", "west"}
		r, dead := k.run(t, n, args...)
		if dead {
			r, _ = k.run(t, 0, args...)
		}
		r.ends(t, done)
		claim, shadow := claimOf(t, bed.Home, namespace, name), claimOf(t, bed.West, namespace, name)
		assert.Equal(t, corev1.ClaimBound, claim.Status.Phase)
		assert.Equal(t, before.UID, shadow.UID, "nothing was copied")
		assert.Equal(t, string(claim.UID), shadow.Labels[keys.ClaimUID])
		assert.True(t, backings.Protected(shadow))
		assert.Equal(t, backings.RefTo("west", shadow).String(), volumeOf(t, claim.Spec.VolumeName).Annotations[keys.Backing])
		assert.NotContains(t, claim.Annotations, keys.Import)
		if old != "" {
			assert.Nil(t, volumeOf(t, old), "one volume stands for the data")
		}
		// Its data goes with it, and for the peering to end after the test.
		real := shadow.Spec.VolumeName
		require.NoError(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		await.Until(t, "the data of "+name+" is gone", func() bool {
			_, err := bed.West.Client().CoreV1().PersistentVolumes().Get(t.Context(), real, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		if !dead {
			assert.Equal(t, 6, n-1)
			return
		}
	}
}

func TestImportFromARemoteClusterRefusesWhatIsNotHomesToTake(t *testing.T) {
	peered(t)
	namespace := openNamespace(t)
	realClaim(t, bed.West, namespace, "data", fabric.WestNow)
	t.Cleanup(func() { dropShadow(t, namespace, "data") })
	args := []string{"import", "pvc", "data", "-n", namespace, "--class", fabric.Class, "--yes", "--cluster", "west", "--remote-context", "west"}
	_, err := bed.West.Client().CoreV1().Pods(namespace).Create(t.Context(), fabric.NewPod(namespace, "app", "data"), metav1.CreateOptions{})
	require.NoError(t, err)
	r := lodestone(t, args...).ends(t, refused)
	assert.Contains(t, r.stderr, "is used by pod app")
	require.NoError(t, bed.West.Client().CoreV1().Pods(namespace).Delete(t.Context(), "app", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	r = lodestone(t, append(args[:len(args)-1:len(args)-1], "home-again")...).ends(t, refused)
	assert.Contains(t, r.stderr, `is not that of cluster "west"`)
	_, err = bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), "data", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+keys.HomeID+`":"another"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	await.Until(t, "the pod is gone", func() bool {
		_, err := bed.West.Client().CoreV1().Pods(namespace).Get(t.Context(), "app", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	r = lodestone(t, args...).ends(t, refused)
	assert.Contains(t, r.stderr, `belongs to home cluster "another"`)
	_, err = bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "nothing was made")
}
