package replicas

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func objects(t *testing.T) *clients.VolumeMoveClient {
	t.Helper()
	client, err := clients.NewVolumeMoveClient(bed.Home.AdminConfig())
	require.NoError(t, err)
	return client
}

// replicate makes a VolumeReplica of claim data, with its copy in a cluster.
func replicate(t *testing.T, namespace, cluster string, tune ...func(*v1alpha1.VolumeReplica)) *v1alpha1.VolumeReplica {
	t.Helper()
	wanted := &v1alpha1.VolumeReplica{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: v1alpha1.VolumeReplicaSpec{
			Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: cluster}},
			RPO: &metav1.Duration{Duration: 10 * time.Second}, Versions: v1alpha1.ReplicaVersions{Keep: 2},
		},
	}
	for _, change := range tune {
		change(wanted)
	}
	return must.Create(t, objects(t).Replicas(namespace), wanted)
}

// until waits until a replica is as is wanted, and returns it.
func until(t *testing.T, what string, made *v1alpha1.VolumeReplica, is func(*v1alpha1.VolumeReplica) bool) (now *v1alpha1.VolumeReplica) {
	t.Helper()
	await.Until(t, what, func() bool {
		now = must.Get(t, objects(t).Replicas(made.Namespace), made.Name)
		return is(now)
	}, func() any { return now.Status }, func() any { return await.Events(t, bed.Home.Client(), made.Namespace) },
		func() any { return left(t, made) })
	return now
}

// says waits until the condition Healthy of a replica says something.
func says(t *testing.T, made *v1alpha1.VolumeReplica, reason, text string) {
	t.Helper()
	until(t, "the replica says "+text, made, func(now *v1alpha1.VolumeReplica) bool {
		healthy := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaHealthy)
		return healthy != nil && healthy.Status == metav1.ConditionFalse && healthy.Reason == reason && strings.Contains(healthy.Message, text)
	})
}

// sealed waits until a version of a later moment than after is sealed, and returns the replica.
func sealed(t *testing.T, made *v1alpha1.VolumeReplica, after time.Time) *v1alpha1.VolumeReplica {
	t.Helper()
	return until(t, "a version is sealed", made, func(now *v1alpha1.VolumeReplica) bool {
		return len(now.Status.Standbys) == 1 && now.Status.Standbys[0].Sealed != nil &&
			now.Status.Standbys[0].Sealed.After(after) &&
			meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ReplicaHealthy)
	})
}

// contentOf returns the folder that stands for what a version has.
func contentOf(t *testing.T, cluster *testbed.Cluster, driver, namespace, version string) string {
	t.Helper()
	content := must.Kubectl(t, cluster, "", "get", "volumesnapshot", "-n", namespace, version, "-o",
		"jsonpath={.status.boundVolumeSnapshotContentName}")
	handle := must.Kubectl(t, cluster, "", "get", "volumesnapshotcontent", content, "-o", "jsonpath={.status.snapshotHandle}")
	return filepath.Join(bed.Disks.Root, driver, handle)
}

// left is what there is of a replica in both clusters.
func left(t *testing.T, made *v1alpha1.VolumeReplica) (found []string) {
	t.Helper()
	for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
		for _, kind := range []string{"persistentvolumeclaims", "volumesnapshots", "secrets"} {
			names := must.Kubectl(t, cluster, "", "get", kind, "-A", "-l", keys.ReplicaOf+"="+string(made.UID), "-o", "name")
			found = append(found, strings.Fields(names)...)
		}
		names := must.Kubectl(t, cluster, "", "get", "pods,secrets", "-A", "-l", keys.MoveOf+"="+string(made.UID), "-o", "name")
		found = append(found, strings.Fields(names)...)
	}
	return found
}

// removes deletes a replica, and waits until nothing is left of it.
func removes(t *testing.T, made *v1alpha1.VolumeReplica) {
	t.Helper()
	must.Delete(t, objects(t).Replicas(made.Namespace), made.Name)
	await.Until(t, "the replica is gone", func() bool {
		_, err := objects(t).Replicas(made.Namespace).Get(t.Context(), made.Name, metav1.GetOptions{})
		return err != nil && len(left(t, made)) == 0
	}, func() any { return left(t, made) })
}

// fill makes a volume that takes some seconds to copy slowly.
func fill(t *testing.T, folder string) {
	t.Helper()
	much := make([]byte, 16<<20)
	_, err := rand.Read(much)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "much"), much, 0o600))
}

func TestASecondCopyFollowsAClaimWhileItsApplicationRuns(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	from := folder(t, namespace)
	fill(t, from)
	before := counted(t, from)
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Spec.RPO.Duration = time.Hour })
	now := sealed(t, made, time.Time{})
	t.Log("first", now.Status.Standbys[0])
	assert.True(t, meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ReplicaWithinRPO), "%v", now.Status.Conditions)
	first := now.Status.Standbys[0]
	assert.Greater(t, first.Sent, int64(16<<20), "all is sent once")
	assert.Equal(t, keys.Home, now.Status.Primary)
	assert.EqualValues(t, 1, now.Status.Epoch)
	assert.Equal(t, westDriver, first.Class)
	assert.NotEmpty(t, first.Versions[0].Root)
	has := contentOf(t, bed.West, westDriver, namespace, first.Versions[0].Name)
	assert.GreaterOrEqual(t, counted(t, has), before, "what was written before the cut is in it")
	assert.LessOrEqual(t, counted(t, has), counted(t, from))

	spec := func(patch string) {
		t.Helper()
		must.Patch(t, objects(t).Replicas(namespace), made.Name, types.MergePatchType, []byte(`{"spec":`+patch+`}`))
	}

	// Later ones cost what has changed, and older ones go.
	spec(`{"rpo":"10s"}`)
	for range 2 {
		last := now.Status.Standbys[0].Sealed.Time
		now = sealed(t, made, last)
		assert.Less(t, now.Status.Standbys[0].Sent, int64(4<<20), "what is at the standby is not sent again")
	}
	until(t, "two versions are kept", made, func(now *v1alpha1.VolumeReplica) bool { return len(now.Status.Standbys[0].Versions) == 2 })
	next := contentOf(t, bed.West, westDriver, namespace, now.Status.Standbys[0].Versions[0].Name)
	assert.Greater(t, counted(t, next), before)

	// Paused, and gone on with. A version that somebody deleted does not count any more.
	spec(`{"paused":true}`)
	says(t, made, "Paused", "spec.paused is set")
	now = until(t, "the last point is over", made, func(now *v1alpha1.VolumeReplica) bool { return now.Status.Standbys[0].Point == "" })
	gone := now.Status.Standbys[0].Versions[0].Name
	must.Kubectl(t, bed.West, "", "delete", "volumesnapshot", "-n", namespace, gone)
	spec(`{"paused":false}`)
	until(t, "it does not count", made, func(now *v1alpha1.VolumeReplica) bool {
		return !slices.ContainsFunc(now.Status.Standbys[0].Versions, func(v v1alpha1.ReplicaVersion) bool { return v.Name == gone })
	})
	sealed(t, made, now.Status.Standbys[0].Sealed.Time)
	removes(t, made)
	beyond(t, namespace, counted(t, from))
	for _, driver := range drivers {
		await.Until(t, "the storage has no snapshot", func() bool {
			taken, err := driver.Snapshots()
			require.NoError(t, err)
			return !slices.ContainsFunc(mapValues(taken), func(id string) bool { return strings.Contains(id, string(made.UID)) })
		})
	}
}

func mapValues[V any](m map[string]V) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	return names
}

func TestACopyGoesOnWhereTheProvisionerStopped(t *testing.T) {
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	fill(t, folder(t, namespace))
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Spec.BandwidthLimit = ptr.To(resource.MustParse("4Mi")) })
	restart := func() {
		t.Helper()
		require.NoError(t, provisioner.Stop())
		var err error
		provisioner, err = bed.StartProvisioner(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
	}
	for _, stage := range []string{"Copy", "Seal"} {
		until(t, "the point is in "+stage, made, func(now *v1alpha1.VolumeReplica) bool {
			return len(now.Status.Standbys) == 1 && (strings.HasSuffix(now.Status.Standbys[0].Point, stage) ||
				len(now.Status.Standbys[0].Versions) > 0)
		})
		restart()
	}
	now := sealed(t, made, time.Time{})
	has := counted(t, contentOf(t, bed.West, westDriver, namespace, now.Status.Standbys[0].Versions[0].Name))
	assert.Positive(t, has)
	madeOf(t, namespace, "drill", "data", now.Status.Standbys[0].Versions[0].Name)
	drill(t, namespace, "drill")
	restart()
	had, _ := drilled(t, namespace, "drill")
	assert.Equal(t, has, had)

	// A standby that cannot be reached says so. Its API server hangs: one that starts refuses until it knows the roles.
	require.NoError(t, bed.West.PauseAPIServer())
	must.Delete(t, objects(t).Replicas(namespace), made.Name)
	until(t, "it says so", made, func(now *v1alpha1.VolumeReplica) bool {
		healthy := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaHealthy)
		return healthy.Reason == "BeingRemoved" && strings.Contains(healthy.Message, "cannot be removed") || healthy.Reason == "ClusterAway"
	})
	madeOf(t, namespace, "waits", "data", "")
	told(t, namespace, "waits", "waiting until cluster west can be used, which has the version that this claim is to be made from: ")
	require.NoError(t, bed.West.ResumeAPIServer())
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	await.Until(t, "the replica is gone", func() bool { return len(left(t, made)) == 0 }, func() any { return left(t, made) })
}

func TestAClaimSaysWhereItsSecondCopyIs(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace)
	annotate := func(to, rpo string) {
		must.Patch(t, claims, "data", types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:%q}}}`, keys.ReplicateTo, to, keys.ReplicateRPO, rpo))
	}
	annotate("home", "1h")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NotReplicated"), "names no other: add one")
	annotate("home,west", "1h")
	await.Until(t, "there is a VolumeReplica", func() bool { return len(replicasOf(t, namespace)) == 1 },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })
	made := &replicasOf(t, namespace)[0]
	assert.Equal(t, "data-west", made.Name)
	assert.Equal(t, v1alpha1.VolumeReplicaSpec{Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "west"}},
		RPO: &metav1.Duration{Duration: time.Hour}, Consistency: made.Spec.Consistency,
		Versions: made.Spec.Versions}, made.Spec)
	sealed(t, made, time.Time{})
	removes(t, made)
	annotate("home,west", "2h")
	await.Never(t, "one that its user deleted is not made again", func() bool { return len(replicasOf(t, namespace)) > 0 })
}

func TestAReplicaAndMovesOfItsClaimAreInNobodysWay(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, "west")
	made := replicate(t, namespace, keys.Home)
	now := sealed(t, made, time.Time{})
	assert.Equal(t, "west", now.Status.Primary)
	assert.Positive(t, counted(t, contentOf(t, bed.Home, homeDriver, fabric.Storage, now.Status.Standbys[0].Versions[0].Name)))

	move := func(cluster string) {
		t.Helper()
		moved := must.Create(t, objects(t).In(namespace), &v1alpha1.VolumeMove{
			ObjectMeta: metav1.ObjectMeta{Name: "to-" + cluster},
			Spec: v1alpha1.VolumeMoveSpec{Claims: []string{"data"}, Target: v1alpha1.MoveTarget{Cluster: cluster},
				KeepSourceFor: &metav1.Duration{Duration: time.Second}},
		})
		await.Until(t, "the claim is moved to "+cluster, func() bool {
			moved = must.Get(t, objects(t).In(namespace), moved.Name)
			require.NotEqual(t, v1alpha1.MoveFailed, moved.Status.Phase, moved.Status.Message)
			return moved.Status.Phase == v1alpha1.MoveDone
		}, func() any { return moved.Status })
		assert.Equal(t, cluster == keys.Home, strings.Contains(accepted(moved), " begins with version "), accepted(moved))
		beyond(t, namespace, counted(t, folder(t, namespace)))
	}
	move(keys.Home)
	says(t, made, "SameCluster", "is in cluster home, where its copy is, too")
	assert.NotEmpty(t, until(t, "versions stay", made, func(*v1alpha1.VolumeReplica) bool { return true }).Status.Standbys[0].Versions)
	move("west")
	// It is tried again soon after it was refused.
	sealed(t, made, now.Status.Standbys[0].Sealed.Time)
	removes(t, made)
}

func TestAReplicaIsRefusedInWordsWhereItCannotBe(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	none := replicate(t, namespace, "west")
	says(t, none, "ClaimGone", fmt.Sprintf(`there is no claim "data" in namespace %s`, namespace))
	removes(t, none)

	counts(t, namespace, fabric.Class, keys.Home)
	without := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Spec.Versions.In = v1alpha1.InSnapshots })
	says(t, without, "NoSnapshots",
		"no version can be sealed at the standby, for cluster west has no VolumeSnapshotClass of driver disk.west.test")
	removes(t, without)
}
