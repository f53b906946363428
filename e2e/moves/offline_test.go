package moves

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// forOnePod returns a claim that only one pod may use at a time. The nodes of the bed,
// and kube-scheduler in west, keep a second pod out, so a mover too.
func forOnePod(namespace, name string) *corev1.PersistentVolumeClaim {
	claim := fabric.NewClaim(namespace, name, fabric.Class)
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	return claim
}

func offline(m *v1alpha1.VolumeMove) { m.Spec.Offline = v1alpha1.OfflineAllow }

func TestAVolumeForOnePodMovesWhileItsPodStandsStill(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploysWith(t, forOnePod(namespace, "data"))
	from := folder(t, namespace, "data")

	refused := reaches(t, move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Name = "refused" }), v1alpha1.MoveFailed,
		v1alpha1.MoveDone)
	require.Equal(t, v1alpha1.MoveFailed, refused.Status.Phase, refused.Status.Message)
	assert.Contains(t, refused.Status.Message, `would stand still while all of claim "data" is copied, which is ReadWriteOncePod`)
	assert.Contains(t, refused.Status.Message, "allow that with spec.offline Allow (--offline)")
	_, err := moves(t, namespace).Patch(t.Context(), refused.Name, types.MergePatchType, []byte(`{"spec":{"offline":"Allow"}}`),
		metav1.PatchOptions{})
	require.ErrorContains(t, err, "offline cannot be changed")
	code, out, said := plugin(t, "move", "data", "-n", namespace, "--target-cluster", "west", "--offline", "--dry-run")
	require.Zero(t, code, said)
	assert.Contains(t, out, "would be stopped while all of ReadWriteOncePod claim data is copied")
	counts(t, from, counted(t, from)+10)

	for _, cluster := range []string{"west", keys.Home} {
		before := folder(t, namespace, "data")
		done := reaches(t, move(t, namespace, "data", cluster, offline), v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		t.Log("to", cluster, "downtime", done.Status.Downtime.Duration, spans(done))
		assert.Zero(t, done.Status.Claims[0].Pass, "nothing was copied beside the pod")
		assert.Equal(t, done.Status.Claims[0].SourceRoot, done.Status.Claims[0].TargetRoot)
		to := folder(t, namespace, "data")
		assert.NotEqual(t, before, to)
		counts(t, to, counted(t, to)+10)
		nothingLeft(t, namespace, done)
	}
}

// TestAMoverThatDoesNotEndIsNotWaitedForInSilence has the pod of the mover at the target stay, as it does on a node that is silent.
func TestAMoverThatDoesNotEndIsNotWaitedForInSilence(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploysWith(t, forOnePod(namespace, "data"))
	fill(t, folder(t, namespace, "data"))
	made := move(t, namespace, "data", "west", offline, limited)
	copies(t, made)
	there := bed.West.Client().CoreV1().Pods(namespace)
	list := must.List(t, there, metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)})
	require.Len(t, list.Items, 1)
	mover := list.Items[0]
	keep := func(finalizers string) {
		t.Helper()
		_, err := there.Patch(context.WithoutCancel(t.Context()), mover.Name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	keep(`["test.lodestone.dev/silent"]`)
	reaches(t, made, v1alpha1.MoveCommit)
	says(t, made, "its node "+mover.Spec.NodeName+" of west may be silent: bring it back, or once it is surely off delete the Node")
	claim := await.Claim(t, bed.Home.Client(), namespace, "data")
	assert.NotEqual(t, corev1.ClaimBound, claim.Status.Phase, "no pod gets the volume beside the mover")
	await.Until(t, "an event says so", func() bool {
		return slices.ContainsFunc(await.Events(t, bed.Home.Client(), namespace), func(line string) bool {
			return strings.Contains(line, "Waiting") && strings.Contains(line, "its node "+mover.Spec.NodeName)
		})
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	keep("null")
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	counts(t, folder(t, namespace, "data"), counted(t, folder(t, namespace, "data"))+10)
}

// fill makes a volume that takes some seconds to copy slowly.
func fill(t *testing.T, folder string) {
	t.Helper()
	much := make([]byte, 16<<20)
	_, err := rand.Read(much)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "much"), much, 0o600))
}

func limited(m *v1alpha1.VolumeMove) { m.Spec.BandwidthLimit = ptr.To(resource.MustParse("2Mi")) }

// copies waits until some of a volume has been copied in the stop.
func copies(t *testing.T, made *v1alpha1.VolumeMove) {
	t.Helper()
	reaches(t, made, v1alpha1.MoveFinalSync)
	await.Until(t, "some of it is copied", func() bool {
		now := must.Get(t, moves(t, made.Namespace), made.Name)
		return now.Status.Claims[0].Sent > 1<<20
	}, func() any { return movers(t, made) })
}

func TestACopyInTheStopOutlivesTheProvisioner(t *testing.T) {
	namespace := space(t)
	deploysWith(t, forOnePod(namespace, "data"))
	fill(t, folder(t, namespace, "data"))
	made := move(t, namespace, "data", "west", offline, limited)
	copies(t, made)
	restart(t)
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	at := folder(t, namespace, "data")
	counts(t, at, counted(t, at)+10)
	nothingLeft(t, namespace, made)
}

func TestAMoveOfAVolumeForOnePodCanBeGivenUpInTheMiddle(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploysWith(t, forOnePod(namespace, "data"))
	from := folder(t, namespace, "data")
	fill(t, from)

	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveProvision, v1alpha1.MoveFinalSync} {
		made := move(t, namespace, "data", "west", offline, func(m *v1alpha1.VolumeMove) {
			m.Name = "given-up-in-" + strings.ToLower(string(phase))
		}, limited)
		reaches(t, made, phase, v1alpha1.MoveFinalSync)
		if phase == v1alpha1.MoveFinalSync {
			copies(t, made)
		}
		act(t, made, v1alpha1.ActionAbort)
		over := reaches(t, made, v1alpha1.MoveAborted, v1alpha1.MoveDone, v1alpha1.MoveFailed)
		require.Equal(t, v1alpha1.MoveAborted, over.Status.Phase, over.Status.Message)
		assert.Equal(t, from, folder(t, namespace, "data"))
		// Its pod runs only where no mover has the volume any more.
		counts(t, from, counted(t, from)+10)
		nothingLeft(t, namespace, made)
	}
}

func TestOneVolumeForOnePodAmongThoseOfAPodIsCopiedInTheStop(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), forOnePod(namespace, "own"))
	deploysWith(t, fabric.NewClaim(namespace, "data", fabric.Class), func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "own"}}})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "own", MountPath: "/own"})
		pod.Spec.Containers[0].Command[2] = "date >> /own/starts; " + pod.Spec.Containers[0].Command[2]
	})
	starts := func() string {
		data, err := os.ReadFile(filepath.Join(folder(t, namespace, "own"), "starts"))
		require.NoError(t, err)
		return string(data)
	}
	before := starts()
	both := func(m *v1alpha1.VolumeMove) { m.Spec.Claims = []string{"data", "own"} }

	refused := reaches(t, move(t, namespace, "refused", "west", both), v1alpha1.MoveFailed, v1alpha1.MoveDone)
	require.Equal(t, v1alpha1.MoveFailed, refused.Status.Phase, refused.Status.Message)
	assert.Contains(t, refused.Status.Message, `all of claim "own" is copied`)

	done := reaches(t, move(t, namespace, "both", "west", both, offline), v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	assert.Positive(t, done.Status.Claims[0].Pass, "the other one is copied while the pod runs")
	assert.Zero(t, done.Status.Claims[1].Pass)
	at := folder(t, namespace, "data")
	counts(t, at, counted(t, at)+10)
	assert.Contains(t, starts(), before)
	assert.Greater(t, len(starts()), len(before), "its pod has started at the target")
}

// files are drivers by cluster: three that take snapshots, each also the name of its real
// class and of its class of snapshots, one whose volumes both clusters have, and one whose
// volumes are attached to nodes.
var files = map[string][]string{
	"home": {"files.home.test", "together.home.test", "kept.home.test", shared, attached},
	"west": {"files.west.test", "together.west.test", "kept.west.test", shared},
}

// takesSnapshots starts the driver of a cluster with the real sidecars. Its volumes are
// files; what the pods here write is beside them, in folders.
func takesSnapshots(t *testing.T, cluster *testbed.Cluster, name string) *sidecars.Driver {
	t.Helper()
	programs, err := sidecars.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	driver, err := sidecars.Start(context.WithoutCancel(t.Context()), cluster, programs,
		sidecars.Options{Name: name, Pool: 100 << 30, Snapshots: true})
	require.NoError(t, err)
	t.Cleanup(driver.Kill)
	must.Create(t, cluster.Client().StorageV1().StorageClasses(), driver.Class(driver.Name, storagev1.VolumeBindingWaitForFirstConsumer))
	return driver
}

// virtualClassOf makes a virtual class that leads to the classes of two drivers, and returns its name.
func virtualClassOf(t *testing.T, home, west *sidecars.Driver) string {
	t.Helper()
	class := "virtual-" + home.Name
	must.Create(t, bed.Home.Client().StorageV1().StorageClasses(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        map[string]string{keys.LocalClass: home.Name, keys.RemoteClass: west.Name},
	})
	return class
}

func snapshotClass(t *testing.T, cluster *testbed.Cluster, driver string) {
	t.Helper()
	must.Kubectl(t, cluster,
		fmt.Sprintf(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotClass, metadata: {name: %[1]s}, driver: %[1]s, deletionPolicy: Delete}`, driver), "apply", "-f", "-")
}

// copyOf copies a folder as it is now.
func copyOf(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o755))
	out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestAVolumeForOnePodMovesFromASnapshotWhileItsPodRuns(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	home, west := takesSnapshots(t, bed.Home, "files.home.test"), takesSnapshots(t, bed.West, "files.west.test")
	class := virtualClassOf(t, home, west)
	claim := forOnePod(namespace, "data")
	claim.Spec.StorageClassName = &class
	deploysWith(t, claim)
	fill(t, folder(t, namespace, "data"))

	refused := reaches(t, move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Name = "refused" }), v1alpha1.MoveFailed,
		v1alpha1.MoveDone)
	require.Equal(t, v1alpha1.MoveFailed, refused.Status.Phase, refused.Status.Message)
	assert.Contains(t, refused.Status.Message, "cluster home has no VolumeSnapshotClass of driver "+home.Name+" with deletionPolicy Delete")
	snapshotClass(t, bed.Home, home.Name)
	snapshotClass(t, bed.West, west.Name)
	code, out, said := plugin(t, "move", "data", "-n", namespace, "--target-cluster", "west", "--dry-run")
	require.Zero(t, code, said)
	assert.Contains(t, out, "of ReadWriteOncePod claim data a snapshot would be copied before")
	assert.Contains(t, out, "would be stopped for the last changes")

	at := folder(t, namespace, "data")
	require.NoError(t, home.Fail("CreateVolume", sidecars.Fault{Code: "UNAVAILABLE", Message: "not yet"}))
	aborted := move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Name = "aborted" })
	cloned(t, aborted, bed.Home, fabric.Storage)
	act(t, aborted, v1alpha1.ActionAbort)
	reaches(t, aborted, v1alpha1.MoveAborted)
	counts(t, at, counted(t, at)+10)
	nothingLeft(t, namespace, aborted)
	noSnapshot(t, home, bed.Home)

	movesFromSnapshot(t, namespace, "west", home, bed.Home, fabric.Storage)
	takesOne(t, namespace, west)
	movesFromSnapshot(t, namespace, keys.Home, west, bed.West, namespace)
}

// ofClaim takes a snapshot of claim "data" in a remote cluster.
const ofClaim = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: %[1]s}
driver: lodestone.dev
deletionPolicy: Delete
parameters: {lodestone.dev/remote-class: %[2]s}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: kept, namespace: %[1]s}
spec: {volumeSnapshotClassName: %[1]s, source: {persistentVolumeClaimName: data}}
`

// takesOne has home take a snapshot of the claim, as a user may, and delete it. A remote
// cluster with an agent lets it do that by a role of its own.
func takesOne(t *testing.T, namespace string, there *sidecars.Driver) {
	t.Helper()
	must.Kubectl(t, bed.Home, fmt.Sprintf(ofClaim, namespace, there.Name), "apply", "-f", "-")
	await.Until(t, "the snapshot is ready", func() bool {
		ready := must.Kubectl(t, bed.Home, "", "get", "volumesnapshot", "-n", namespace, "kept", "-o", "jsonpath={.status.readyToUse}")
		return ready == "true"
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	must.Kubectl(t, bed.Home, "", "delete", "volumesnapshot/kept", "volumesnapshotclass/"+namespace, "-n", namespace, "--timeout=60s")
	noSnapshot(t, there, bed.West)
}

// cloned waits until a move has made a claim of a snapshot, and returns it.
func cloned(t *testing.T, made *v1alpha1.VolumeMove, source *testbed.Cluster, beside string) (clone *corev1.PersistentVolumeClaim) {
	t.Helper()
	await.Until(t, "a claim is made of the snapshot", func() bool {
		clone = await.Claim(t, source.Client(), beside, fmt.Sprintf("move-%s-0-snapshot", made.UID))
		return clone != nil
	}, func() any { return status(t, made) }, func() any { return await.Events(t, source.Client(), beside) })
	return clone
}

// noSnapshot checks that neither a cluster nor its driver keeps a snapshot. Those that were taken together go only after
// their group: the snapshot controller refuses to remove them before, and tries again later.
func noSnapshot(t *testing.T, driver *sidecars.Driver, cluster *testbed.Cluster) {
	t.Helper()
	left := func() (names []string) {
		for _, kind := range []string{"volumesnapshots", "volumesnapshotcontents", "volumegroupsnapshots", "volumegroupsnapshotcontents"} {
			found := must.Kubectl(t, cluster, "", "get", kind, "-A", "-o", "name")
			names = append(names, strings.Fields(found)...)
		}
		taken, err := driver.Snapshots()
		require.NoError(t, err)
		return slices.AppendSeq(names, maps.Keys(taken))
	}
	await.Until(t, "no snapshot is left", func() bool { return len(left()) == 0 }, func() any { return left() })
}

// movesFromSnapshot moves claim data from a cluster whose driver takes a snapshot of it,
// beside its real claim.
func movesFromSnapshot(t *testing.T, namespace, target string, driver *sidecars.Driver, source *testbed.Cluster, beside string) {
	t.Helper()
	from := folder(t, namespace, "data")
	counts(t, from, counted(t, from)+10)
	// The claim made of the snapshot gets its volume once that has what the snapshot holds.
	require.NoError(t, driver.Fail("CreateVolume", sidecars.Fault{Code: "UNAVAILABLE", Message: "not yet"}))
	made := move(t, namespace, "data", target)
	await.Until(t, "the driver has a snapshot", func() bool {
		taken, err := driver.Snapshots()
		require.NoError(t, err)
		return len(taken) == 1
	}, func() any { return status(t, made) }, func() any { return await.Events(t, source.Client(), beside) })
	held := t.TempDir()
	copyOf(t, from, held)
	copyOf(t, held, filepath.Join(bed.Disks.Root, driver.Name, "vol-pvc-"+string(cloned(t, made, source, beside).UID)))
	before := counts(t, from, counted(t, from)+10)
	require.NoError(t, driver.Heal("CreateVolume"))

	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	t.Log("to", target, "downtime", done.Status.Downtime.Duration, spans(done), "sent", done.Status.Claims[0].Sent)
	assert.EqualValues(t, 1, done.Status.Claims[0].Pass, "it was copied beside the pod")
	assert.Less(t, done.Status.Claims[0].Sent, int64(20<<20), "and only what differs in the stop")
	assert.Equal(t, done.Status.Claims[0].SourceRoot, done.Status.Claims[0].TargetRoot)
	to := folder(t, namespace, "data")
	assert.NotEqual(t, from, to)
	counts(t, to, before+10)
	assert.Equal(t, read(t, filepath.Join(held, "much")), read(t, filepath.Join(to, "much")))

	nothingLeft(t, namespace, done)
	noSnapshot(t, driver, source)
	await.Until(t, "the storage has neither the source nor what was made of the snapshot", func() bool {
		volumes, err := driver.Volumes()
		require.NoError(t, err)
		return len(volumes) == 0
	})
}

func status(t *testing.T, made *v1alpha1.VolumeMove) any {
	t.Helper()
	now := must.Get(t, moves(t, made.Namespace), made.Name)
	return now.Status
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}

// groupClass makes a class of snapshots of several volumes.
func groupClass(t *testing.T, cluster *testbed.Cluster, driver string) {
	t.Helper()
	must.Kubectl(t, cluster, fmt.Sprintf(`{apiVersion: groupsnapshot.storage.k8s.io/v1beta2, kind: VolumeGroupSnapshotClass, `+
		`metadata: {name: %[1]s}, driver: %[1]s, deletionPolicy: Delete}`, driver), "apply", "-f", "-")
}

// movesFromSnapshots moves claims data and logs from a cluster whose driver takes snapshots of both,
// beside their real claims, and returns these.
func movesFromSnapshots(t *testing.T, namespace, name, target string, driver *sidecars.Driver, source *testbed.Cluster, beside string,
	meanwhile func()) []sidecars.Snapshot {
	t.Helper()
	names := []string{"data", "logs"}
	from := folder(t, namespace, "data")
	before := counts(t, from, counted(t, from)+10)
	require.NoError(t, driver.Fail("CreateVolume", sidecars.Fault{Code: "UNAVAILABLE", Message: "not yet"}))
	made := move(t, namespace, name, target, func(m *v1alpha1.VolumeMove) { m.Spec.Claims = names })
	var clones [2]*corev1.PersistentVolumeClaim
	await.Until(t, "a claim is made of each snapshot", func() bool {
		for i := range names {
			if clones[i] = await.Claim(t, source.Client(), beside, fmt.Sprintf("move-%s-%d-snapshot", made.UID, i)); clones[i] == nil {
				return false
			}
		}
		return true
	}, func() any { return status(t, made) }, func() any { return await.Events(t, source.Client(), beside) })
	taken, err := driver.Snapshots()
	require.NoError(t, err)
	require.Len(t, taken, 2)
	for _, claim := range names {
		b, err := backing.RefOf(await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, claim).Spec.VolumeName))
		require.NoError(t, err)
		assert.NotContains(t, await.Claim(t, source.Client(), b.Namespace, b.Name).Labels, keys.GroupPrefix+string(made.UID),
			"the label has served")
	}
	meanwhile()
	for i, claim := range names {
		copyOf(t, folder(t, namespace, claim), filepath.Join(bed.Disks.Root, driver.Name, "vol-pvc-"+string(clones[i].UID)))
	}
	require.NoError(t, driver.Heal("CreateVolume"))

	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	t.Log("to", target, "downtime", done.Status.Downtime.Duration, spans(done))
	for i := range names {
		assert.EqualValues(t, 1, done.Status.Claims[i].Pass, "it was copied beside the pod")
		assert.Equal(t, done.Status.Claims[i].SourceRoot, done.Status.Claims[i].TargetRoot)
	}
	counts(t, folder(t, namespace, "data"), before+10)
	nothingLeft(t, namespace, done)
	noSnapshot(t, driver, source)
	return slices.Collect(maps.Values(taken))
}

// ofOneMoment checks that snapshots were taken together.
func ofOneMoment(t *testing.T, taken []sidecars.Snapshot) {
	t.Helper()
	assert.NotEmpty(t, taken[0].Group)
	assert.Equal(t, []any{taken[0].Group, taken[0].Created}, []any{taken[1].Group, taken[1].Created})
}

func TestVolumesForOnePodMoveFromOneSnapshotOfAll(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	home, west := takesSnapshots(t, bed.Home, "together.home.test"), takesSnapshots(t, bed.West, "together.west.test")
	class := virtualClassOf(t, home, west)
	logs := forOnePod(namespace, "logs")
	logs.Spec.StorageClassName = &class
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), logs)
	data := forOnePod(namespace, "data")
	data.Spec.StorageClassName = &class
	deploysWith(t, data, func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "logs", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "logs"}}})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "logs", MountPath: "/logs"})
		pod.Spec.Containers[0].Command[2] = "date >> /logs/starts; " + pod.Spec.Containers[0].Command[2]
	})
	for _, in := range []struct {
		cluster *testbed.Cluster
		driver  *sidecars.Driver
	}{{bed.Home, home}, {bed.West, west}} {
		snapshotClass(t, in.cluster, in.driver.Name)
		groupClass(t, in.cluster, in.driver.Name)
	}
	code, out, said := plugin(t, "move", "data", "logs", "-n", namespace, "--target-cluster", "west", "--dry-run")
	require.Zero(t, code, said)
	assert.Contains(t, out, "of ReadWriteOncePod claim data, logs a snapshot, of all at one moment, would be copied before")

	at := folder(t, namespace, "data")
	require.NoError(t, home.Fail("CreateVolume", sidecars.Fault{Code: "UNAVAILABLE", Message: "not yet"}))
	aborted := move(t, namespace, "aborted", "west", func(m *v1alpha1.VolumeMove) { m.Spec.Claims = []string{"data", "logs"} })
	cloned(t, aborted, bed.Home, fabric.Storage)
	act(t, aborted, v1alpha1.ActionAbort)
	reaches(t, aborted, v1alpha1.MoveAborted)
	counts(t, at, counted(t, at)+10)
	nothingLeft(t, namespace, aborted)
	noSnapshot(t, home, bed.Home)

	ofOneMoment(t, movesFromSnapshots(t, namespace, "together", "west", home, bed.Home, fabric.Storage, func() {
		// Another provisioner goes on.
		restart(t)
	}))
	ofOneMoment(t, movesFromSnapshots(t, namespace, "together", keys.Home, west, bed.West, namespace, func() {}))

	// One snapshot of all is refused.
	const what = "count/volumegroupsnapshots.groupsnapshot.storage.k8s.io"
	must.Create(t, bed.Home.Client().CoreV1().ResourceQuotas(fabric.Storage), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{what: resource.MustParse("0")}},
	})
	for _, s := range movesFromSnapshots(t, namespace, "apart", "west", home, bed.Home, fabric.Storage, func() {}) {
		assert.Empty(t, s.Group, "each was taken by itself")
	}
	must.Delete(t, bed.Home.Client().CoreV1().ResourceQuotas(fabric.Storage), "none")
}
