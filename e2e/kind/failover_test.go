package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// diskClaim is a claim of 512 MiB, and more of its spec, as lines of YAML with their indentation (2).
const diskClaim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  storageClassName: %[3]s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 512Mi}}
%[4]s---
`

// rowsOf are the numbers of the rows that the database of a pod has.
func rowsOf(t *testing.T, in *cluster, namespace, pod string) map[int]bool {
	t.Helper()
	said := in.kubectl(t, "exec", pod, "-n", namespace, "--",
		"/usr/lib/postgresql/15/bin/psql", "-h", "/tmp", "-U", "postgres", "-d", "postgres", "-qAtc", "SELECT n FROM orders")
	have := map[int]bool{}
	for line := range strings.Lines(said) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
		have[n] = true
	}
	return have
}

// requirePrefix checks that of the rows that were confirmed a database has all up to one, and none behind it, and returns how many it has.
func requirePrefix(t *testing.T, rows []confirmed, have map[int]bool) int {
	t.Helper()
	end := 0
	for end < len(rows) && have[rows[end].row] {
		end++
	}
	for _, c := range rows[end:] {
		// The row behind the last may have been written, and its answer be on the way.
		require.False(t, have[c.row], "row %d is there, and row %d, which was confirmed before it, is not", c.row, rows[end].row)
	}
	return end
}

// succeed runs the kubectl plugin on home, which must succeed.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	said, code := lodestone(t, args...)
	require.Zero(t, code, "kubectl lodestone %s: %s", strings.Join(args, " "), said)
	return said
}

// TestADatabaseFailsOverWhenWestIsLostAndGoesBack: PostgreSQL in west, with a copy at home, while a customer writes. No row that was
// confirmed is lost: those behind the version that was taken are in a snapshot of the volume in west.
func TestADatabaseFailsOverWhenWestIsLostAndGoesBack(t *testing.T) {
	if !thorough() {
		t.Skip("it takes minutes in which west is paused: set E2E_LONG")
	}
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(diskClaim, shop, "pg", diskClass, ""))
	first := strings.Replace(postgresPod, "kubernetes.io/hostname: home-control-plane", "lodestone.dev/cluster: west", 1)
	home.apply(t, fmt.Sprintf(first, shop, "first")+fmt.Sprintf(postgres, image, "pg", "/data/pg"))
	deletePod(t, readyPod(t, shop, "first"))
	home.apply(t, deployed(shop)+"---\n"+fmt.Sprintf(customers, shop, image))
	readyPod(t, shop, "customer")
	awaitRows(t, shop, 20)
	lost := volumeOf(t, shop, "pg")
	require.Equal(t, west, lost.in)

	began := time.Now()
	succeed(t, "replicate", "pg", "-n", shop, "--to", "home", "--rpo", "30s", "--wait")
	t.Logf("the first version was sealed after %s", time.Since(began).Round(time.Second))
	awaitVersion(t, shop)

	t.Log("A drill: the database starts with the copy, while the customer and the points go on.")
	succeed(t, "failover", "pg", "-n", shop, "--test")
	all := confirmedRows(t, shop)
	home.apply(t, apart(shop, "drill")+fmt.Sprintf(postgres, image, "pg-drill", "/data/pg"))
	require.NotEqual(t, virtualNode, readyPod(t, shop, "drill").Spec.NodeName)
	has := requirePrefix(t, all, rowsOf(t, home, shop, "drill"))
	require.Positive(t, has)
	t.Logf("the drill has the first %d of %d rows", has, len(all))
	home.kubectl(t, "delete", "pod", "drill", "-n", shop)
	home.kubectl(t, "delete", "pvc", "pg-drill", "-n", shop)
	awaitVersion(t, shop)
	awaitRows(t, shop, 20)

	t.Log("West is lost.")
	require.NoError(t, west.container(t.Context(), "pause"))
	t.Cleanup(func() { _ = west.container(context.Background(), "unpause") })
	eventually(t, "home has noticed it", func(c *assert.CollectT) {
		said := home.kubectl(t, "get", "remotecluster", "west", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		assert.NotEqual(c, "True", said)
	})
	before := confirmedRows(t, shop)
	said, code := lodestone(t, "failover", "pg", "-n", shop, "--yes")
	require.NotZero(t, code, "without a fence that is declared nothing is to fail over while west does not answer: %s", said)
	began = time.Now()
	succeed(t, "failover", "pg", "-n", shop, "--fence", "Declared", "--yes")
	awaitRows(t, shop, 20)
	over := volumeOf(t, shop, "pg")
	require.Equal(t, home, over.in)
	at := podOf(t, shop)
	has = requirePrefix(t, before, rowsOf(t, home, shop, at))
	require.Positive(t, has)
	t.Logf("failed over: rows were confirmed again within %s of the command; the version had %d of %d rows, the newest %.1f s older than "+
		"the last row that was confirmed", time.Since(began).Round(time.Second), has, len(before), before[len(before)-1].at-before[has-1].at)
	diverged := before[has:]

	t.Log("West is back: its pod ends, and what it had written is kept.")
	require.NoError(t, west.container(t.Context(), "unpause"))
	eventually(t, "the pod in west is ended", func(c *assert.CollectT) {
		pods, err := west.client.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{LabelSelector: "app=pg"})
		require.NoError(c, err)
		assert.Empty(c, pods.Items)
	})
	eventually(t, "the failover says how to go back", func(c *assert.CollectT) {
		assert.Contains(c, succeed(t, "move", "status", "pg", "-n", shop), "kubectl lodestone failback")
	})
	awaitRows(t, shop, 20)

	began = time.Now()
	succeed(t, "failback", "pg", "-n", shop, "--keep-source-for", "0s")
	awaitRows(t, shop, 20)
	t.Logf("back in west, with what was written at home, after %s", time.Since(began).Round(time.Second))
	require.Equal(t, lost.directory, volumeOf(t, shop, "pg").directory)
	all = confirmedRows(t, shop)
	now := rowsOf(t, home, shop, podOf(t, shop))
	for i, c := range all {
		if i < has || i >= len(before) {
			require.True(t, now[c.row], "row %d was confirmed and is lost", c.row)
		}
	}

	t.Log("What was confirmed in west behind the version is in the snapshot that was taken before the way back.")
	snapshot := strings.Fields(west.kubectl(t, "get", "volumesnapshots", "-n", shop, "-l", "lodestone.dev/move", "-o",
		"jsonpath={.items[*].metadata.name}"))
	require.Len(t, snapshot, 1)
	west.apply(t, fmt.Sprintf(diskClaim, shop, "diverged", "disk",
		"  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: "+snapshot[0]+"}\n")+
		apart(shop, "diverged")+fmt.Sprintf(postgres, image, "diverged", "/data/pg"))
	west.kubectl(t, "wait", "pod", "diverged", "-n", shop, "--for=condition=Ready", "--timeout=180s")
	behind := rowsOf(t, west, shop, "diverged")
	for _, c := range diverged {
		require.True(t, behind[c.row], "row %d was confirmed in west and is lost", c.row)
	}
	t.Logf("all of the %d rows behind the version are in it", len(diverged))
	west.kubectl(t, "delete", "pod", "diverged", "-n", shop)
	west.kubectl(t, "delete", "pvc", "diverged", "-n", shop)
	succeed(t, "move", "finalize", "pg", "-n", shop)
	eventually(t, "that snapshot goes", func(c *assert.CollectT) {
		assert.Empty(c, west.kubectl(t, "get", "volumesnapshots", "-n", shop, "-l", "lodestone.dev/move", "-o", "name"))
	})
	succeed(t, "replicate", "delete", "pg", "-n", shop, "--yes")
}

// apart is a pod of PostgreSQL on some node, without the rest of its spec, which no Service leads to.
func apart(namespace, name string) string {
	pod := fmt.Sprintf(strings.Replace(postgresPod, "  nodeSelector: {kubernetes.io/hostname: home-control-plane}\n", "", 1), namespace, name)
	return strings.Replace(pod, "app: pg", "app: "+name, 1)
}

// podOf is the pod of the Deployment pg that is ready.
func podOf(t *testing.T, namespace string) string {
	t.Helper()
	name := ""
	eventually(t, "the database is ready", func(c *assert.CollectT) {
		pods, err := home.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=pg"})
		require.NoError(c, err)
		name = ""
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp == nil && isReady(&pods.Items[i]) {
				name = pods.Items[i].Name
			}
		}
		require.NotEmpty(c, name)
	})
	return name
}

// awaitVersion waits until a version of pg is sealed that is of a later moment than now.
func awaitVersion(t *testing.T, namespace string) {
	t.Helper()
	now := metav1.Now()
	eventually(t, "a later version is sealed", func(c *assert.CollectT) {
		var replica v1alpha1.VolumeReplica
		require.NoError(c, json.Unmarshal([]byte(home.kubectl(t, "get", "volumereplica", "pg-home", "-n", namespace, "-o", "json")), &replica))
		require.Len(c, replica.Status.Standbys, 1)
		versions := replica.Status.Standbys[0].Versions
		require.NotEmpty(c, versions)
		assert.True(c, slices.ContainsFunc(versions, func(v v1alpha1.ReplicaVersion) bool { return now.Before(&v.Cut) }), "%+v", replica.Status)
	})
}
