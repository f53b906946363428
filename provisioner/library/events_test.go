package library

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAVolumeThatIsMadeIsToldOnce(t *testing.T) {
	b := start(t, nil, claim())
	b.Publish(claim())
	eventually(t, func() bool { return b.volume(t) != nil })
	b.awaitWorkers(t)
	events, err := b.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var reasons []string
	for _, event := range events.Items {
		reasons = append(reasons, event.Reason)
		require.Equal(t, corev1.EventTypeNormal, event.Type)
	}
	require.Equal(t, []string{"ProvisioningSucceeded"}, reasons)
}
