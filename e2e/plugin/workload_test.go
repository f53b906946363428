package plugin

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// openNamespace makes a namespace at home that is open to remote clusters, and
// waits until west has its own of that name.
func openNamespace(t *testing.T) string {
	t.Helper()
	namespace := testbed.Namespace(t, bed.Home)
	_, err := bed.Home.Kubectl(t.Context(), "", "label", "namespace", namespace, keys.Offload+"="+keys.OffloadEnabled)
	require.NoError(t, err)
	await.Until(t, "west has namespace "+namespace, func() bool {
		_, err := bed.West.Client().CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	return namespace
}

// podInWest makes a pod that runs in west and waits until it does.
func podInWest(t *testing.T, namespace, name string, claims ...string) {
	t.Helper()
	_, err := bed.Home.Client().CoreV1().Pods(namespace).Create(t.Context(), fabric.InWest(fabric.NewPod(namespace, name, claims...)), metav1.CreateOptions{})
	require.NoError(t, err)
	await.Until(t, "pod "+name+" runs", func() bool { return podOf(t, namespace, name).Status.Phase == corev1.PodRunning })
}

// podOf returns a pod, nil if it is gone.
func podOf(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := bed.Home.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return pod
}

// endPod deletes a pod and waits until it is gone.
func endPod(t *testing.T, namespace, name string) {
	t.Helper()
	require.NoError(t, bed.Home.Client().CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	await.Until(t, "pod "+name+" is gone", func() bool { return podOf(t, namespace, name) == nil })
}

// volumeInWest makes a claim whose data is in west, which no pod uses any more,
// and returns its volume.
func volumeInWest(t *testing.T, namespace, name string) string {
	t.Helper()
	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace)
	_, err := claims.Create(t.Context(), fabric.NewClaim(namespace, name, fabric.Class), metav1.CreateOptions{})
	require.NoError(t, err)
	podInWest(t, namespace, "writer", name)
	claim, err := claims.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	endPod(t, namespace, "writer")
	return claim.Spec.VolumeName
}
