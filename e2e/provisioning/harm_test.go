package provisioning

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestShadowThatSomebodyDeletesKeepsItsData(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	virtual, b, real := served(t, namespace, fabric.Class, fabric.InWest, bed.West)
	// kube's own protection must not be what holds it.
	deletePod(t, namespace, "db")
	deleteClaim(t, bed.West, b.Namespace, b.Name)

	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingDeleted"), "its data is safe")
	consistently(t, func() bool {
		held := claimOf(t, bed.West, b.Namespace, b.Name)
		return held != nil && held.DeletionTimestamp != nil && bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle)
	}, "the data is gone")
	claim, _ := bound(t, bed.Home, namespace, "data")
	assert.Equal(t, virtual.Name, claim.Spec.VolumeName)
	eventually(t, func() bool {
		remote, err := bed.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
		require.NoError(t, err)
		health := remote.Status.VolumeHealth
		return health != nil && slices.ContainsFunc(health.Troubles, func(trouble v1alpha1.VolumeTrouble) bool {
			return trouble.Reason == "BackingDeleted" && trouble.Volumes > 0
		})
	}, func() string { return "the RemoteCluster does not say that a backing claim was deleted" })

	// The user's own deletion ends it all.
	deleteClaim(t, bed.Home, namespace, "data")
	absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	assert.Nil(t, claimOf(t, bed.West, b.Namespace, b.Name))
	assert.False(t, bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle))
}

func TestRemoteNamespaceThatIsDeletedKeepsItsVolumes(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	virtual, b, real := served(t, namespace, fabric.Class, fabric.InWest, bed.West)
	deleteNamespace(t, bed.West, namespace)

	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingDeleted"), "its data is safe")
	consistently(t, func() bool {
		held := claimOf(t, bed.West, b.Namespace, b.Name)
		return held != nil && bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle)
	}, "the data is gone")
	assert.Equal(t, corev1.ClaimBound, claimOf(t, bed.Home, namespace, "data").Status.Phase)

	// New claims of that namespace find another place meanwhile.
	createClaim(t, fabric.NewClaim(namespace, "more", fabric.Class))
	createPod(t, preferWest(fabric.NewPod(namespace, "web", "more")))
	assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "web"))

	require.NoError(t, bed.Home.Client().CoreV1().Pods(namespace).Delete(t.Context(), "db", metav1.DeleteOptions{}))
	deleteClaim(t, bed.Home, namespace, "data")

	// Home's rights went with the namespace, so its owner must let the claim go.
	assert.Contains(t, toldOfVolume(t, virtual.Name, "ReleaseFailed"), "must take finalizer "+keys.BackingFinalizer+" off the claim")
	_, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), "data", types.StrategicMergePatchType,
		[]byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+keys.BackingFinalizer+`"]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	namespaceGone(t, bed.West, namespace)
	assert.False(t, bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle))
}

// byHand is what docs/lifecycle.md tells an administrator to do, word for word.
func byHand(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(fabric.Root(), "docs", "lifecycle.md"))
	require.NoError(t, err)
	_, after, found := strings.Cut(string(page), "### A shadow made anew by hand")
	require.True(t, found)
	_, after, _ = strings.Cut(after, "```sh\n")
	commands, _, found := strings.Cut(after, "```")
	require.True(t, found)
	return commands
}

func TestShadowThatAnAdministratorMakesAnewByHandIsTaken(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	virtual, old, real := served(t, namespace, fabric.Class, fabric.InWest, bed.West)
	deletePod(t, namespace, "db")
	absent(t, "pod", func() *corev1.Pod { return podOf(t, namespace, "db") })
	deleteClaim(t, bed.West, old.Namespace, old.Name)
	told := await.Event(t, bed.Home.Client(), namespace, "data", "BackingDeleted")
	assert.Contains(t, told, "let an administrator there make it anew, as docs/lifecycle.md says")

	script := "set -eu\nkubectl() { " + bed.West.KubectlPath() + " \"$@\"; }\n" + strings.ReplaceAll(byHand(t), "-n shop", "-n "+namespace)
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.Dir = t.TempDir()
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.True(t, bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle), "the data is gone")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingHealed"), real.Name)
	eventually(t, func() bool {
		now := volumeOf(t, bed.Home, virtual.Name)
		return now.Annotations[keys.Backing] != virtual.Annotations[keys.Backing]
	}, func() string { return "the virtual volume names the old one" })
	virtual = volumeOf(t, bed.Home, virtual.Name)
	now := backingOf(t, virtual)
	assert.NotEqual(t, old.UID, now.UID)
	assert.Equal(t, old.Labels, now.Labels)
	assert.Contains(t, now.Finalizers, keys.BackingFinalizer)
	assert.Equal(t, real.Spec.PersistentVolumeReclaimPolicy, volumeOf(t, bed.West, real.Name).Spec.PersistentVolumeReclaimPolicy)

	createPod(t, fabric.InWest(fabric.NewPod(namespace, "again", "data")))
	runs(t, namespace, "again")
	deletePod(t, namespace, "again")
	deleteClaim(t, bed.Home, namespace, "data")
	absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	assert.False(t, bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle))
}
