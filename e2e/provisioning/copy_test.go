package provisioning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// copyOf makes a claim a copy of another of its namespace.
func copyOf(claim *corev1.PersistentVolumeClaim, source string) *corev1.PersistentVolumeClaim {
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: source}
	return claim
}

// isCopy checks that the volume behind a virtual claim is a copy of that behind
// another.
func isCopy(t *testing.T, namespace, name, source string, storage *fakeprovisioner.Provisioner) {
	t.Helper()
	volumes := map[string]fakeprovisioner.Volume{}
	for _, volume := range storage.Volumes() {
		volumes[volume.Handle] = volume
	}
	handle := func(name string) string {
		_, virtual := awaitBound(t, bed.Home, namespace, name)
		cluster, ref := bed.Home, backingOf(t, virtual)
		if storage == bed.WestStorage {
			cluster = bed.West
		}
		require.NotNil(t, ref)
		_, real := awaitBound(t, cluster, ref.Namespace, ref.Name)
		return real.Spec.CSI.VolumeHandle
	}
	assert.Equal(t, handle(source), volumes[handle(name)].Source)
}

// A copy is made in the cluster of its source, though its pod might run anywhere.
func TestCopyOfAClaimIsMadeWhereItsSourceIs(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		class := newClass(t)
		elsewhere := preferWest
		if route.storage() == bed.WestStorage {
			elsewhere = func(pod *corev1.Pod) *corev1.Pod { return fabric.Prefer(pod, "home-1") }
		}
		source := claimAndPod(t, namespace, class, route.place)
		bed.CreateClaim(t, copyOf(sized(fabric.NewClaim(namespace, "copy", class), "2Gi"), source.Name))
		bed.CreatePod(t, elsewhere(fabric.NewPod(namespace, "reader", "copy")))
		bed.AwaitRunning(t, namespace, "reader")
		isCopy(t, namespace, "copy", "data", route.storage())
		assert.Empty(t, warnings(t, namespace))

		// A copy lives longer than its source.
		remove(t, namespace)
		awaitAbsent(t, "source", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })
		assert.NotEqual(t, corev1.ClaimLost, claimOf(t, bed.Home, namespace, "copy").Status.Phase)
	})
}

// Copies of copies are made in the order of their sources, whatever comes first,
// and each pod is woken when its turn comes.
func TestPodsOfCopiesWaitForTheirSources(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		bed.CreateClaim(t, copyOf(fabric.NewClaim(namespace, "third", fabric.Class), "second"))
		bed.CreatePod(t, fabric.NewPod(namespace, "three", "third"))
		bed.CreateClaim(t, copyOf(fabric.NewClaim(namespace, "second", fabric.Class), "first"))
		bed.CreatePod(t, fabric.NewPod(namespace, "two", "second"))
		consistently(t, func() bool { return claimOf(t, bed.Home, namespace, "third").Annotations[keys.SelectedNode] == "" },
			"the pod has a node")
		bed.CreateClaim(t, fabric.NewClaim(namespace, "first", fabric.Class))
		bed.CreatePod(t, route.place(fabric.NewPod(namespace, "one", "first")))
		for _, pod := range []string{"one", "two", "three"} {
			bed.AwaitRunning(t, namespace, pod)
		}
		isCopy(t, namespace, "second", "first", route.storage())
		isCopy(t, namespace, "third", "second", route.storage())
	})
}

// A node is given by hand, as by a scheduler without the extender.
func TestCopyThatCannotBeMadeIsToldAndNeverEmpty(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		place  func(*corev1.Pod) *corev1.Pod // of the source
		class  func(*storagev1.StorageClass) // of the copy
		claim  func(*corev1.PersistentVolumeClaim)
		node   string
		reason string
		says   string
		// refused: the node is taken off the claim.
		refused bool
	}{
		{name: "the source is elsewhere", place: fabric.InWest, node: "home-1", reason: "SourceElsewhere", says: "is in cluster west",
			refused: true},
		{name: "the source is at home", place: fabric.AtHome, node: fabric.WestNode, reason: "SourceElsewhere", says: "is in the home cluster",
			refused: true},
		{name: "there is no source", node: "home-1", reason: "SourceNotBound", says: "create it"},
		{name: "the source is larger", place: fabric.AtHome, node: "home-1", claim: func(c *corev1.PersistentVolumeClaim) { sized(c, "1Mi") },
			reason: "InvalidClaim", says: "less than the 1Gi"},
		{name: "the source is a file system", place: fabric.InWest, node: fabric.WestNode, claim: func(c *corev1.PersistentVolumeClaim) {
			block := corev1.PersistentVolumeBlock
			c.Spec.VolumeMode = &block
		}, reason: "InvalidClaim", says: "volumeMode Block"},
	} {
		t.Run(row.name, func(t *testing.T) {
			namespace := beside(t)
			if row.place != nil {
				claimAndPod(t, namespace, fabric.Class, row.place)
			}
			claim := copyOf(fabric.NewClaim(namespace, "copy", fabric.Class), "data")
			if row.claim != nil {
				row.claim(claim)
			}
			claim = bed.CreateClaim(t, selecting(claim, row.node))
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "copy", row.reason), row.says)
			if row.refused {
				eventually(t, func() bool { return claimOf(t, bed.Home, namespace, "copy").Annotations[keys.SelectedNode] == "" },
					func() string { return "the scheduler cannot choose again" })
			}
			consistently(t, func() bool {
				return claimOf(t, bed.Home, fabric.Storage, twinOf(claim)) == nil && claimOf(t, bed.West, namespace, "copy") == nil &&
					volumeOf(t, bed.Home, twinOf(claim)) == nil
			}, "something was made")
		})
	}
}

func TestCopyOfAClaimThatIsNotVirtualIsRefused(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.HomeNow))
	awaitBound(t, bed.Home, namespace, "data")
	claim := bed.CreateClaim(t, selecting(copyOf(fabric.NewClaim(namespace, "copy", fabric.Class), "data"), "home-1"))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "copy", "InvalidClaim"), "storage class of its source")
	assert.Nil(t, claimOf(t, bed.Home, fabric.Storage, twinOf(claim)))

	// Once there is a virtual one of that name instead, the copy is made.
	deleteClaim(t, bed.Home, namespace, "data")
	awaitAbsent(t, "source", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })
	claimAndPod(t, namespace, fabric.Class, fabric.AtHome)
	isCopy(t, namespace, "copy", "data", bed.HomeStorage)
}

// The source goes while the real provisioner is at work, and comes back.
func TestCopyWhoseSourceVanishesFollowsItsSuccessor(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	claimAndPod(t, namespace, fabric.Class, fabric.AtHome)
	claim := copyOf(fabric.NewClaim(namespace, "copy", fabric.Class), "data")
	claim = bed.CreateClaim(t, claim)
	bed.HomeStorage.SetClaim(fabric.Storage, twinOf(claim), never)
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "reader", "copy")))
	eventually(t, func() bool { return claimOf(t, bed.Home, fabric.Storage, twinOf(claim)) != nil }, func() string {
		return "there is no twin"
	})

	remove(t, namespace)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "copy", "SourceNotBound"), `claim "data"`)
	awaitAbsent(t, "source", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })
	first := claimOf(t, bed.Home, fabric.Storage, twinOf(claim))
	require.NotNil(t, first, "what may be on its way stays")

	claimAndPod(t, namespace, fabric.Class, fabric.AtHome)
	eventually(t, func() bool {
		second := claimOf(t, bed.Home, fabric.Storage, twinOf(claim))
		return second != nil && second.UID != first.UID
	}, func() string { return "the twin is still to be a copy of what is gone" })
	bed.HomeStorage.ResetClaim(fabric.Storage, twinOf(claim))
	bed.AwaitRunning(t, namespace, "reader")
	isCopy(t, namespace, "copy", "data", bed.HomeStorage)
}

// The provisioner is stopped on the way of a copy, and what is carried changes
// meanwhile on both sides: the next one finds out by itself.
func TestNextProvisionerGoesOnWithCopiesAndWhatIsCarried(t *testing.T) {
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			namespace := newNamespace(t)
			class := newClass(t, with(keys.Carry, "*"))
			source := claimAndPod(t, namespace, class, route.place)
			_, virtual := awaitBound(t, bed.Home, namespace, "data")
			claim := bed.CreateClaim(t, copyOf(fabric.NewClaim(namespace, "copy", class), "data"))
			in, name := namespace, "copy"
			if route.cluster() == bed.Home {
				in, name = fabric.Storage, twinOf(claim)
			}
			route.storage().SetClaim(in, name, never)
			bed.CreatePod(t, fabric.NewPod(namespace, "reader", "copy"))
			eventually(t, func() bool { return claimOf(t, route.cluster(), in, name) != nil }, func() string { return "the copy is not on its way" })

			stopProvisioner(t)
			change(t, bed.Home, source, annotations(map[string]any{"note": "new"}))
			change(t, route.cluster(), backingOf(t, virtual),
				annotations(map[string]any{"drift": "theirs", keys.Carried: `{"annotations":["drift"]}`}))
			route.storage().ResetClaim(in, name)
			startProvisioner(t)

			bed.AwaitRunning(t, namespace, "reader")
			isCopy(t, namespace, "copy", "data", route.storage())
			eventually(t, func() bool {
				b := backingOf(t, virtual)
				_, drift := b.Annotations["drift"]
				return b.Annotations["note"] == "new" && !drift
			}, func() string { return "what is carried is not in step" })
			require.Equal(t, string(source.UID), backingOf(t, virtual).Labels[keys.ClaimUID])
		})
	}
}
