package capacity

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const tooSmall = "did not have enough free storage"

func TestAPodGetsNoNodeOfAClusterWithoutRoom(t *testing.T) {
	namespace := newNamespace(t)
	setDriverCapacity(t, bed.Home, fabric.HomeWait, "1Gi", "")
	setDriverCapacity(t, bed.West, fabric.WestWait, "100Gi", "50Gi")
	awaitCapacity(t, fabric.Class, keys.Home, "1Gi")
	awaitCapacity(t, fabric.Class, "west", "50Gi")

	use(t, fabric.AtHome(fabric.NewPod(namespace, "small", "small")), fabric.Class, "1Gi")
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "small"))
	use(t, fabric.Prefer(fabric.NewPod(namespace, "large", "large"), "home-1"), fabric.Class, "5Gi")
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "large"), "home has no room for it, whatever the pod prefers")

	use(t, fabric.NewPod(namespace, "huge", "huge"), fabric.Class, "60Gi")
	message := await.Event(t, bed.Home.Client(), namespace, "huge", "FailedScheduling")
	assert.Contains(t, message, "3 node(s) "+tooSmall, "each node says so")
	told := await.Event(t, bed.Home.Client(), namespace, "huge", "TooLarge")
	assert.Contains(t, told, "asks for 60Gi, and no cluster that it may go to has room for a volume of that size: the most is 50Gi, "+
		"in cluster west")
	await.Never(t, "a claim that is too large for all waits", func() bool { return get(t, namespace, "huge").Spec.NodeName != "" })

	setDriverCapacity(t, bed.West, fabric.WestWait, "100Gi", "80Gi")
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "huge"), "new room wakes it")
}

func TestAPodThatMustRunWhereThereIsNoRoomIsToldSo(t *testing.T) {
	namespace := newNamespace(t)
	setDriverCapacity(t, bed.West, fabric.WestWait, "0", "")
	awaitCapacity(t, fabric.Class, "west", "0")
	use(t, fabric.InWest(fabric.NewPod(namespace, "there", "there")), fabric.Class, "1Gi")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "there", "FailedScheduling"), "1 node(s) "+tooSmall)
	use(t, fabric.NewPod(namespace, "anywhere", "anywhere"), fabric.Class, "1Gi")
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "anywhere"))
	setDriverCapacity(t, bed.West, fabric.WestWait, "10Gi", "")
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "there"))
}

func TestSmallChangesAreNotWritten(t *testing.T) {
	newNamespace(t)
	setDriverCapacity(t, bed.Home, fabric.HomeWait, "100Gi", "")
	awaitCapacity(t, fabric.Class, keys.Home, "100Gi")
	setDriverCapacity(t, bed.Home, fabric.HomeWait, "96Gi", "")
	await.Always(t, "less than a twentieth is not worth a write", func() bool { return limit(t, fabric.Class, keys.Home) == "100Gi" })
	setDriverCapacity(t, bed.Home, fabric.HomeWait, "90Gi", "")
	awaitCapacity(t, fabric.Class, keys.Home, "90Gi")
}

func TestWhatADriverTellsCountsOnlyWhereKubeSchedulerHeedsIt(t *testing.T) {
	namespace := newNamespace(t)
	setDriverCapacity(t, bed.Home, fabric.HomeWait, "1Gi", "")
	awaitCapacity(t, fabric.Class, keys.Home, "1Gi")
	use(t, fabric.AtHome(fabric.NewPod(namespace, "waits", "waits")), fabric.Class, "5Gi")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "waits", "FailedScheduling"), tooSmall)
	t.Cleanup(func() { require.NoError(t, setCapacityChecks(context.Background(), true)) })
	require.NoError(t, setCapacityChecks(t.Context(), false))
	awaitCapacity(t, fabric.Class, keys.Home, "7Ei")
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "waits"))
}

func TestAClassCanBeUsedInTheSecondInWhichItIsMade(t *testing.T) {
	namespace := newNamespace(t)
	newClass(t, "brand-new")
	use(t, fabric.AtHome(fabric.NewPod(namespace, "here", "here")), "brand-new", "1Gi")
	use(t, fabric.InWest(fabric.NewPod(namespace, "there", "there")), "brand-new", "1Gi")
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "here"))
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "there"))
}

func TestWhatSomebodyRemovesIsPublishedAgain(t *testing.T) {
	newNamespace(t)
	had := published(t, "")
	require.NotEmpty(t, had)
	capacities := bed.Home.Client().StorageV1().CSIStorageCapacities(fabric.System)
	require.NoError(t, capacities.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: keys.Capacity}))
	await.Until(t, "all is published again", func() bool { return len(published(t, "")) == len(had) })
	for _, capacity := range had {
		again := must.Get(t, capacities, capacity.Name)
		assert.NotEqual(t, capacity.UID, again.UID)
	}
}

// restartProvisioner ends the provisioner, as the node that it runs on would, and has it
// run with other flags.
func restartProvisioner(t *testing.T, flags ...string) {
	t.Helper()
	provisioner.Kill()
	var err error
	provisioner, err = bed.RunProvisioner(context.Background(), "provisioner", binary, flags...)
	require.NoError(t, err)
}

// stopProvisioner ends the provisioner, for the rest of the test unless that restarts it.
func stopProvisioner(t *testing.T) {
	t.Helper()
	provisioner.Kill()
	t.Cleanup(func() {
		if !provisioner.Running() {
			restartProvisioner(t)
		}
	})
}

// An older version's manifests say false, and an apply of the new ones takes that
// back to the default.
func TestKubeSchedulerIsToldAgainAfterAnUpgrade(t *testing.T) {
	newNamespace(t)
	must.Patch(t, bed.Home.Client().StorageV1().CSIDrivers(), keys.Driver, types.MergePatchType,
		[]byte(`{"spec":{"storageCapacity":false}}`))
	awaitCapacityChecks(t, true)
	must.Kubectl(t, bed.Home, "", "apply", "-f", "../../deploy/base/csidriver.yaml")
	await.Always(t, "the manifests leave it to the provisioner", func() bool { return told(t) })
}

func TestNothingIsLostWhileNoProvisionerRuns(t *testing.T) {
	namespace := newNamespace(t)
	stopProvisioner(t)
	newClass(t, "made-meanwhile")
	use(t, fabric.NewPod(namespace, "new", "new"), "made-meanwhile", "1Gi")
	use(t, fabric.InWest(fabric.NewPod(namespace, "old", "old")), fabric.Class, "1Gi")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "new", "FailedScheduling"), tooSmall)
	await.Until(t, "the claim of a class that is published gets its node", func() bool {
		claim, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "old", metav1.GetOptions{})
		return err == nil && claim.Annotations[keys.SelectedNode] == fabric.WestNode
	})
	restartProvisioner(t)
	assert.NotEmpty(t, bed.AwaitRunning(t, namespace, "new"))
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "old"))
}

func TestCapacitiesGoWithTheirClassWithoutAProvisioner(t *testing.T) {
	newNamespace(t)
	newClass(t, "short-lived")
	await.Until(t, "the class is published", func() bool { return len(published(t, "short-lived")) > 0 })
	stopProvisioner(t)
	must.Delete(t, bed.Home.Client().StorageV1().StorageClasses(), "short-lived")
	await.Until(t, "they are collected", func() bool { return len(published(t, "short-lived")) == 0 })
}

func TestPublishingCanBeTurnedOff(t *testing.T) {
	testbed.NotInShort(t)
	namespace := newNamespace(t)
	restartProvisioner(t, "--publish-capacity=false")
	awaitCapacityChecks(t, false)
	await.Until(t, "all is removed", func() bool { return len(published(t, "")) == 0 })
	newClass(t, "unpublished")
	use(t, fabric.NewPod(namespace, "free", "free"), "unpublished", "1Gi")
	assert.NotEmpty(t, bed.AwaitRunning(t, namespace, "free"))
	restartProvisioner(t)
	awaitCapacityChecks(t, true)
	assert.NotEmpty(t, published(t, "unpublished"), "first the objects, then the word")
}

func TestPodsRunWhereCapacitiesCannotBePublished(t *testing.T) {
	testbed.NotInShort(t)
	namespace := newNamespace(t)
	quotas := bed.Home.Client().CoreV1().ResourceQuotas(fabric.System)
	name := corev1.ResourceName("count/csistoragecapacities.storage.k8s.io")
	must.Create(t, quotas, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "capacities"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{name: resource.MustParse("1")}},
	})
	defer func() {
		must.Delete(t, quotas, "capacities")
		awaitCapacityChecks(t, true)
		assert.NotEmpty(t, published(t, "unpublishable"))
	}()
	await.Until(t, "the quota is in force", func() bool {
		quota, err := quotas.Get(t.Context(), "capacities", metav1.GetOptions{})
		used := quota.Status.Used[name]
		return err == nil && used.Value() > 0
	})
	newClass(t, "unpublishable")
	use(t, fabric.NewPod(namespace, "early", "early"), "unpublishable", "1Gi")
	awaitCapacityChecks(t, false)
	assert.NotEmpty(t, bed.AwaitRunning(t, namespace, "early"), "one that found no room is woken")
	use(t, fabric.NewPod(namespace, "all-the-same", "all-the-same"), "unpublishable", "1Gi")
	assert.NotEmpty(t, bed.AwaitRunning(t, namespace, "all-the-same"))
}
