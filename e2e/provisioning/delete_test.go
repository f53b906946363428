package provisioning

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backing"
)

// route is a way of a claim, with where its backing claim and real volume are
// then.
type route struct {
	name    string
	place   func(*corev1.Pod) *corev1.Pod
	cluster func() *testbed.Cluster
	storage func() *fakeprovisioner.Provisioner
}

// routes are both ways.
var routes = []route{
	{
		name: "at home", place: fabric.AtHome,
		cluster: func() *testbed.Cluster { return bed.Home },
		storage: func() *fakeprovisioner.Provisioner { return bed.HomeStorage },
	},
	{
		name: "in the remote cluster", place: fabric.InWest,
		cluster: func() *testbed.Cluster { return bed.West },
		storage: func() *fakeprovisioner.Provisioner { return bed.WestStorage },
	},
}

// onRoutes runs a test once for each route, at the same time and in namespaces of their own.
func onRoutes(t *testing.T, test func(t *testing.T, route route, namespace string)) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			test(t, route, beside(t))
		})
	}
}

// remove deletes pod "db" and claim "data".
func remove(t *testing.T, namespace string) {
	t.Helper()
	deletePod(t, namespace, "db")
	deleteClaim(t, bed.Home, namespace, "data")
}

// served makes a claim and a pod that runs with it, and returns the claim's
// virtual volume, backing claim and real volume.
func served(t *testing.T, namespace, class string, place func(*corev1.Pod) *corev1.Pod,
	cluster *testbed.Cluster) (virtual *corev1.PersistentVolume, b *corev1.PersistentVolumeClaim, real *corev1.PersistentVolume) {
	t.Helper()
	claimAndPod(t, namespace, class, place)
	_, virtual = awaitBound(t, bed.Home, namespace, "data")
	ref, err := backing.RefOf(virtual)
	require.NoError(t, err)
	b, real = awaitBound(t, cluster, ref.Namespace, ref.Name)
	return virtual, b, real
}

func TestDeletedClaimTakesAllThatIsBehindIt(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		virtual, b, real := served(t, namespace, fabric.Class, route.place, route.cluster())
		remove(t, namespace)

		awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
		assert.Nil(t, volumeOf(t, route.cluster(), real.Name), "the real volume goes first")
		assert.Nil(t, claimOf(t, route.cluster(), b.Namespace, b.Name))
		assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle))
		assert.Empty(t, warnings(t, namespace))
	})
}

func TestVirtualVolumeStaysUntilTheRealOneIsGone(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		virtual, b, real := served(t, namespace, fabric.Class, route.place, route.cluster())
		route.storage().SetClaim(b.Namespace, b.Name, fakeprovisioner.Behavior{DeleteNever: true})
		remove(t, namespace)

		awaitAbsent(t, "backing claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, route.cluster(), b.Namespace, b.Name) })
		consistently(t, func() bool { return volumeOf(t, bed.Home, virtual.Name) != nil }, "the virtual volume went before the real one")
		assert.NotNil(t, volumeOf(t, route.cluster(), real.Name))
		assert.Contains(t, awaitVolumeEvent(t, virtual.Name, "WaitingForRealVolume"), real.Name)

		route.storage().ResetClaim(b.Namespace, b.Name)
		awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
		assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle))
	})
}

func TestDataIsNotDeletedWhileTheVolumeIsAttached(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		virtual, b, _ := served(t, namespace, fabric.Class, route.place, route.cluster())
		attachments := bed.Home.Client().StorageV1().VolumeAttachments()
		must.Create(t, attachments, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: "by.hand", NodeName: "home-2",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &virtual.Name},
			},
		})
		t.Cleanup(func() { _ = attachments.Delete(context.Background(), namespace, metav1.DeleteOptions{}) })
		remove(t, namespace)

		assert.Contains(t, awaitVolumeEvent(t, virtual.Name, "StillAttached"), `"home-2"`)
		consistently(t, func() bool {
			b := claimOf(t, route.cluster(), b.Namespace, b.Name)
			return b != nil && b.DeletionTimestamp == nil
		}, "the backing claim was deleted under a node that uses it")

		must.Delete(t, attachments, namespace)
		awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
		assert.Nil(t, claimOf(t, route.cluster(), b.Namespace, b.Name))
	})
}

func TestVolumeThatIsDeletedBeforeItsClaimLeaksNothing(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		virtual, b, real := served(t, namespace, fabric.Class, route.place, route.cluster())
		must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumes(), virtual.Name)
		consistently(t, func() bool {
			b := claimOf(t, route.cluster(), b.Namespace, b.Name)
			return b != nil && b.DeletionTimestamp == nil
		}, "the data was deleted while the claim uses it")

		remove(t, namespace)
		awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
		assert.Nil(t, claimOf(t, route.cluster(), b.Namespace, b.Name))
		assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle))
	})
}

func TestDeletedNamespaceTakesItsVolumesAndEnds(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		virtual, _, real := served(t, namespace, fabric.Class, route.place, route.cluster())
		deleteNamespace(t, bed.Home, namespace)

		awaitNamespaceGone(t, bed.Home, namespace)
		awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
		assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle))
	})
}

// TestRealVolumeThatItsClassRetainsCountsAsGone covers a real class whose
// administrator wants its volumes kept.
func TestRealVolumeThatItsClassRetainsCountsAsGone(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	class := bed.WestStorage.Class("kept-"+namespace, storagev1.VolumeBindingImmediate)
	class.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain)
	makeClass(t, bed.West, class)
	virtual, b, real := served(t, namespace, newClass(t, with("lodestone.dev/remote-class", class.Name)), fabric.InWest, bed.West)
	t.Cleanup(func() {
		_ = bed.West.Client().CoreV1().PersistentVolumes().Delete(context.Background(), real.Name, metav1.DeleteOptions{})
	})
	remove(t, namespace)

	awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
	assert.Nil(t, claimOf(t, bed.West, b.Namespace, b.Name))
	require.NotNil(t, volumeOf(t, bed.West, real.Name))
	assert.True(t, bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle))
}

func TestRetainedVolumeOutlivesItsClaimItsNamespaceAndItsObject(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, end := range []struct {
			name   string
			remove func(t *testing.T, namespace string)
		}{
			{name: "claim deleted", remove: remove},
			{name: "namespace deleted", remove: func(t *testing.T, namespace string) {
				t.Helper()
				deleteNamespace(t, bed.Home, namespace)
				awaitNamespaceGone(t, bed.Home, namespace)
			}},
		} {
			t.Run(route.name+", "+end.name, func(t *testing.T) {
				namespace := beside(t)
				virtual, b, real := served(t, namespace, newClass(t, retain), route.place, route.cluster())
				removeAfter(t, route.cluster(), b.Namespace, b.Name)
				volumes := bed.Home.Client().CoreV1().PersistentVolumes()
				t.Cleanup(func() { _ = volumes.Delete(context.Background(), virtual.Name, metav1.DeleteOptions{}) })
				end.remove(t, namespace)

				eventually(t, func() bool { return volumeOf(t, bed.Home, virtual.Name).Status.Phase == corev1.VolumeReleased },
					func() string { return "the virtual volume is not released" })
				consistently(t, func() bool { return isKept(t, route.cluster(), route.storage(), b, real) }, "a retained volume was touched")

				must.Delete(t, volumes, virtual.Name)
				awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
				consistently(t, func() bool { return isKept(t, route.cluster(), route.storage(), b, real) },
					"a retained volume was touched when its object was deleted")
			})
		}
	}
}

func isKept(t *testing.T, cluster *testbed.Cluster, storage *fakeprovisioner.Provisioner, b *corev1.PersistentVolumeClaim,
	real *corev1.PersistentVolume) bool {
	t.Helper()
	have := claimOf(t, cluster, b.Namespace, b.Name)
	return have != nil && have.UID == b.UID && have.DeletionTimestamp == nil && have.Status.Phase == corev1.ClaimBound &&
		volumeOf(t, cluster, real.Name) != nil && storage.Exists(real.Spec.CSI.VolumeHandle)
}

func TestRetainedShadowHoldsItsNameAndANewClaimGoesHome(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	class := newClass(t, retain)
	virtual, b, real := served(t, namespace, class, fabric.InWest, bed.West)
	removeAfter(t, bed.West, b.Namespace, b.Name)
	volumes := bed.Home.Client().CoreV1().PersistentVolumes()
	t.Cleanup(func() { _ = volumes.Delete(context.Background(), virtual.Name, metav1.DeleteOptions{}) })
	remove(t, namespace)
	awaitAbsent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })

	again := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", class))
	removeAfter(t, bed.Home, fabric.Storage, twinOf(again))
	t.Cleanup(func() { _ = volumes.Delete(context.Background(), twinOf(again), metav1.DeleteOptions{}) })
	bed.CreatePod(t, preferWest(fabric.NewPod(namespace, "db", "data")))
	await.Event(t, bed.Home.Client(), namespace, "data", "ForeignClaim")
	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
	assert.True(t, isKept(t, bed.West, bed.WestStorage, b, real))
}

// A data source that Kubernetes drops when the claim is created is known to nobody
// after: the volume is empty, and above all nothing of another namespace is in it.
func TestADataSourceThatKubernetesDropsGivesAnEmptyVolume(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *corev1.PersistentVolumeClaim, elsewhere string){
		"a claim of another namespace": func(c *corev1.PersistentVolumeClaim, elsewhere string) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "data", Namespace: &elsewhere}
		},
		"a volume": func(c *corev1.PersistentVolumeClaim, _ string) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolume", Name: "pvc-1"}
		},
	} {
		for _, route := range routes {
			t.Run(name+", "+route.name, func(t *testing.T) {
				t.Parallel()
				elsewhere, namespace := newNamespace(t), newNamespace(t)
				claimAndPod(t, elsewhere, fabric.Class, route.place)
				claim := fabric.NewClaim(namespace, "copy", fabric.Class)
				change(claim, elsewhere)
				made := bed.CreateClaim(t, claim)
				require.Nil(t, made.Spec.DataSource, "Kubernetes must drop what this test is about")
				require.Nil(t, made.Spec.DataSourceRef, "Kubernetes must drop what this test is about")
				bed.CreatePod(t, route.place(fabric.NewPod(namespace, "db", "copy")))
				bed.AwaitRunning(t, namespace, "db")
				volumes := slices.DeleteFunc(route.storage().Volumes(), func(v fakeprovisioner.Volume) bool {
					return v.Claim != twinOf(made) && v.Namespace != namespace
				})
				require.Len(t, volumes, 1)
				assert.Empty(t, volumes[0].Source)
			})
		}
	}
}
