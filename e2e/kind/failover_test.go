package kind

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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
	lost := sellsInWest(t, shop)
	replicate(t, shop, "pg")

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
	awaitVersion(t, shop, "pg")
	awaitRows(t, shop, 20)

	t.Log("West is lost.")
	loseWest(t)
	before := confirmedRows(t, shop)
	said, code := lodestone(t, "failover", "pg", "-n", shop, "--yes")
	require.NotZero(t, code, "without a fence that is declared nothing is to fail over while west does not answer: %s", said)
	began := time.Now()
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
	awaitEnded(t, shop, "pg", "app=pg")
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

	requireInSnapshot(t, shop, diverged)
	finalize(t, shop, "pg")
	succeed(t, "replicate", "delete", "pg", "-n", shop, "--yes")
}

// TestWestReturnsAtEachStepOfAFailover: west answers again while claim pg, which was in west, fails over to home. The failover ends all
// the same, one database is left, and what only that in west had is kept.
func TestWestReturnsAtEachStepOfAFailover(t *testing.T) {
	if !thorough() {
		t.Skip("it takes minutes in which west is paused: set E2E_LONG")
	}
	shop := namespace(t)
	lost := sellsInWest(t, shop)
	replicate(t, shop, "pg")
	steps := []v1alpha1.MovePhase{v1alpha1.MovePrepare, v1alpha1.MoveProvision, v1alpha1.MoveQuiesce, v1alpha1.MoveFence, v1alpha1.MoveCommit,
		v1alpha1.MoveResume, v1alpha1.MoveRetain}
	met := map[v1alpha1.MovePhase]bool{}
	var without []confirmed // rows that are in no version that was taken
	for i, step := range steps {
		awaitVersion(t, shop, "pg")
		awaitRows(t, shop, 20)
		unpause := loseWest(t)
		over := move(t, shop, "pg", keys.Home, func(spec *v1alpha1.VolumeMoveSpec) {
			spec.KeepSourceFor, spec.Failover = nil, &v1alpha1.MoveFailover{Replica: "pg-home", Fence: v1alpha1.FenceDeclared}
		})
		at := reaches(t, over, steps[i:]...).Status.Phase
		unpause()
		met[at] = true
		require.Equal(t, v1alpha1.MoveRetain, reaches(t, over, v1alpha1.MoveRetain).Status.Phase)
		awaitRows(t, shop, 20)
		require.Equal(t, home, volumeOf(t, shop, "pg").in)
		awaitEnded(t, shop, "pg", "app=pg")
		known := slices.DeleteFunc(confirmedRows(t, shop), func(c confirmed) bool { return slices.Contains(without, c) })
		alone := missing(t, known, rowsOf(t, home, shop, podOf(t, shop)))
		t.Logf("west was to be back in phase %s, and was in %s, with %d of %d rows alone: %s", step, at, len(alone), len(known),
			spans(reaches(t, over, v1alpha1.MoveRetain)))
		succeed(t, "failback", "pg", "-n", shop, "--keep-source-for", "0s")
		awaitRows(t, shop, 20)
		require.Equal(t, lost.directory, volumeOf(t, shop, "pg").directory)
		requireInSnapshot(t, shop, alone)
		without = append(without, alone...)
		finalize(t, shop, "pg")
	}
	for _, step := range steps[1:] {
		assert.True(t, met[step], "west never returned in phase %s", step)
	}
	succeed(t, "replicate", "delete", "pg", "-n", shop, "--yes")
}

// missing are those of confirmed rows that a database does not have, which were confirmed one after the other.
func missing(t *testing.T, rows []confirmed, have map[int]bool) []confirmed {
	t.Helper()
	there := func(c confirmed) bool { return have[c.row] }
	begin := slices.IndexFunc(rows, func(c confirmed) bool { return !there(c) })
	if begin < 0 {
		return nil
	}
	end := len(rows)
	for end > begin && there(rows[end-1]) {
		end--
	}
	require.False(t, slices.ContainsFunc(rows[begin:end], there), "of rows %d to %d some are there", rows[begin].row, rows[end-1].row)
	return rows[begin:end]
}

// sellsInWest has a customer write to PostgreSQL in west, and returns the volume of its claim pg.
func sellsInWest(t *testing.T, shop string) *volume {
	t.Helper()
	home.apply(t, fmt.Sprintf(diskClaim, shop, "pg", diskClass, ""))
	first := strings.Replace(postgresPod, "kubernetes.io/hostname: home-control-plane", "lodestone.dev/cluster: west", 1)
	home.apply(t, fmt.Sprintf(first, shop, "first")+fmt.Sprintf(postgres, image, "pg", "/data/pg"))
	deletePod(t, readyPod(t, shop, "first"))
	home.apply(t, deployed(shop)+"---\n"+fmt.Sprintf(customers, shop, image))
	readyPod(t, shop, "customer")
	awaitRows(t, shop, 20)
	found := volumeOf(t, shop, "pg")
	require.Equal(t, west, found.in)
	return found
}

// replicate has a copy of a claim of west kept at home, as more flags say, and waits for its second version.
func replicate(t *testing.T, namespace, claim string, flags ...string) {
	t.Helper()
	began := time.Now()
	succeed(t, append([]string{"replicate", claim, "-n", namespace, "--to", "home", "--rpo", "30s", "--wait"}, flags...)...)
	t.Logf("the first version was sealed after %s", time.Since(began).Round(time.Second))
	awaitVersion(t, namespace, claim)
}

// awaitVersion waits until a version of a claim is sealed at home that is of a later moment than now.
func awaitVersion(t *testing.T, namespace, claim string) {
	t.Helper()
	awaitLater(t, namespace, claim+"-home")
}

// awaitLater waits until a version of a VolumeReplica is sealed that is of a later moment than now, and returns what it says then.
func awaitLater(t *testing.T, namespace, name string) v1alpha1.ReplicaStandbyStatus {
	t.Helper()
	now := metav1.Now()
	var standby v1alpha1.ReplicaStandbyStatus
	eventually(t, "a later version is sealed", func(c *assert.CollectT) {
		replica := replicaOf(t, c, namespace, name)
		standby = replica.Status.Standbys[0]
		require.NotEmpty(c, standby.Versions)
		later := func(v v1alpha1.ReplicaVersion) bool { return now.Before(&v.Cut) }
		assert.True(c, slices.ContainsFunc(standby.Versions, later), "%+v", replica.Status)
	})
	return standby
}

// awaitPaused has no new version made of a VolumeReplica, waits until none is, and returns what it says then.
func awaitPaused(t *testing.T, namespace, name string) v1alpha1.ReplicaStandbyStatus {
	t.Helper()
	succeed(t, "replicate", "pause", name, "-n", namespace)
	var standby v1alpha1.ReplicaStandbyStatus
	eventually(t, "no version is being made", func(c *assert.CollectT) {
		replica := replicaOf(t, c, namespace, name)
		standby = replica.Status.Standbys[0]
		healthy := meta.FindStatusCondition(replica.Status.Conditions, v1alpha1.ReplicaHealthy)
		require.NotNil(c, healthy)
		require.Equal(c, "Paused", healthy.Reason)
		require.Empty(c, standby.Point)
		require.NotEmpty(c, standby.Versions)
	})
	return standby
}

// replicaOf reads a VolumeReplica that has its standby.
func replicaOf(t *testing.T, c require.TestingT, namespace, name string) *v1alpha1.VolumeReplica {
	t.Helper()
	replica, err := objects(t).Replicas(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(c, err)
	require.Len(c, replica.Status.Standbys, 1)
	return replica
}

// loseWest stops all of west until the returned function is called, and waits until home has noticed it.
func loseWest(t *testing.T) (unpause func()) {
	t.Helper()
	require.NoError(t, west.container(t.Context(), "pause"))
	t.Cleanup(func() { _ = west.container(context.Background(), "unpause") })
	eventually(t, "home has noticed it", func(c *assert.CollectT) {
		said := home.kubectl(t, "get", "remotecluster", "west", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		assert.NotEqual(c, "True", said)
	})
	return func() { require.NoError(t, west.container(t.Context(), "unpause")) }
}

// awaitEnded waits until west, which is back, has ended the pods that a selector names, and home says how to go back.
func awaitEnded(t *testing.T, namespace, claim, selector string) {
	t.Helper()
	eventually(t, "the pod in west is ended", func(c *assert.CollectT) {
		pods, err := west.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		require.NoError(c, err)
		assert.Empty(c, pods.Items)
	})
	eventually(t, "the failover says how to go back", func(c *assert.CollectT) {
		assert.Contains(c, succeed(t, "move", "status", claim, "-n", namespace), "kubectl lodestone failback")
	})
}

// requireInSnapshot checks that west has kept what its volume of claim pg had before the way back, with these rows.
func requireInSnapshot(t *testing.T, shop string, rows []confirmed) {
	t.Helper()
	snapshot := strings.Fields(west.kubectl(t, "get", "volumesnapshots", "-n", shop, "-l", "lodestone.dev/move", "-o",
		"jsonpath={.items[*].metadata.name}"))
	require.Len(t, snapshot, 1)
	west.apply(t, fmt.Sprintf(diskClaim, shop, "diverged", "disk",
		"  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: "+snapshot[0]+"}\n")+
		apart(shop, "diverged")+fmt.Sprintf(postgres, image, "diverged", "/data/pg"))
	west.kubectl(t, "wait", "pod", "diverged", "-n", shop, "--for=condition=Ready", "--timeout=180s")
	have := rowsOf(t, west, shop, "diverged")
	for _, c := range rows {
		require.True(t, have[c.row], "row %d was confirmed in west and is lost", c.row)
	}
	t.Logf("all of the %d rows that west had alone are in its snapshot", len(rows))
	west.kubectl(t, "delete", "pod", "diverged", "-n", shop)
	west.kubectl(t, "delete", "pvc", "diverged", "-n", shop)
}

// finalize gives up what a failover of a claim has left in west.
func finalize(t *testing.T, namespace, claim string) {
	t.Helper()
	eventually(t, "the snapshot in west goes", func(c *assert.CollectT) {
		// The way back comes first, as long as it is under way.
		said, code := lodestone(t, "move", "finalize", claim, "-n", namespace)
		assert.Zero(c, code, said)
		assert.Empty(c, west.kubectl(t, "get", "volumesnapshots", "-n", namespace, "-l", "lodestone.dev/move", "-o", "name"))
	})
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
