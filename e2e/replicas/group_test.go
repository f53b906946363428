package replicas

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// pairScript counts in two volumes, in data before wal, each of which it locks while it writes there. It starts as a database does: what
// data has and wal has not is written there, and files of different moments are not touched.
const pairScript = `exec 8</data 9</wal
n=$(tail -n 1 /data/log 2>/dev/null || true); n=${n:-0}
w=$(tail -n 1 /wal/log 2>/dev/null || true); w=${w:-0}
if [ $n -eq $((w+1)) ]; then echo $n >> /wal/log; elif [ $n -ne $w ]; then echo $n $w > /data/mixed; exit 1; fi
while :; do n=$((n+1))
flock -s 8; echo $n >> /data/log; flock -u 8
flock -s 9; echo $n >> /wal/log; flock -u 9
sleep 0.02; done`

// pair returns a pod that counts in two claims.
func pair(namespace, name, data, wal string) *corev1.Pod {
	pod := fabric.NewPod(namespace, name, data, wal)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	pod.Spec.Tolerations = []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists}}
	pod.Spec.Containers = []corev1.Container{{
		Name: "app", Image: processes.Shell, Command: []string{"sh", "-c", pairScript},
		VolumeMounts: []corev1.VolumeMount{{Name: data, MountPath: "/data"}, {Name: wal, MountPath: "/wal"}},
	}}
	return pod
}

// countsInTwo makes claims data and wal, which get their volumes in a cluster, and a Deployment that counts in both.
func countsInTwo(t *testing.T, namespace, cluster string) {
	t.Helper()
	core := bed.Home.Client().CoreV1()
	for _, name := range []string{"data", "wal"} {
		must.Create(t, core.PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, name, virtual))
	}
	first := fabric.AtHome(pair(namespace, "first", "data", "wal"))
	if cluster != keys.Home {
		first = fabric.InWest(pair(namespace, "first", "data", "wal"))
	}
	must.Create(t, core.Pods(namespace), first)
	beyond(t, namespace, 0)
	must.Delete(t, core.Pods(namespace), "first")
	labels := map[string]string{"app": "data"}
	must.Create(t, bed.Home.Client().AppsV1().Deployments(namespace), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pair(namespace, "", "data", "wal").Spec},
		},
	})
	beyond(t, namespace, counted(t, folder(t, namespace))+5)
}

// ofOneMoment fails unless two folders are of one moment, and returns how far the application had counted.
func ofOneMoment(t *testing.T, data, wal string) int {
	t.Helper()
	n, w := counted(t, data), counted(t, wal)
	require.Contains(t, []int{w, w + 1}, n, "the application writes each number to data, then to wal")
	assert.NoFileExists(t, filepath.Join(data, "mixed"))
	return n
}

// versionIsOfOneMoment does the same for a version in west.
func versionIsOfOneMoment(t *testing.T, namespace, version string) int {
	t.Helper()
	return ofOneMoment(t, contentOf(t, bed.West, westDriver, namespace, version), contentOf(t, bed.West, westDriver, namespace, version+"-1"))
}

func TestVersionsOfSeveralClaimsAreOfOneMomentAndFailOverTogether(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	countsInTwo(t, namespace, keys.Home)
	as := editor(t, namespace)
	code, out, said := plugin(t, append([]string{"replicate", "data", "wal", "--group", "--to", "west", "--dry-run"}, as...)...)
	require.Zero(t, code, said)
	assert.Contains(t, out, "would make VolumeReplica data-west: it copies claims data, wal, all of one moment, to ")
	code, out, said = plugin(t, append([]string{"replicate", "deployment/data", "--group", "--to", "west", "--rpo", "10s", "--keep", "3",
		"--wait"}, as...)...)
	require.Zero(t, code, said)
	assert.Contains(t, out, "volumereplica/data-west created\ncluster west has a copy of claims \"data\", \"wal\", ")
	made := &replicasOf(t, namespace)[0]
	assert.Equal(t, []string{"data", "wal"}, made.Spec.Claims)
	code, out, _ = plugin(t, append([]string{"replicate", "status"}, as...)...)
	require.Zero(t, code)
	assert.Regexp(t, `(?m)^data-west +data,wal +home +west +\d+ `, out)

	// The provisioner is stopped at some stages; each version is whole, and of one moment.
	now, versions := sealed(t, made, time.Time{}), map[string]int{}
	for _, stage := range []string{"Cut", "Copy", "Settle", "Seal", "Clean"} {
		after := now.Status.Standbys[0].Sealed.Time
		until(t, "a point is in "+stage, made, func(now *v1alpha1.VolumeReplica) bool {
			return strings.HasSuffix(now.Status.Standbys[0].Point, stage) || now.Status.Standbys[0].Sealed.After(after)
		})
		require.NoError(t, provisioner.Stop())
		var err error
		provisioner, err = bed.StartProvisioner(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
		now = sealed(t, made, after)
		version := now.Status.Standbys[0].Versions[0].Name
		versions[version] = versionIsOfOneMoment(t, namespace, version)
	}
	t.Log("versions", versions)
	assert.Len(t, versions, 5)
	now = pause(t, made)
	for _, label := range []string{keys.GroupPrefix + string(made.UID), keys.ReplicaOf + "=" + string(made.UID)} {
		names := must.Kubectl(t, bed.Home, "", "get", "pvc,volumesnapshots,volumegroupsnapshots", "-A", "-l", label, "-o", "name")
		assert.Empty(t, names, "nothing of a point is left at the source")
	}
	version := now.Status.Standbys[0].Versions[0]
	has := versionIsOfOneMoment(t, namespace, version.Name)

	// A drill has both claims of one version.
	code, out, said = plugin(t, append([]string{"failover", "wal", "--test"}, as...)...)
	require.Zero(t, code, said)
	assert.Contains(t, out, "with data-drill and wal-drill in place of data and wal, is scheduled to cluster west")
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), pair(namespace, "drill", "data-drill", "wal-drill"))
	await.Until(t, "the drill counts on", func() bool {
		data, wal := bed.Folder(t, namespace, "data-drill"), bed.Folder(t, namespace, "wal-drill")
		return data != "" && wal != "" && counted(t, data) > has+5 && counted(t, wal) > has+5
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), "drill")
	// One that does not say of what, and when, could be of another moment than the others.
	madeOf(t, namespace, "unsaid", made.Name, version.Name)
	told(t, namespace, "unsaid", `is of claims data, wal: say in annotation lodestone.dev/replica-claim of which of them`)

	// They fail over together, or not at all.
	only := &v1alpha1.VolumeReplica{ObjectMeta: made.ObjectMeta, Spec: *made.Spec.DeepCopy()}
	only.Spec.Claims = []string{"data"}
	assert.Contains(t, inPhase(t, failOver(t, "only", only, "", v1alpha1.FenceProven), v1alpha1.MoveFailed).Status.Message,
		"has claims data, wal at one moment, and they fail over together: name all of them, and no other")
	lost := [2]string{folder(t, namespace), bed.Folder(t, namespace, "wal")}
	code, out, said = plugin(t, append([]string{"failover", "wal", "--yes", "-o", "name"}, as...)...)
	require.Zero(t, code, said)
	assert.Contains(t, said, `has a copy of claims "data", "wal", `)
	over, err := objects(t).In(namespace).Get(t.Context(), strings.TrimPrefix(strings.TrimSpace(out), "volumemove.lodestone.dev/"),
		metav1.GetOptions{})
	require.NoError(t, err, out)
	assert.Equal(t, version.Name, over.Status.Failover.Version)
	diverged := ofOneMoment(t, lost[0], lost[1])
	assert.Greater(t, diverged, has)
	beyond(t, namespace, has)
	for i, name := range []string{"data", "wal"} {
		at := bed.Folder(t, namespace, name)
		assert.NotEqual(t, lost[i], at)
		assert.True(t, strings.HasPrefix(at, filepath.Join(bed.Disks.Root, westDriver)), at)
	}
	says(t, made, "Paused", "spec.paused is set")

	// And back together, with what was written there.
	atWest := beyond(t, namespace, has+20)
	code, _, said = plugin(t, append([]string{"failback", "data", "--keep-source-for", "0s"}, as...)...)
	require.Zero(t, code, said)
	beyond(t, namespace, atWest)
	assert.Equal(t, [2]string{folder(t, namespace), bed.Folder(t, namespace, "wal")}, lost)
	_, err = os.Stat(filepath.Join(lost[0], "mixed"))
	require.ErrorIs(t, err, os.ErrNotExist)
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	removes(t, made)
	for _, driver := range drivers {
		await.Until(t, "the storage has no snapshot", func() bool {
			taken, err := driver.Snapshots()
			require.NoError(t, err)
			for _, s := range taken {
				if strings.Contains(s.ID, string(made.UID)) {
					return false
				}
			}
			return true
		})
	}
}

func TestSeveralClaimsAreNotCopiedWhereNoSnapshotIsOfOneMoment(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	countsInTwo(t, namespace, "west")
	made := replicate(t, namespace, keys.Home, func(r *v1alpha1.VolumeReplica) { r.Spec.Claims = []string{"data", "wal"} })
	says(t, made, "NoSnapshots", "no snapshot of one moment can be taken of claims data, wal, for cluster west has no "+
		"VolumeGroupSnapshotClass of driver "+westDriver+" with deletionPolicy Delete, so nothing is copied")
	for _, found := range left(t, made) {
		assert.True(t, strings.HasPrefix(found, "secret/"), found)
	}
	removes(t, made)
}
