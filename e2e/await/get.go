package await

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Claim returns a claim as the API server has it now, nil if there is none.
func Claim(t testing.TB, client kubernetes.Interface, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim, err := client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return claim
}

// Volume returns a volume as the API server has it now, nil if there is none.
func Volume(t testing.TB, client kubernetes.Interface, name string) *corev1.PersistentVolume {
	t.Helper()
	volume, err := client.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return volume
}
