package kind

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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
		must.Delete(t, home.client.CoreV1().Pods(shop), pod.Name)
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

// postgres is a pod's spec of PostgreSQL on a claim, as lines with their indentation
// (2): it makes a database at the path if there is none, and ends it cleanly.
const postgres = `  terminationGracePeriodSeconds: 60
  securityContext: {runAsUser: 65534, runAsGroup: 65534, fsGroup: 65534, fsGroupChangePolicy: OnRootMismatch}
  containers:
  - name: postgres
    image: %[1]s
    command:
    - sh
    - -c
    - |
      set -e
      export PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=%[3]s
      if ! [ -s $PGDATA/ready ]; then
        rm -rf $PGDATA
        initdb -U postgres -A trust --no-locale -E UTF8 >/dev/null
        echo host all all all trust >>$PGDATA/pg_hba.conf
        echo yes >$PGDATA/ready
      fi
      postgres -c listen_addresses=* -c unix_socket_directories=/tmp -c jit=off &
      server=$!
      trap 'kill -INT $server; wait $server; exit 0' TERM
      wait $server
    readinessProbe: {exec: {command: [/usr/lib/postgresql/15/bin/pg_isready, -q, -h, /tmp, -U, postgres]}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %[2]s}}]
`

// postgresPod is a pod that has the database of a claim and answers as the Service.
const postgresPod = `apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: %s, labels: {app: pg}}
spec:
  nodeSelector: {kubernetes.io/hostname: home-control-plane}
`

// deployed is a Deployment of PostgreSQL on claim pg, which may run in either cluster.
func deployed(namespace string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {namespace: %s, name: pg}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: pg}}
  template:
    metadata: {labels: {app: pg}}
    spec:
%s`, namespace, strings.ReplaceAll("\n"+fmt.Sprintf(postgres, image, "pg", "/data/pg"), "\n", "\n    ")[1:]+"\n")
}

func TestADatabaseIsMovedUnderLoadAndLosesNoCommit(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(shared, shop, "pg"))
	home.apply(t, fmt.Sprintf(postgresPod, shop, "first")+fmt.Sprintf(postgres, image, "pg", "/data/pg"))
	deletePod(t, readyPod(t, shop, "first"))
	home.apply(t, deployed(shop))
	home.apply(t, fmt.Sprintf(customers, shop, image))
	readyPod(t, shop, "customer")
	awaitRows(t, shop, 20)

	var ours time.Duration
	for _, cluster := range []string{"west", keys.Home} {
		awaitRows(t, shop, 50)
		since := lastRow(confirmedRows(t, shop))
		done := requireMoved(t, move(t, shop, "pg", cluster))
		awaitRows(t, shop, 20)
		tellRefusals(t, shop, since)
		// A busy machine makes short gaps of its own: the longest is the move's.
		waited := gaps(confirmedRows(t, shop), since)
		t.Logf("moved to %s under load: the customer waited %s; pods could not use the claim for %s", cluster, waited,
			done.Status.Downtime.Duration)
		require.NotEmpty(t, waited, "gaps that the customer has seen")
		ours = max(ours, slices.Max(waited))
		requireAllRows(t, shop)
	}

	theirs := byRestic(t, shop)
	t.Logf("the longest time without a confirmed row: %s with a move between clusters; %s with restic, by stop, backup, restore and start "+
		"within one cluster and a repository on the same disk", ours, theirs)
}

// byRestic copies the database as it is done by hand, and returns how long the customer
// waited: stop, back up into a repository, restore into another volume, start.
func byRestic(t *testing.T, shop string) time.Duration {
	t.Helper()
	home.apply(t, fmt.Sprintf(shared, shop, "restored"))
	since := lastRow(confirmedRows(t, shop))
	home.kubectl(t, "scale", "deployment", "pg", "-n", shop, "--replicas=0")
	home.kubectl(t, "wait", "pod", "-n", shop, "-l", "app=pg", "--for=delete", "--timeout=180s")
	home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: restic}
spec:
  nodeSelector: {kubernetes.io/hostname: home-control-plane}
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 65534, runAsGroup: 65534, fsGroup: 65534, fsGroupChangePolicy: OnRootMismatch}
  containers:
  - name: restic
    image: %s
    env: [{name: RESTIC_PASSWORD, value: none}, {name: RESTIC_REPOSITORY, value: /repository/r}]
    command: [sh, -c, "set -e; restic init -q; restic --no-cache backup -q /data; restic --no-cache restore -q latest --target /restored"]
    volumeMounts: [{name: data, mountPath: /data}, {name: restored, mountPath: /restored}, {name: repository, mountPath: /repository}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: pg}}
  - {name: restored, persistentVolumeClaim: {claimName: restored}}
  - {name: repository, emptyDir: {}}
`, shop, image))
	eventually(t, "restic has copied the database", func(c *assert.CollectT) {
		pod, err := home.client.CoreV1().Pods(shop).Get(t.Context(), "restic", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, corev1.PodSucceeded, pod.Status.Phase)
	})
	home.apply(t, fmt.Sprintf(postgresPod, shop, "restored")+fmt.Sprintf(postgres, image, "restored", "/data/data/pg"))
	awaitRows(t, shop, 20)
	requireAllRows(t, shop)
	waited := gaps(confirmedRows(t, shop), since)
	require.NotEmpty(t, waited, "gaps that the customer has seen")
	return slices.Max(waited)
}

// shared is a claim of its own.
const shared = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: %s}
spec:
  storageClassName: lodestone
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 256Mi}}
`

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
		return must.Get(t, home.client.CoreV1().Pods(shop), pod.Name)
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
