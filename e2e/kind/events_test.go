package kind

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// stuck are pods in west that do not start there: the kubelet cannot mount a volume of the first, nor
// pull the image of the second, and the storage there makes no volume as the third wants it.
const stuck = `apiVersion: v1
kind: ConfigMap
metadata: {namespace: %[1]s, name: settings}
data: {greeting: hello}
---
apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: unmounted}
spec:
  nodeSelector: {lodestone.dev/cluster: west}
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "%[2]s", command: [sleep, "36000"], volumeMounts: [{name: settings, mountPath: /settings}]}]
  volumes: [{name: settings, configMap: {name: settings, items: [{key: absent, path: absent}]}}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: unpulled}
spec:
  nodeSelector: {lodestone.dev/cluster: west}
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "127.0.0.1:1/absent:1"}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %[1]s, name: shared}
spec: {storageClassName: lodestone, accessModes: [ReadWriteMany], resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: unbound}
spec:
  nodeSelector: {lodestone.dev/cluster: west}
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "%[2]s", command: [sleep, "36000"], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: shared}}]
`

func TestWhatTheKubeletOfWestSaysIsSaidAtHome(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(stuck, shop, image))
	for pod, wanted := range map[string]struct{ reason, text string }{
		"unmounted": {"FailedMount", "references non-existent config key: absent"},
		"unpulled":  {"Failed", "127.0.0.1:1/absent:1"},
	} {
		eventually(t, "the event is on pod "+pod, func(c *assert.CollectT) {
			there, err := west.client.CoreV1().Events(shop).List(t.Context(),
				metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod + ",reason=" + wanted.reason})
			require.NoError(c, err)
			here, err := home.client.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{LabelSelector: keys.Cluster + "=west",
				FieldSelector: "involvedObject.name=" + pod + ",reason=" + wanted.reason})
			require.NoError(c, err)
			require.NotEmpty(c, here.Items)
			var words []string
			for _, event := range there.Items {
				words = append(words, "cluster west: "+event.Message)
			}
			for _, event := range here.Items {
				assert.Contains(c, words, event.Message, "they are the kubelet's own words")
				assert.Equal(c, corev1.EventTypeWarning, event.Type)
				assert.Equal(c, "kubelet, cluster west", event.Source.Component)
			}
			said, code := lodestone(t, "why", "pod", pod, "-n", shop)
			require.Zero(c, code)
			assert.Contains(c, said, wanted.text)
		})
		t.Log(home.kubectl(t, "get", "events", "-n", shop, "-l", keys.Cluster+"=west", "-o", "wide"))
	}
	refusal := "NodePath only supports ReadWriteOnce"
	if os.Getenv("E2E_CLASS") == "disk" {
		refusal = "ask for ReadWriteOnce, or for volumeMode Block"
	}
	eventually(t, "the pod's cause is that of its claim", func(c *assert.CollectT) {
		said, code := lodestone(t, "why", "pod", "unbound", "-n", shop)
		require.Zero(c, code)
		assert.Contains(c, said, refusal)
		said, code = lodestone(t, "status", "-n", shop)
		require.Zero(c, code)
		assert.Contains(c, said, refusal)
	})
	said, _ := lodestone(t, "why", "pod", "unbound", "-n", shop)
	t.Log(said)
	home.kubectl(t, "delete", "pods", "--all", "-n", shop, "--wait=false")
}
