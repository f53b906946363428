package remotepods

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// claimIn returns a claim of west, nil if there is none.
func claimIn(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return claim
}

// runsAgain waits until another pod than before runs on both sides.
func runsAgain(t *testing.T, namespace, name string, before types.UID) *corev1.Pod {
	t.Helper()
	var home *corev1.Pod
	await.Until(t, "another pod "+name+" runs", func() bool {
		home = get(t, bed.Home, namespace, name)
		there := get(t, bed.West, namespace, name)
		return home != nil && home.UID != before && home.DeletionTimestamp == nil && home.Status.Phase == corev1.PodRunning &&
			there != nil && there.Labels[keys.PodUID] == string(home.UID)
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	return home
}

// TestPodsRunAgainWhenWestDeletedWhatTheyNeed has the administrator of west delete
// the claim of a running pod, and then its whole namespace. Nobody does anything
// about it.
func TestPodsRunAgainWhenWestDeletedWhatTheyNeed(t *testing.T) {
	namespace := open(t)
	core := bed.Home.Client().CoreV1()
	_, err := core.PersistentVolumeClaims(namespace).Create(t.Context(), fabric.NewClaim(namespace, "data", fabric.Class), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "blue"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	selector, pods := template(namespace, "db")
	pods.Spec.Volumes = slices.Concat(fabric.NewPod(namespace, "db", "data").Spec.Volumes, []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}})
	_, err = bed.Home.Client().AppsV1().StatefulSets(namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To(int32(1)), Selector: selector, Template: pods, ServiceName: "db"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	home, _ := runs(t, namespace, "db-0")
	shadow := claimIn(t, namespace, "data")
	volume := shadow.Spec.VolumeName
	require.NotEmpty(t, volume)
	whole := func() {
		t.Helper()
		now := claimIn(t, namespace, "data")
		await.Until(t, "the claim is whole", func() bool {
			now = claimIn(t, namespace, "data")
			return now != nil && now.UID != shadow.UID && now.DeletionTimestamp == nil && now.Status.Phase == corev1.ClaimBound
		})
		assert.Equal(t, volume, now.Spec.VolumeName, "it has the same real volume")
		real, err := bed.West.Client().CoreV1().PersistentVolumes().Get(t.Context(), volume, metav1.GetOptions{})
		require.NoError(t, err)
		assert.True(t, bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle))
		claim, err := core.PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, err)
		await.Until(t, "home names the new claim", func() bool {
			virtual, err := core.PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
			require.NoError(t, err)
			return virtual.Annotations[keys.Backing] == "west/"+namespace+"/data/"+string(now.UID)
		})
		shadow = now
	}

	require.NoError(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "data", metav1.DeleteOptions{}))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingHealing"), "its data is safe")
	remove(t, namespace, "db-0", metav1.DeleteOptions{})
	home = runsAgain(t, namespace, "db-0", home.UID)
	whole()

	require.NoError(t, bed.West.Client().CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	runsAgain(t, namespace, "db-0", home.UID)
	whole()
	settings, err := bed.West.Client().CoreV1().ConfigMaps(namespace).Get(t.Context(), "settings", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "blue", settings.Data["color"])
}
