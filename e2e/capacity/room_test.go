package capacity

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const tooSmall = "did not have enough free storage"

func TestAPodGetsNoNodeOfAClusterWithoutRoom(t *testing.T) {
	namespace := space(t)
	tell(t, bed.Home, fabric.HomeWait, "1Gi", "")
	tell(t, bed.West, fabric.WestWait, "100Gi", "50Gi")
	shows(t, fabric.Class, keys.Home, "1Gi")
	shows(t, fabric.Class, "west", "50Gi")

	use(t, fabric.AtHome(fabric.NewPod(namespace, "small", "small")), fabric.Class, "1Gi")
	assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "small"))
	use(t, fabric.Prefer(fabric.NewPod(namespace, "large", "large"), "home-1"), fabric.Class, "5Gi")
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "large"), "home has no room for it, whatever the pod prefers")

	use(t, fabric.NewPod(namespace, "huge", "huge"), fabric.Class, "60Gi")
	message := await.Event(t, bed.Home.Client(), namespace, "huge", "FailedScheduling")
	assert.Contains(t, message, "3 node(s) "+tooSmall, "each node says so")
	told := await.Event(t, bed.Home.Client(), namespace, "huge", "TooLarge")
	assert.Contains(t, told, "asks for 60Gi, and no cluster that it may go to has room for a volume of that size: the most is 50Gi, in cluster west")
	await.Never(t, "a claim that is too large for all waits", func() bool { return get(t, namespace, "huge").Spec.NodeName != "" })

	tell(t, bed.West, fabric.WestWait, "100Gi", "80Gi")
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "huge"), "new room wakes it")
}

func TestAPodThatMustRunWhereThereIsNoRoomIsToldSo(t *testing.T) {
	namespace := space(t)
	tell(t, bed.West, fabric.WestWait, "0", "")
	shows(t, fabric.Class, "west", "0")
	use(t, fabric.InWest(fabric.NewPod(namespace, "there", "there")), fabric.Class, "1Gi")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "there", "FailedScheduling"), "1 node(s) "+tooSmall)
	use(t, fabric.NewPod(namespace, "anywhere", "anywhere"), fabric.Class, "1Gi")
	assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "anywhere"))
	tell(t, bed.West, fabric.WestWait, "10Gi", "")
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "there"))
}

func TestSmallChangesAreNotWritten(t *testing.T) {
	space(t)
	tell(t, bed.Home, fabric.HomeWait, "100Gi", "")
	shows(t, fabric.Class, keys.Home, "100Gi")
	tell(t, bed.Home, fabric.HomeWait, "96Gi", "")
	await.Always(t, "less than a twentieth is not worth a write", func() bool { return limit(t, fabric.Class, keys.Home) == "100Gi" })
	tell(t, bed.Home, fabric.HomeWait, "90Gi", "")
	shows(t, fabric.Class, keys.Home, "90Gi")
}

func TestWhatADriverTellsCountsOnlyWhereKubeSchedulerHeedsIt(t *testing.T) {
	namespace := space(t)
	tell(t, bed.Home, fabric.HomeWait, "1Gi", "")
	shows(t, fabric.Class, keys.Home, "1Gi")
	use(t, fabric.AtHome(fabric.NewPod(namespace, "waits", "waits")), fabric.Class, "5Gi")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "waits", "FailedScheduling"), tooSmall)
	t.Cleanup(func() { require.NoError(t, heeded(context.Background(), true)) })
	require.NoError(t, heeded(t.Context(), false))
	shows(t, fabric.Class, keys.Home, "7Ei")
	assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "waits"))
}

func TestAClassCanBeUsedInTheSecondInWhichItIsMade(t *testing.T) {
	namespace := space(t)
	class(t, "brand-new")
	use(t, fabric.AtHome(fabric.NewPod(namespace, "here", "here")), "brand-new", "1Gi")
	use(t, fabric.InWest(fabric.NewPod(namespace, "there", "there")), "brand-new", "1Gi")
	assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "here"))
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "there"))
}

func TestWhatSomebodyRemovesIsPublishedAgain(t *testing.T) {
	space(t)
	had := published(t, "")
	require.NotEmpty(t, had)
	capacities := bed.Home.Client().StorageV1().CSIStorageCapacities(fabric.System)
	require.NoError(t, capacities.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: keys.Capacity}))
	await.Until(t, "all is published again", func() bool { return len(published(t, "")) == len(had) })
	for _, capacity := range had {
		again, err := capacities.Get(t.Context(), capacity.Name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.NotEqual(t, capacity.UID, again.UID)
	}
}
