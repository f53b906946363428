package provisioning

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestClaimWhoseRealVolumeIsDeletedSaysSoUntilItIsThereAgain deletes the object of the
// real volume, finalizers too, behind everybody's back. The data is still in the
// storage: nothing may touch it, nor anything else.
func TestClaimWhoseRealVolumeIsDeletedSaysSoUntilItIsThereAgain(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		cluster := route.cluster()
		virtual, b, real := served(t, namespace, fabric.Class, route.place, cluster)
		volumes := cluster.Client().CoreV1().PersistentVolumes()
		must.Delete(t, volumes, real.Name)
		must.Patch(t, volumes, real.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))

		told := await.Event(t, bed.Home.Client(), namespace, "data", "BackingLost")
		assert.Contains(t, told, "has lost its real volume \""+real.Name+"\"")
		var condition *corev1.PersistentVolumeClaimCondition
		eventually(t, func() bool {
			condition = trouble(t, namespace, "data")
			return condition != nil && condition.Reason == "BackingLost"
		}, func() string { return fmt.Sprintf("the condition of the claim is %+v", condition) })
		assert.Equal(t, told, condition.Message)
		assert.Equal(t, corev1.ConditionTrue, condition.Status)
		assert.False(t, condition.LastTransitionTime.IsZero())
		ref, err := backing.RefOf(virtual)
		require.NoError(t, err)
		assert.Regexp(t, `lodestone_provisioner_volumes_in_trouble{cluster="`+ref.Cluster+`",reason="BackingLost"} [1-9]`, metrics(t))

		claim := claimOf(t, bed.Home, namespace, "data")
		assert.Equal(t, virtual.Name, claim.Spec.VolumeName)
		assert.Equal(t, corev1.ClaimBound, claim.Status.Phase)
		lost := backingOf(t, virtual)
		require.NotNil(t, lost, "the backing claim is gone")
		assert.Equal(t, corev1.ClaimLost, lost.Status.Phase)
		assert.Nil(t, lost.DeletionTimestamp)
		assert.True(t, route.storage().Exists(real.Spec.CSI.VolumeHandle), "the data is gone")

		// As its administrator is told to: the volume again, as it was.
		must.Create(t, volumes, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: real.Name, Labels: real.Labels, Annotations: real.Annotations}, Spec: real.Spec,
		})
		eventually(t, func() bool { return trouble(t, namespace, "data") == nil }, func() string {
			return "the claim still says that something is wrong"
		})
		assert.Equal(t, corev1.ClaimBound, claimOf(t, cluster, b.Namespace, b.Name).Status.Phase)
	})
}

// trouble returns the condition of a claim that says what is wrong with its volume,
// nil if it has none.
func trouble(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaimCondition {
	t.Helper()
	for _, condition := range claimOf(t, bed.Home, namespace, name).Status.Conditions {
		if condition.Type == keys.VolumeTrouble {
			return &condition
		}
	}
	return nil
}

// metrics returns what the provisioner measures.
func metrics(t *testing.T) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+provisioner.Flag("http-address")+"/metrics", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(content)
}

func TestShadowThatSomebodyDeletesKeepsItsData(t *testing.T) {
	namespace := beside(t)
	virtual, b, real := served(t, namespace, fabric.Class, fabric.InWest, bed.West)
	// kube's own protection must not be what holds it.
	deletePod(t, namespace, "db")
	deleteClaim(t, bed.West, b.Namespace, b.Name)

	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingDeleted"), "its data is safe")
	consistently(t, func() bool {
		held := claimOf(t, bed.West, b.Namespace, b.Name)
		return held != nil && held.DeletionTimestamp != nil && bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle)
	}, "the data is gone")
	claim, _ := awaitBound(t, bed.Home, namespace, "data")
	assert.Equal(t, virtual.Name, claim.Spec.VolumeName)
	eventually(t, func() bool {
		remote := must.Get(t, bed.Remotes, "west")
		health := remote.Status.VolumeHealth
		return health != nil && slices.ContainsFunc(health.Troubles, func(trouble v1alpha1.VolumeTrouble) bool {
			return trouble.Reason == "BackingDeleted" && trouble.Volumes > 0
		})
	}, func() string { return "the RemoteCluster does not say that a backing claim was deleted" })

	// The user's own deletion ends it all.
	deleteClaim(t, bed.Home, namespace, "data")
	awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	assert.Nil(t, claimOf(t, bed.West, b.Namespace, b.Name))
	assert.False(t, bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle))
}

func TestRemoteNamespaceThatIsDeletedKeepsItsVolumes(t *testing.T) {
	namespace := beside(t)
	virtual, b, real := served(t, namespace, fabric.Class, fabric.InWest, bed.West)
	deleteNamespace(t, bed.West, namespace)

	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingDeleted"), "its data is safe")
	consistently(t, func() bool {
		held := claimOf(t, bed.West, b.Namespace, b.Name)
		return held != nil && bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle)
	}, "the data is gone")
	assert.Equal(t, corev1.ClaimBound, claimOf(t, bed.Home, namespace, "data").Status.Phase)

	// New claims of that namespace find another place meanwhile.
	bed.CreateClaim(t, fabric.NewClaim(namespace, "more", fabric.Class))
	bed.CreatePod(t, preferWest(fabric.NewPod(namespace, "web", "more")))
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "web"))

	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), "db")
	deleteClaim(t, bed.Home, namespace, "data")

	// Home's rights went with the namespace, so its owner must let the claim go.
	assert.Contains(t, awaitVolumeEvent(t, virtual.Name, "ReleaseFailed"), "must take finalizer "+keys.BackingFinalizer+" off the claim")
	must.Patch(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), "data", types.StrategicMergePatchType,
		[]byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+keys.BackingFinalizer+`"]}}`))
	awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	awaitNamespaceGone(t, bed.West, namespace)
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
	testbed.NotInShort(t)
	namespace := beside(t)
	virtual, old, real := served(t, namespace, fabric.Class, fabric.InWest, bed.West)
	deletePod(t, namespace, "db")
	awaitAbsent(t, "pod", func() *corev1.Pod { return podOf(t, namespace, "db") })
	deleteClaim(t, bed.West, old.Namespace, old.Name)
	told := await.Event(t, bed.Home.Client(), namespace, "data", "BackingDeleted")
	assert.Contains(t, told, "set its volume "+real.Name+" to policy Retain")

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

	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "again", "data")))
	bed.AwaitRunning(t, namespace, "again")
	deletePod(t, namespace, "again")
	deleteClaim(t, bed.Home, namespace, "data")
	awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	assert.False(t, bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle))
}

func TestTwinThatSomebodyDeletesIsMadeAnewWithItsData(t *testing.T) {
	namespace := beside(t)
	virtual, old, real := served(t, namespace, fabric.Class, fabric.AtHome, bed.Home)
	bed.AwaitRunning(t, namespace, "db")
	deleteClaim(t, bed.Home, old.Namespace, old.Name)
	twin := healed(t, virtual, old, real)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingHealed"), real.Name)
	assert.Equal(t, corev1.PodRunning, podOf(t, namespace, "db").Status.Phase, "the pod did not notice")
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "later", "data")))
	bed.AwaitRunning(t, namespace, "later")

	// A second time, and then the user's own deletion ends it all.
	deleteClaim(t, bed.Home, twin.Namespace, twin.Name)
	twin = healed(t, virtual, twin, real)
	deletePod(t, namespace, "db")
	deletePod(t, namespace, "later")
	deleteClaim(t, bed.Home, namespace, "data")
	awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	assert.Nil(t, claimOf(t, bed.Home, twin.Namespace, twin.Name))
	assert.False(t, bed.HomeStorage.Exists(real.Spec.CSI.VolumeHandle))
}

func TestVolumeOfAClaimThatIsDeletedWhileItsTwinIsHealedGoesToo(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	virtual, old, real := served(t, namespace, fabric.Class, fabric.AtHome, bed.Home)
	deletePod(t, namespace, "db")
	deleteClaim(t, bed.Home, old.Namespace, old.Name)
	deleteClaim(t, bed.Home, namespace, "data")
	awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	awaitAbsent(t, "twin", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, old.Namespace, old.Name) })
	eventually(t, func() bool { return !bed.HomeStorage.Exists(real.Spec.CSI.VolumeHandle) }, func() string {
		return "the data is still there"
	})
}

// The moments are not chosen: what matters at each write is tested with package
// flow. This is the real API server's and the real storage's part.
func TestHealingSurvivesAProvisionerThatIsKilledAgainAndAgain(t *testing.T) {
	testbed.NotInShort(t)
	namespace := newNamespace(t)
	virtual, twin, real := served(t, namespace, fabric.Class, fabric.AtHome, bed.Home)
	for _, delay := range []time.Duration{0, 10 * time.Millisecond, 30 * time.Millisecond, 80 * time.Millisecond} {
		deleteClaim(t, bed.Home, twin.Namespace, twin.Name)
		time.Sleep(delay)
		provisioner.Kill()
		require.True(t, bed.HomeStorage.Exists(real.Spec.CSI.VolumeHandle))
		startProvisioner(t)
		twin = healed(t, virtual, twin, real)
	}
}

// healed waits until another twin is bound to the real volume, and all is as if
// it had always been so. It brings the annotations of virtual up to date.
func healed(t *testing.T, virtual *corev1.PersistentVolume, old *corev1.PersistentVolumeClaim,
	real *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	t.Helper()
	var twin *corev1.PersistentVolumeClaim
	eventually(t, func() bool {
		require.True(t, bed.HomeStorage.Exists(real.Spec.CSI.VolumeHandle), "the data is gone")
		twin = claimOf(t, bed.Home, old.Namespace, old.Name)
		now := volumeOf(t, bed.Home, virtual.Name)
		return twin != nil && twin.UID != old.UID && twin.Status.Phase == corev1.ClaimBound && now.Annotations[keys.Healing] == "" &&
			now.Annotations[keys.Backing] != virtual.Annotations[keys.Backing]
	}, func() string { return "the twin is not healed" })
	assert.Equal(t, real.Name, twin.Spec.VolumeName)
	assert.Equal(t, old.Labels, twin.Labels)
	assert.Contains(t, twin.Finalizers, keys.BackingFinalizer)
	again := volumeOf(t, bed.Home, real.Name)
	assert.Equal(t, twin.UID, again.Spec.ClaimRef.UID)
	assert.Equal(t, real.Spec.PersistentVolumeReclaimPolicy, again.Spec.PersistentVolumeReclaimPolicy)
	virtual.Annotations = volumeOf(t, bed.Home, virtual.Name).Annotations
	assert.Equal(t, twin.UID, backingOf(t, virtual).UID)
	return twin
}
