package kind

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Only kube-scheduler is told of the marker. The scheduler of these clusters is not,
// so the pod names its node.
func TestKubeletRunsAPodThatCarriesTheMarker(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: marked}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "%s", command: [sleep, "3600"], resources: {requests: {%[4]s: 1}, limits: {%[4]s: 1}}}
`, shop, home.node, image, keys.MarkerResource))
	eventually(t, "the kubelet runs it, although its node has no such resource", func(c *assert.CollectT) {
		pod, err := home.client.CoreV1().Pods(shop).Get(t.Context(), "marked", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, corev1.PodRunning, pod.Status.Phase, pod.Status.Message)
	})
}
