package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/must"
)

// keep is what a keeper does: it fills its volume once with random bytes, checks
// them at each later start before it counts as ready, and then writes a row each
// second: which start it belongs to, and its number.
const keep = `set -e
cd /data
if [ -e sum ]; then sha256sum -c sum; else
  dd if=/dev/urandom of=blob bs=64k count=64 2>/dev/null
  sha256sum blob >sum.new
  mv sum.new sum
fi
start=$(cat /proc/sys/kernel/random/uuid)
echo "keeper $HOSTNAME starts as $start"
touch /tmp/ready
leave() {
  :
}
trap 'leave; exit 0' TERM
row=0
while :; do
  row=$((row+1))
  echo "$start $row" >>rows
  sleep 1 & wait $!
done
`

// keepers is a StatefulSet of keepers, a replica a node at most.
type keepers struct {
	namespace, name string
	class           string // default: lodestone
	size            string // default: 16Mi
	access          string // default: ReadWriteOnce
	replicas        int
	// leave is what a keeper does when it is asked to end, as a line of its script.
	leave string
	// spec is more of the pods' spec, as lines of YAML with their indentation (6).
	spec string
}

func (k keepers) manifest() string {
	if k.class == "" {
		k.class = "lodestone"
	}
	if k.size == "" {
		k.size = "16Mi"
	}
	if k.access == "" {
		k.access = "ReadWriteOnce"
	}
	script, grace := keep, 2
	if k.leave != "" {
		script, grace = strings.Replace(keep, "  :\n", "  "+k.leave+"\n", 1), 60
	}
	return fmt.Sprintf(`apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  replicas: %[3]d
  serviceName: %[2]s
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      terminationGracePeriodSeconds: %[10]d
%[7]s      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: %[2]s}}}
      containers:
      - name: keeper
        image: %[5]s
        command: [sh, -c, %[6]q]
        readinessProbe: {exec: {command: [test, -e, /tmp/ready]}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      storageClassName: %[4]s
      accessModes: [%[9]s]
      resources: {requests: {storage: %[8]s}}
`, k.namespace, k.name, k.replicas, k.class, image, script, k.spec, k.size, k.access, grace)
}

func (k keepers) pod(index int) string { return fmt.Sprintf("%s-%d", k.name, index) }

func (k keepers) claim(index int) string { return "data-" + k.pod(index) }

// ready waits until a number of replicas are ready, the first ones, and returns
// their pods at home.
func (k keepers) ready(t *testing.T, count int) []*corev1.Pod {
	t.Helper()
	pods := make([]*corev1.Pod, count)
	for i := range pods {
		pods[i] = readyPod(t, k.namespace, k.pod(i))
	}
	return pods
}

// scale changes the number of replicas and waits until no others are left.
func (k keepers) scale(t *testing.T, count int) {
	t.Helper()
	home.kubectl(t, "scale", "statefulset", k.name, "-n", k.namespace, fmt.Sprintf("--replicas=%d", count))
	eventually(t, fmt.Sprintf("%d pods of %s are left", count, k.name), func(c *assert.CollectT) {
		pods, err := home.client.CoreV1().Pods(k.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + k.name})
		require.NoError(c, err)
		assert.LessOrEqual(c, len(pods.Items), count)
	})
}

// readyPod waits until a pod at home is ready.
func readyPod(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, "pod "+name+" is ready", func(c *assert.CollectT) {
		var err error
		pod, err = home.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.Nil(c, pod.DeletionTimestamp, "it is being deleted")
		assert.True(c, isReady(pod), "it is %s on node %q: %+v", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Conditions)
	})
	return pod
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// deletePod deletes a pod at home and waits until that very pod is gone there.
func deletePod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	must.Delete(t, home.client.CoreV1().Pods(pod.Namespace), pod.Name)
	eventually(t, "pod "+pod.Name+" is gone", func(c *assert.CollectT) {
		now, err := home.client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(c, err)
			assert.NotEqual(c, pod.UID, now.UID)
		}
	})
}

// gone returns nil if what was asked for is not there.
func gone(_ any, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("it is still there")
	}
}
