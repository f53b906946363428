package kind

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// stuck are pods in west that do not do well there: the kubelet cannot mount a volume of the first, nor
// pull the image of the second; the third runs and is never ready, the fourth takes more memory than it may,
// and the storage there makes no volume as the last one wants it.
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
kind: Pod
metadata: {namespace: %[1]s, name: unready}
spec:
  nodeSelector: {lodestone.dev/cluster: west}
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: "%[2]s"
    command: [sleep, "36000"]
    readinessProbe: {exec: {command: [sh, -c, echo not yet; exit 1]}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: greedy}
spec:
  nodeSelector: {lodestone.dev/cluster: west}
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "%[2]s", command: [dd, if=/dev/zero, of=/dev/null, bs=256M], resources: {limits: {memory: 32Mi}}}
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
	for _, row := range []struct{ pod, reason, kind, why string }{
		{"unmounted", "FailedMount", corev1.EventTypeWarning, "references non-existent config key: absent"},
		{"unpulled", "Failed", corev1.EventTypeWarning, "127.0.0.1:1/absent:1"},
		{"unready", "Pulled", corev1.EventTypeNormal, ""},
		{"unready", "Started", corev1.EventTypeNormal, ""},
		{"unready", "Unhealthy", corev1.EventTypeWarning, "Readiness probe failed: not yet"},
		{"greedy", "BackOff", corev1.EventTypeWarning, "it used more memory than it may"},
	} {
		eventually(t, "event "+row.reason+" is on pod "+row.pod, func(c *assert.CollectT) {
			of := "involvedObject.name=" + row.pod + ",reason=" + row.reason
			there, err := west.client.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{FieldSelector: of})
			require.NoError(c, err)
			here, err := home.client.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{LabelSelector: keys.Cluster + "=west",
				FieldSelector: of})
			require.NoError(c, err)
			require.NotEmpty(c, here.Items)
			var words []string
			for _, event := range there.Items {
				// A text that names the pod by its UID is given the one that it has at home.
				said := strings.ReplaceAll(event.Message, string(event.InvolvedObject.UID), string(here.Items[0].InvolvedObject.UID))
				words = append(words, "cluster west: "+strings.TrimSpace(said))
			}
			for _, event := range here.Items {
				assert.Contains(c, words, event.Message, "they are the kubelet's own words")
				assert.Equal(c, row.kind, event.Type)
				assert.Equal(c, "kubelet, cluster west", event.Source.Component)
			}
			said, code := lodestone(t, "why", "pod", row.pod, "-n", shop)
			require.Zero(c, code)
			assert.Contains(c, said, row.why)
		})
		t.Log(home.kubectl(t, "get", "events", "-n", shop, "-l", keys.Cluster+"=west", "-o", "wide"))
	}
	eventually(t, "that its memory was the reason is in the status of the pod", func(c *assert.CollectT) {
		pod, err := home.client.CoreV1().Pods(shop).Get(t.Context(), "greedy", metav1.GetOptions{})
		require.NoError(c, err)
		require.Len(c, pod.Status.ContainerStatuses, 1)
		last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
		require.NotNil(c, last)
		assert.Equal(c, "OOMKilled", last.Reason)
	})
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
