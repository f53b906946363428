package replicas

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// thirdDriver is the driver of the third cluster. Its class there has the name that the class of west has in west.
const thirdDriver = "files.third.test"

// wholeThird registers a third cluster that is all that west is: its agent runs, its pods do, and it has storage with snapshots.
func wholeThird(t *testing.T) *testbed.Cluster {
	t.Helper()
	cluster, kubeconfig, _ := agentInThird(t, nil)
	pods := processes.New(processes.Config{
		Client: cluster.Client(), Disks: bed.Disks, Dir: filepath.Join(filepath.Dir(cluster.LogDirectory()), "pods"), Programs: programs,
	})
	t.Cleanup(pods.EndAll)
	_, err := fakekubelet.Start(t.Context(), fakekubelet.Options{Config: cluster.AdminConfig(), Runner: pods,
		Nodes: []fakekubelet.Node{{Name: "third-1", Drivers: map[string]int32{thirdDriver: 0}}}})
	require.NoError(t, err)
	built, err := sidecars.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	driver, err := sidecars.Start(t.Context(), cluster, built, sidecars.Options{
		Name: thirdDriver, Pool: 100 << 30, Snapshots: true, Folders: filepath.Join(bed.Disks.Root, thirdDriver),
	})
	require.NoError(t, err)
	must.Create(t, cluster.Client().StorageV1().StorageClasses(), driver.Class(westDriver, storagev1.VolumeBindingWaitForFirstConsumer))
	must.Kubectl(t, cluster, fmt.Sprintf(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotClass,
  metadata: {name: %[1]s}, driver: %[1]s, deletionPolicy: Delete}`, thirdDriver), "apply", "-f", "-")
	registerThird(t, kubeconfig, func(*v1alpha1.RemoteClusterSpec) {})
	require.NoError(t, bed.AwaitNode(t.Context(), "third", corev1.ConditionTrue))
	return cluster
}

// pointOf is the number of the point that a replica makes, and its stage; zero if it makes none.
func pointOf(now *v1alpha1.VolumeReplica) (number int64, stage string) {
	if len(now.Status.Standbys) == 1 {
		_, _ = fmt.Sscanf(now.Status.Standbys[0].Point, "point %d: %s", &number, &stage)
	}
	return number, stage
}

// TestOfTwoStandbysTheFreshestIsTakenOnceAndTheOtherOneGoesOn has one claim copied to two clusters, and its own lost while a point is made
// to one of them.
func TestOfTwoStandbysTheFreshestIsTakenOnceAndTheOtherOneGoesOn(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	there := wholeThird(t)
	counts(t, namespace, virtual, "west")
	lost := folder(t, namespace)
	fill(t, lost)
	to := func(name, cluster string) *v1alpha1.VolumeReplica {
		return replicate(t, namespace, cluster, func(r *v1alpha1.VolumeReplica) {
			r.Name, r.Spec.Versions.PinAbove = name, ptr.To(int32(0))
			r.Spec.AutomaticFailover = &v1alpha1.AutomaticFailover{
				After: &metav1.Duration{Duration: 10 * time.Second}, MaxLoss: &metav1.Duration{Duration: time.Hour}}
		})
	}
	stale, fresh := to("stale", keys.Home), to("fresh", "third")
	sealed(t, stale, time.Time{})
	sealed(t, fresh, time.Time{})

	// One of them gets no further, and so the other one is fresher, whose next point may be under way, too.
	limit := func(bytes string) {
		must.Patch(t, objects(t).Replicas(namespace), stale.Name, types.MergePatchType, []byte(`{"spec":{"bandwidthLimit":`+bytes+`}}`))
	}
	limit(`"64Ki"`)
	last, _ := pointOf(until(t, "a point is made", stale, func(now *v1alpha1.VolumeReplica) bool { n, _ := pointOf(now); return n > 0 }))
	fill(t, lost)
	slow := until(t, "a point of what was written is copied", stale, func(now *v1alpha1.VolumeReplica) bool {
		n, stage := pointOf(now)
		return n > last && stage == "Copy" && now.Status.Standbys[0].Sealed != nil
	})
	version := sealed(t, fresh, slow.Status.Standbys[0].Sealed.Time).Status.Standbys[0].Versions[0]
	has := counted(t, contentOf(t, there, thirdDriver, namespace, version.Name))
	require.NoError(t, bed.West.PauseAPIServer())
	resume := sync.OnceValue(bed.West.ResumeAPIServer)
	t.Cleanup(func() { _ = resume() })
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionFalse))
	limit("null")

	// The claim gets the freshest version, and goes on in the third cluster.
	over := failsOver(t, namespace)
	require.Equal(t, fresh.Name, over.Spec.Failover.Replica)
	over = inPhase(t, over, v1alpha1.MoveRetain)
	at := func() string {
		claim := await.Claim(t, bed.Home.Client(), namespace, "data")
		ref, err := backing.RefOf(await.Volume(t, bed.Home.Client(), claim.Spec.VolumeName))
		require.NoError(t, err)
		require.Equal(t, "third", ref.Cluster)
		return bed.FolderOf(t, there, ref.Namespace, ref.Name)
	}()
	await.Until(t, "the application counts in the third cluster", func() bool { return counted(t, at) > has+5 })

	// The copy at home goes on from there though west is away, and the other one says why it does not.
	moved := time.Now()
	now := sealed(t, stale, moved)
	assert.Equal(t, "third", now.Status.Primary)
	assert.Greater(t, counted(t, contentOf(t, bed.Home, homeDriver, fabric.Storage, now.Status.Standbys[0].Versions[0].Name)), has)
	says(t, fresh, "SameCluster", "is in cluster third, where its copy is, too")
	require.Len(t, must.List(t, objects(t).In(namespace)).Items, 1, "of two copies one is failed over to")
	whole := now.Status.Standbys[0].Sealed.Time

	// The old source returns: its pods end, and what points have left there goes.
	require.NoError(t, resume())
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	await.Until(t, "the pod in west is ended", func() bool {
		pods, err := bed.West.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0
	})
	inWest := func() (found []string) {
		for _, made := range []*v1alpha1.VolumeReplica{stale, fresh} {
			for kind, label := range map[string]string{"pvc,volumesnapshots": keys.ReplicaOf, "shadowpods,pods,secrets": keys.MoveOf} {
				found = append(found, strings.Fields(must.Kubectl(t, bed.West, "", "get", kind, "-n", namespace, "-l",
					label+"="+string(made.UID), "-o", "name"))...)
			}
		}
		return found
	}
	await.Until(t, "nothing is left of points in west", func() bool { return len(inWest()) == 0 }, func() any { return inWest() })
	sealed(t, stale, whole)

	// The claim goes back, and both copies go on.
	diverged := counted(t, lost)
	require.Positive(t, diverged)
	code, _, said := plugin(t, "failback", "data", "-n", namespace, "--keep-source-for", "0s", "-o", "name")
	require.Zero(t, code, said)
	assert.Equal(t, lost, folder(t, namespace))
	back := time.Now()
	for _, made := range []*v1alpha1.VolumeReplica{stale, fresh} {
		assert.Equal(t, "west", sealed(t, made, back).Status.Primary)
	}
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	for _, made := range []*v1alpha1.VolumeReplica{stale, fresh} {
		removes(t, made)
		names := must.Kubectl(t, there, "", "get", "pvc,volumesnapshots,secrets", "-A", "-l", keys.ReplicaOf+"="+string(made.UID), "-o", "name")
		assert.Empty(t, names)
	}
	beyond(t, namespace, counted(t, lost))
}
