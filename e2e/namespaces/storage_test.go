package namespaces

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The steps are those of docs/lifecycle.md.
func TestTheNamespaceOfTwinsCanBeHadAgain(t *testing.T) {
	namespace := space(t, "twins-", false)
	use(t, namespace, fabric.AtHome(fabric.NewPod(namespace, "app", "data")))
	runsOn(t, namespace, false)
	claim, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
	require.NoError(t, err)
	virtual := volume(t, claim.Spec.VolumeName)
	real := volume(t, virtual.Annotations[keys.BackingVolume])
	require.Equal(t, corev1.PersistentVolumeReclaimDelete, real.Spec.PersistentVolumeReclaimPolicy)

	kubectl(t, "delete", "namespace", fabric.Storage, "--wait=false")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingDeleted"), "namespace "+fabric.Storage+" is being deleted")
	kubectl(t, "annotate", "pv", virtual.Name, keys.Healing+"="+string(real.Spec.PersistentVolumeReclaimPolicy))
	await.Until(t, "the namespace is gone", func() bool {
		_, err := bed.Home.Client().CoreV1().Namespaces().Get(context.Background(), fabric.Storage, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	assert.Equal(t, corev1.PersistentVolumeReclaimRetain, volume(t, real.Name).Spec.PersistentVolumeReclaimPolicy)

	kubectl(t, "apply", "-k", filepath.Join(fabric.Root(), "deploy", "base"))
	await.Event(t, bed.Home.Client(), namespace, "data", "BackingHealed")
	after := volume(t, real.Name)
	assert.Equal(t, real.UID, after.UID)
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, after.Spec.PersistentVolumeReclaimPolicy)
	assert.Equal(t, corev1.VolumeBound, after.Status.Phase)
	assert.NotEqual(t, real.Spec.ClaimRef.UID, after.Spec.ClaimRef.UID)
	_, phase := podNode(t, namespace)
	assert.Equal(t, corev1.PodRunning, phase)
	drop(t, namespace)
	await.Until(t, "the volume goes with its data", func() bool {
		_, err := bed.Home.Client().CoreV1().PersistentVolumes().Get(context.Background(), real.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func volume(t *testing.T, name string) *corev1.PersistentVolume {
	t.Helper()
	found, err := bed.Home.Client().CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return found
}
