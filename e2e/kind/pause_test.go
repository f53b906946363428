package kind

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pauseTime is how long all of west stands still: longer than any lease holds.
func pauseTime() time.Duration {
	if thorough() {
		return 2 * time.Minute
	}
	return 80 * time.Second
}

// impatient lets a pod be evicted soon after its node is lost.
const impatient = inWest + `      tolerations:
      - {key: lodestone.dev/remote, operator: Exists, effect: NoSchedule}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 10}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 10}
`

func TestPauseOfWestMakesNoSecondPodAndLosesNoRow(t *testing.T) {
	shop := namespace(t)
	patient := keepers{namespace: shop, name: "patient", replicas: 1, spec: inWest}
	hasty := keepers{namespace: shop, name: "hasty", replicas: 1, spec: impatient}
	var before []*corev1.Pod
	var data []*volume
	var sums []string
	for _, k := range []keepers{patient, hasty} {
		home.apply(t, k.manifest())
	}
	for _, k := range []keepers{patient, hasty} {
		before = append(before, k.ready(t, 1)...)
		data = append(data, volumeOf(t, shop, k.claim(0)))
		sums = append(sums, data[len(data)-1].sum(t, "blob"))
	}
	now := func(pod *corev1.Pod) *corev1.Pod {
		t.Helper()
		found, err := home.client.CoreV1().Pods(shop).Get(t.Context(), pod.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return found
	}

	require.NoError(t, west.container(t.Context(), "pause"))
	end := time.Now().Add(pauseTime())
	t.Cleanup(func() { _ = west.container(context.Background(), "unpause") })
	eventually(t, "the virtual node is not ready", func(c *assert.CollectT) {
		node, err := home.client.CoreV1().Nodes().Get(t.Context(), virtualNode, metav1.GetOptions{})
		require.NoError(c, err)
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				assert.NotEqual(c, corev1.ConditionTrue, condition.Status)
			}
		}
	})
	eventually(t, "the hasty pod is evicted", func(c *assert.CollectT) {
		assert.NotNil(c, now(before[1]).DeletionTimestamp)
	})
	for time.Now().Before(end) {
		// The evicted pod keeps its name until it is known to have ended in west, so
		// that no other one starts.
		for _, pod := range before {
			require.Equal(t, pod.UID, now(pod).UID, "pod %s", pod.Name)
		}
		require.Nil(t, now(before[0]).DeletionTimestamp, "the patient pod is left alone")
		time.Sleep(poll)
	}
	require.NoError(t, west.container(t.Context(), "unpause"))

	requireReplaced(t, before[1])
	assert.Equal(t, before[0].UID, readyPod(t, shop, before[0].Name).UID)
	eventually(t, "rows are written again", func(c *assert.CollectT) {
		for _, k := range []keepers{patient, hasty} {
			pod, err := west.client.CoreV1().Pods(shop).Get(t.Context(), k.pod(0), metav1.GetOptions{})
			require.NoError(c, err)
			assert.True(c, isReady(pod))
		}
	})
	for i, starts := range []int{1, 2} {
		assert.Equal(t, sums[i], data[i].sum(t, "blob"), before[i].Name)
		// Each row is there, and no two starts wrote at a time.
		assert.Len(t, data[i].starts(t), starts, before[i].Name)
	}
}
