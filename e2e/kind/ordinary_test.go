package kind

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ordinary is a StatefulSet that knows nothing of remote clusters, with volumes of kind's own class.
const ordinary = `apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: %[1]s, name: plain}
spec:
  replicas: 3
  serviceName: plain
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: main, image: "%[2]s", command: [sleep, "36000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: standard, accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
`

// localPath is the namespace of kind's provisioner, and of its helper pods, each of which makes or removes a directory on one node.
const localPath = "local-path-storage"

// helpers returns the nodes that helper pods for claims of a namespace have been on since. Such a pod is there for a second only.
func helpers(t *testing.T, namespace string) func() []string {
	t.Helper()
	pods, err := home.client.CoreV1().Pods(localPath).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(pods.Stop)
	var mu sync.Mutex
	nodes := map[string]string{}
	go func() {
		for event := range pods.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			// The directory that it is told of is named <volume>_<namespace>_<claim>.
			if !ok || !strings.Contains(strings.Join(pod.Spec.Containers[0].Args, " "), "_"+namespace+"_") {
				continue
			}
			mu.Lock()
			nodes[pod.Name] = pod.Spec.NodeName
			mu.Unlock()
		}
	}()
	return func() (found []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, node := range nodes {
			found = append(found, node)
		}
		return found
	}
}

// TestAnOpenedNamespaceKeepsOrdinaryClaimsAtHome: nobody has said where the pods are to run, and the virtual node has room.
func TestAnOpenedNamespaceKeepsOrdinaryClaimsAtHome(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	seen := helpers(t, shop)
	home.apply(t, fmt.Sprintf(ordinary, shop, image))
	for i := range 3 {
		name := fmt.Sprintf("plain-%d", i)
		pod := readyPod(t, shop, name)
		assert.Equal(t, corev1.PodRunning, pod.Status.Phase)
		assert.NotEqual(t, virtualNode, pod.Spec.NodeName)
		said, code := lodestone(t, "why", "pod", name, "-n", shop)
		assert.Zero(t, code, said)
		assert.Contains(t, said, fmt.Sprintf("pod %q runs on node %q", name, pod.Spec.NodeName))
		claim := claimOf(t, shop, "data-"+name)
		assert.Equal(t, pod.Spec.NodeName, claim.Annotations["volume.kubernetes.io/selected-node"])
	}
	eventually(t, "each claim's helper pod was seen", func(c *assert.CollectT) { assert.GreaterOrEqual(c, len(seen()), 3) })
	assert.NotContains(t, seen(), virtualNode)
	said, code := lodestone(t, "why", "-n", shop)
	assert.Zero(t, code, said)
	assert.Contains(t, said, "nothing waits")
}
