package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestKubeletAtHomeRefusesAVolumeOfWest(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: inWest}
	home.apply(t, db.manifest())
	db.ready(t, 1)
	data := volumeOf(t, shop, db.claim(0))
	require.Equal(t, west, data.in)

	// Past the scheduler, straight to the kubelet.
	home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: thief}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: thief, image: "%s", command: [sleep, "3600"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
`, shop, home.node, image, db.claim(0)))

	eventually(t, "the kubelet says that it does not mount the volume", func(c *assert.CollectT) {
		events, err := home.client.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=thief,reason=FailedMount"})
		require.NoError(c, err)
		var messages []string
		for _, event := range events.Items {
			messages = append(messages, event.Message)
		}
		assert.Contains(c, strings.Join(messages, "\n"), data.virtual, "events say which volume")
	})
	thief, err := home.client.CoreV1().Pods(shop).Get(t.Context(), "thief", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, corev1.PodPending, thief.Status.Phase)
	assert.Len(t, data.starts(t), 1, "the pod in west goes on")
	assert.Equal(t, data.in, volumeOf(t, shop, db.claim(0)).in)
}
