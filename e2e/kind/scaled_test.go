package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// webPod is a pod's spec that uses a claim together with others of its kind, as lines
// with their indentation (2). It takes its time to end.
const webPod = `  terminationGracePeriodSeconds: 60
  containers:
  - name: web
    image: %s
    command: [sh, -c, "trap 'sleep 8; exit 0' TERM; echo $HOSTNAME >>/data/started; touch /tmp/ready; while :; do sleep 1 & wait $!; done"]
    readinessProbe: {exec: {command: [test, -e, /tmp/ready]}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: web}}]
`

func TestPodsThatAreMadeDuringAMoveWaitAndRunAtTheTarget(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(shared, shop, "web"))
	spec := fmt.Sprintf(webPod, image)
	home.apply(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {namespace: %s, name: first}\nspec:\n  nodeSelector: {kubernetes.io/hostname: home-control-plane}\n%s", shop, spec))
	readyPod(t, shop, "first")
	home.kubectl(t, "delete", "pod", "first", "-n", shop, "--grace-period=1")
	home.apply(t, fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {namespace: %s, name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
%s`, shop, strings.ReplaceAll("\n"+spec, "\n", "\n    ")[1:]+"\n"))
	home.kubectl(t, "wait", "deployment", "web", "-n", shop, "--for=condition=Available", "--timeout=180s")
	pods := func(c assert.TestingT) []corev1.Pod {
		found, err := home.client.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		assert.NoError(c, err)
		return found.Items
	}

	made := move(t, shop, "web", "west")
	require.Equal(t, v1alpha1.MoveQuiesce, reaches(t, made, v1alpha1.MoveQuiesce).Status.Phase)
	// Pods that are made before the claim has the lock start at the source, and are ended.
	eventually(t, "the claim has the lock", func(c *assert.CollectT) {
		claim, err := home.client.CoreV1().PersistentVolumeClaims(shop).Get(t.Context(), "web", metav1.GetOptions{})
		assert.NoError(c, err)
		assert.Contains(c, claim.Labels, keys.Moving)
	})
	home.kubectl(t, "scale", "deployment", "web", "-n", shop, "--replicas=3")

	eventually(t, "all that are made meanwhile wait at the gate", func(c *assert.CollectT) {
		waiting := 0
		for _, pod := range pods(c) {
			if pod.DeletionTimestamp != nil {
				continue
			}
			assert.Empty(c, pod.Spec.NodeName)
			assert.Contains(c, pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: keys.MovingGate})
			waiting++
		}
		assert.Equal(c, 3, waiting)
	})
	requireMoved(t, made)
	eventually(t, "they run at the target", func(c *assert.CollectT) {
		running := pods(c)
		assert.Len(c, running, 3)
		for i := range running {
			assert.True(c, isReady(&running[i]))
			assert.Equal(c, virtualNode, running[i].Spec.NodeName)
			assert.Empty(c, running[i].Spec.SchedulingGates)
		}
	})
	assert.Equal(t, 5, strings.Count(shell(t, shop, "deployment/web", "cat /data/started"), "\n"), "starts of which the volume knows: the first, one before and three after the move")
}
