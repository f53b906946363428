package kind

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// database is a StatefulSet of Redis that appends each write to a file before it
// answers; a replica each side.
const database = `apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: %[1]s, name: redis}
spec:
  replicas: 2
  serviceName: redis
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: redis}}
  template:
    metadata: {labels: {app: redis}}
    spec:
      terminationGracePeriodSeconds: 10
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: redis}}}
      containers:
      - name: redis
        image: %[2]s
        command: [redis-server, --protected-mode, "no", --save, "", --appendonly, "yes", --appendfsync, always, --dir, /data]
        readinessProbe: {exec: {command: [redis-cli, PING]}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      storageClassName: lodestone
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 64Mi}}
`

// rows is how many rows are written at a time.
const rows = 200

// client asks a database through its pod at home.
type client struct{ namespace, pod string }

func (d client) ask(ctx context.Context, commands string) (string, error) {
	return home.try(ctx, commands, "exec", "-i", d.pod, "-n", d.namespace, "--", "redis-cli")
}

// write writes rows and returns how many were confirmed.
func (d client) write(t *testing.T, batch string) {
	t.Helper()
	var commands strings.Builder
	for i := range rows {
		fmt.Fprintf(&commands, "SET %s:%d %s\n", batch, i, value(d.pod, batch, i))
	}
	answer, err := d.ask(t.Context(), commands.String())
	require.NoError(t, err)
	require.Equal(t, rows, strings.Count(answer, "OK\n"), "rows that were confirmed")
}

// requireRows checks that all rows of some batches are there, and no others.
func (d client) requireRows(t *testing.T, batches ...string) {
	t.Helper()
	size, err := d.ask(t.Context(), "DBSIZE\n")
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("%d", rows*len(batches)), strings.TrimSpace(size), "rows in %s", d.pod)
	for _, batch := range batches {
		var commands, want strings.Builder
		for i := range rows {
			fmt.Fprintf(&commands, "GET %s:%d\n", batch, i)
			fmt.Fprintln(&want, value(d.pod, batch, i))
		}
		have, err := d.ask(t.Context(), commands.String())
		require.NoError(t, err)
		assert.Equal(t, want.String(), have, "rows of batch %s in %s", batch, d.pod)
	}
}

func value(pod, batch string, i int) string { return fmt.Sprintf("%s/%s/%d", pod, batch, i) }

func TestDatabaseKeepsItsRows(t *testing.T) {
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(database, shop, image))
	replicas := []client{{shop, "redis-0"}, {shop, "redis-1"}}
	nodes := map[string]string{}
	for _, replica := range replicas {
		nodes[replica.pod] = readyPod(t, shop, replica.pod).Spec.NodeName
	}
	require.NotEqual(t, nodes["redis-0"], nodes["redis-1"], "a replica each side")
	var batches []string
	write := func(batch string) {
		for _, replica := range replicas {
			replica.write(t, batch)
		}
		batches = append(batches, batch)
	}
	requireAll := func() {
		t.Helper()
		for _, replica := range replicas {
			pod := readyPod(t, shop, replica.pod)
			assert.Equal(t, nodes[replica.pod], pod.Spec.NodeName)
			replica.requireRows(t, batches...)
		}
	}

	t.Log("The pods are deleted on both sides.")
	write("first")
	for _, replica := range replicas {
		deletePod(t, readyPod(t, shop, replica.pod))
	}
	requireAll()

	t.Log("They are deleted while their nodes take no pods.")
	write("second")
	uncordon := []func(){cordon(t, virtualNode), cordon(t, home.node)}
	for _, replica := range replicas {
		deletePod(t, readyPod(t, shop, replica.pod))
		requirePending(t, shop, replica.pod)
	}
	for _, uncordon := range uncordon {
		uncordon()
	}
	requireAll()

	t.Log("All programs of Lodestone are killed while the pods are being deleted.")
	write("third")
	pods := []*corev1.Pod{readyPod(t, shop, "redis-0"), readyPod(t, shop, "redis-1")}
	for _, pod := range pods {
		require.NoError(t, home.client.CoreV1().Pods(shop).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	killPrograms(t)
	for _, pod := range pods {
		requireReplaced(t, pod)
	}
	requireAll()

	t.Log("The database in west ends by itself, and is started again there.")
	write("fourth")
	remote := "redis-0"
	if nodes[remote] != virtualNode {
		remote = "redis-1"
	}
	// The answer is that the connection is lost.
	_, _ = client{shop, remote}.ask(t.Context(), "SHUTDOWN NOSAVE\n")
	eventually(t, "the restart is seen at home", func(c *assert.CollectT) {
		pod, err := home.client.CoreV1().Pods(shop).Get(t.Context(), remote, metav1.GetOptions{})
		require.NoError(c, err)
		require.NotEmpty(c, pod.Status.ContainerStatuses)
		assert.EqualValues(c, 1, pod.Status.ContainerStatuses[0].RestartCount)
	})
	requireAll()

	t.Log("An administrator of west deletes its pod there.")
	pod := readyPod(t, shop, remote)
	west.kubectl(t, "delete", "pod", remote, "-n", shop, "--grace-period=0", "--force")
	requireReplaced(t, pod)
	requireAll()
}

// requireReplaced waits until another pod of the same name is ready.
func requireReplaced(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+pod.Name+" is replaced", func(c *assert.CollectT) {
		now, err := home.client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.NotEqual(c, pod.UID, now.UID, "phase %s", now.Status.Phase)
		assert.True(c, isReady(now))
	})
}

// killPrograms kills all programs of Lodestone in both clusters, and waits until
// others run in their place.
func killPrograms(t *testing.T) {
	t.Helper()
	programs := map[*cluster]string{home: system, west: "lodestone-remote"}
	for c, namespace := range programs {
		c.kubectl(t, "delete", "pods", "--all", "-n", namespace, "--grace-period=0", "--force")
	}
	for c, namespace := range programs {
		c.kubectl(t, "wait", "deployments", "--all", "-n", namespace, "--for=condition=Available", "--timeout=180s")
	}
}
