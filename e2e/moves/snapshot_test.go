package moves

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// files is a driver at home that takes snapshots, and the name of its real class, of the
// virtual one that leads to it, and of its class of snapshots.
const files = "files.home.test"

// takesSnapshots starts the driver with the real sidecars. Its volumes are files; what
// the pods here write is beside them, in folders.
func takesSnapshots(t *testing.T) *sidecars.Driver {
	t.Helper()
	programs, err := sidecars.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	driver, err := sidecars.Start(context.WithoutCancel(t.Context()), bed.Home, programs, sidecars.Options{Name: files, Pool: 100 << 30, Snapshots: true})
	require.NoError(t, err)
	t.Cleanup(driver.Kill)
	for _, class := range []*storagev1.StorageClass{driver.Class(files, storagev1.VolumeBindingWaitForFirstConsumer), {
		ObjectMeta: metav1.ObjectMeta{Name: "virtual-" + files}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        map[string]string{keys.LocalClass: files, keys.RemoteClass: fabric.WestWait},
	}} {
		_, err := bed.Home.Client().StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return driver
}

// copyOf copies a folder as it is now.
func copyOf(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o755))
	out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestAVolumeForOnePodMovesFromASnapshotWhileItsPodRuns(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	driver := takesSnapshots(t)
	claim := forOnePod(namespace, "data")
	claim.Spec.StorageClassName = ptr.To("virtual-" + files)
	deploysWith(t, claim)
	from := folder(t, namespace, "data")
	fill(t, from)

	refused := reaches(t, move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Name = "refused" }), v1alpha1.MoveFailed, v1alpha1.MoveDone)
	require.Equal(t, v1alpha1.MoveFailed, refused.Status.Phase, refused.Status.Message)
	assert.Contains(t, refused.Status.Message, "cluster home has no VolumeSnapshotClass of driver "+files+" with deletionPolicy Delete")
	_, err := bed.Home.Kubectl(t.Context(), fmt.Sprintf(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotClass, metadata: {name: %[1]s}, driver: %[1]s, deletionPolicy: Delete}`, files), "apply", "-f", "-")
	require.NoError(t, err)
	code, out, said := plugin(t, "move", "data", "-n", namespace, "--target-cluster", "west", "--dry-run")
	require.Zero(t, code, said)
	assert.Contains(t, out, "of ReadWriteOncePod claim data a snapshot would be copied before")
	assert.Contains(t, out, "would be stopped for the last changes")

	// The claim made of the snapshot gets its volume once that has what the snapshot holds.
	require.NoError(t, driver.Fail("CreateVolume", sidecars.Fault{Code: "UNAVAILABLE", Message: "not yet"}))
	made := move(t, namespace, "data", "west")
	await.Until(t, "the driver has a snapshot", func() bool {
		taken, err := driver.Snapshots()
		require.NoError(t, err)
		return len(taken) == 1
	}, func() any { return status(t, made) }, func() any { return await.Events(t, bed.Home.Client(), fabric.Storage) })
	held := t.TempDir()
	copyOf(t, from, held)
	var clone *corev1.PersistentVolumeClaim
	name := fmt.Sprintf("move-%s-0-snapshot", made.UID)
	await.Until(t, "a claim is made of it", func() bool {
		clone = await.Claim(t, bed.Home.Client(), fabric.Storage, name)
		return clone != nil
	}, func() any { return status(t, made) })
	at := filepath.Join(bed.Disks.Root, files, "vol-pvc-"+string(clone.UID))
	copyOf(t, held, at)
	before := counts(t, from, counted(t, from)+10)
	require.NoError(t, driver.Heal("CreateVolume"))

	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	t.Log("downtime", done.Status.Downtime.Duration, spans(done), "sent", done.Status.Claims[0].Sent)
	assert.EqualValues(t, 1, done.Status.Claims[0].Pass, "it was copied beside the pod")
	assert.Less(t, done.Status.Claims[0].Sent, int64(20<<20), "and only what differs in the stop")
	assert.Equal(t, done.Status.Claims[0].SourceRoot, done.Status.Claims[0].TargetRoot)
	to := folder(t, namespace, "data")
	assert.NotEqual(t, from, to)
	counts(t, to, before+10)
	assert.Equal(t, read(t, filepath.Join(held, "much")), read(t, filepath.Join(to, "much")))

	nothingLeft(t, namespace, done)
	for _, kind := range []string{"volumesnapshots", "volumesnapshotcontents"} {
		left, err := bed.Home.Kubectl(t.Context(), "", "get", kind, "-A", "-o", "name")
		require.NoError(t, err)
		assert.Empty(t, left)
	}
	taken, err := driver.Snapshots()
	require.NoError(t, err)
	assert.Empty(t, taken, "nor does the storage have one")
	await.Until(t, "the storage has neither the source nor what was made of the snapshot", func() bool {
		volumes, err := driver.Volumes()
		require.NoError(t, err)
		return len(volumes) == 0
	})
}

func status(t *testing.T, made *v1alpha1.VolumeMove) any {
	t.Helper()
	now, err := moves(t, made.Namespace).Get(t.Context(), made.Name, metav1.GetOptions{})
	require.NoError(t, err)
	return now.Status
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}
