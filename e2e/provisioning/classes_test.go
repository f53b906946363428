package provisioning

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

func TestVirtualClassChoosesTheRealClass(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		class []string
		wants string
		place func(*corev1.Pod) *corev1.Pod
		home  string
		west  string
	}{
		{name: "none named: the default at home", place: fabric.AtHome, home: fabric.HomeWait},
		{name: "none named: the default in the remote cluster", place: fabric.InWest, west: fabric.WestWait},
		{name: "a local class", class: []string{keys.LocalClass, fabric.HomeNow}, place: fabric.AtHome, home: fabric.HomeNow},
		{name: "a local class does not count elsewhere", class: []string{keys.LocalClass, fabric.HomeNow}, place: fabric.InWest,
			west: fabric.WestWait},
		{name: "a remote class", class: []string{keys.RemoteClass, fabric.WestNow}, place: fabric.InWest, west: fabric.WestNow},
		{name: "a class for one remote cluster goes before that for all", class: []string{keys.RemoteClass, "none", keys.RemoteClass + ".west",
			fabric.WestNow}, place: fabric.InWest, west: fabric.WestNow},
		{name: "a class that the claim chooses among those listed", class: []string{keys.Classes, "x, " + fabric.HomeNow}, wants: fabric.HomeNow,
			place: fabric.AtHome, home: fabric.HomeNow},
		{name: "… and in the remote cluster", class: []string{keys.Classes, "x, " + fabric.WestNow}, wants: fabric.WestNow,
			place: fabric.InWest, west: fabric.WestNow},
		{name: "clusters that leave out the preferred one", class: []string{keys.Clusters, "home,east"}, place: preferWest,
			home: fabric.HomeWait},
		{name: "a remote class that the preferred cluster lacks", class: []string{keys.RemoteClass, "absent"}, place: preferWest,
			home: fabric.HomeWait},
	} {
		t.Run(row.name, func(t *testing.T) {
			namespace := beside(t)
			claim := fabric.NewClaim(namespace, "data", newClass(t, with(row.class...)))
			if row.wants != "" {
				annotated(claim, keys.Class, row.wants)
			}
			claim = bed.CreateClaim(t, claim)
			bed.CreatePod(t, row.place(fabric.NewPod(namespace, "db", "data")))
			bed.AwaitRunning(t, namespace, "db")
			if row.home != "" {
				twin, _ := awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))
				assert.Equal(t, row.home, *twin.Spec.StorageClassName)
				return
			}
			shadow, _ := awaitBound(t, bed.West, namespace, "data")
			assert.Equal(t, row.west, *shadow.Spec.StorageClassName)
		})
	}
}

func TestNamesOf253Characters(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		name := strings.Repeat("n", 253)
		bed.CreateClaim(t, fabric.NewClaim(namespace, name, fabric.Class))
		pod := route.place(fabric.NewPod(namespace, "db", name))
		pod.Spec.Volumes[0].Name = "data"
		bed.CreatePod(t, pod)
		bed.AwaitRunning(t, namespace, "db")
		_, virtual := awaitBound(t, bed.Home, namespace, name)
		assert.NotNil(t, backingOf(t, virtual))

		deletePod(t, namespace, "db")
		deleteClaim(t, bed.Home, namespace, name)
		awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
		assert.Nil(t, backingOf(t, virtual))
	})
}

// TestAffinityOfTheRealVolumeIsKept uses a hand-made real volume, since few
// provisioners name nodes by field.
func TestAffinityOfTheRealVolumeIsKept(t *testing.T) {
	namespace := beside(t)
	immediate := storagev1.VolumeBindingImmediate
	class := makeClass(t, bed.Home, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "static-" + namespace}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &immediate,
	})
	byField := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"home-2"}}
	byLabel := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"home-2"}}
	createVolume(t, bed.Home, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchFields: []corev1.NodeSelectorRequirement{byField}},
				{MatchExpressions: []corev1.NodeSelectorRequirement{byLabel}},
			}}},
		},
	})
	bed.CreateClaim(t, fabric.NewClaim(namespace, "data", newClass(t, with(keys.LocalClass, class))))
	bed.CreatePod(t, fabric.OnNode(fabric.NewPod(namespace, "db", "data"), "home-2"))
	bed.AwaitRunning(t, namespace, "db")

	_, virtual := awaitBound(t, bed.Home, namespace, "data")
	athome := corev1.NodeSelectorRequirement{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist}
	assert.Equal(t, []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{athome}, MatchFields: []corev1.NodeSelectorRequirement{byField}},
		{MatchExpressions: []corev1.NodeSelectorRequirement{byLabel, athome}},
	}, virtual.Spec.NodeAffinity.Required.NodeSelectorTerms)
	assert.Equal(t, "5Gi", virtual.Spec.Capacity.Storage().String())
	assert.Equal(t, "/data", virtual.Spec.Local.Path)
	cluster, ok := locality.OfVolume(virtual.Spec.NodeAffinity)
	require.True(t, ok)
	assert.Equal(t, keys.Home, cluster)
}

func TestClaimsThatAreNotOursAreLeftAlone(t *testing.T) {
	namespace := beside(t)
	class := newClass(t)
	createVolume(t, bed.Home, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.test", Path: "/"}},
		},
	})
	prebound := fabric.NewClaim(namespace, "prebound", class)
	prebound.Spec.VolumeName = namespace
	claims := map[string]*corev1.PersistentVolumeClaim{
		"of another class":          bed.CreateClaim(t, selecting(fabric.NewClaim(namespace, "other", fabric.HomeWait), "home-1")),
		"bound to a given volume":   bed.CreateClaim(t, selecting(prebound, "home-1")),
		"that no pod uses":          bed.CreateClaim(t, fabric.NewClaim(namespace, "unused", class)),
		"of a class that is absent": bed.CreateClaim(t, selecting(fabric.NewClaim(namespace, "absent", "absent"), "home-1")),
	}
	awaitBound(t, bed.Home, namespace, "other")
	awaitBound(t, bed.Home, namespace, "prebound")
	consistently(t, func() bool {
		for what, claim := range claims {
			require.Nil(t, claimOf(t, bed.Home, fabric.Storage, twinOf(claim)), "a twin was made for a claim "+what)
		}
		return true
	}, "")
	for _, warning := range warnings(t, namespace) {
		assert.Contains(t, warning, "PersistentVolumeClaim/absent ProvisioningFailed: storageclass",
			"kube-controller-manager's own is the only one")
	}
}

func createVolume(t *testing.T, cluster *testbed.Cluster, volume *corev1.PersistentVolume) {
	t.Helper()
	volumes := cluster.Client().CoreV1().PersistentVolumes()
	must.Create(t, volumes, volume)
	t.Cleanup(func() { _ = volumes.Delete(context.Background(), volume.Name, metav1.DeleteOptions{}) })
}

// realClass makes a real class of its own in the cluster of a route, whose volumes
// are never made if stuck, and returns the parameters with which a virtual class
// names it.
func realClass(t *testing.T, r route, name string, stuck bool) func(*storagev1.StorageClass) {
	t.Helper()
	mode := storagev1.VolumeBindingImmediate
	if stuck {
		r.storage().SetClass(name, never)
		t.Cleanup(func() { r.storage().ResetClass(name) })
	}
	makeClass(t, r.cluster(), r.storage().Class(name, mode))
	return r.named(name)
}

// named has a virtual class take a real class of the cluster of a route.
func (r route) named(class string) func(*storagev1.StorageClass) {
	return with(keys.LocalClass, class, keys.RemoteClass, class)
}

// backingPlace is where the backing claim of a claim is.
func (r route) backingPlace(claim *corev1.PersistentVolumeClaim) (namespace, name string) {
	if r.cluster() == bed.Home {
		return fabric.Storage, twinOf(claim)
	}
	return claim.Namespace, claim.Name
}

// backingIs waits until the backing claim of a claim is there and of a real class.
func (r route) backingIs(t *testing.T, claim *corev1.PersistentVolumeClaim, class string) *corev1.PersistentVolumeClaim {
	t.Helper()
	namespace, name := r.backingPlace(claim)
	var b *corev1.PersistentVolumeClaim
	eventually(t, func() bool {
		b = claimOf(t, r.cluster(), namespace, name)
		return b != nil && b.DeletionTimestamp == nil && *b.Spec.StorageClassName == class
	}, func() string { return "there is no backing claim of class " + class })
	return b
}

func removeClass(t *testing.T, cluster *testbed.Cluster, name string) {
	t.Helper()
	must.Delete(t, cluster.Client().StorageV1().StorageClasses(), name)
}

// makeAnew makes a virtual class of a name that is free again.
func makeAnew(t *testing.T, name string, change func(*storagev1.StorageClass)) {
	t.Helper()
	newClass(t, change, func(class *storagev1.StorageClass) { class.Name = name })
}

// TestClassThatIsDeletedOrMadeAnewChangesNoVolume makes the class anew with the
// other reclaim policy, and with real classes that do not exist.
func TestClassThatIsDeletedOrMadeAnewChangesNoVolume(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, row := range []struct {
			name          string
			before, after corev1.PersistentVolumeReclaimPolicy
			anew          bool
		}{
			{name: "deletes, class deleted", before: corev1.PersistentVolumeReclaimDelete},
			{name: "retains, class deleted", before: corev1.PersistentVolumeReclaimRetain},
			{name: "deletes, class would now retain", before: corev1.PersistentVolumeReclaimDelete, after: corev1.PersistentVolumeReclaimRetain,
				anew: true},
			{name: "retains, class would now delete", before: corev1.PersistentVolumeReclaimRetain, after: corev1.PersistentVolumeReclaimDelete,
				anew: true},
		} {
			t.Run(route.name+", "+row.name, func(t *testing.T) {
				namespace := beside(t)
				class := newClass(t, func(c *storagev1.StorageClass) { c.ReclaimPolicy = &row.before })
				virtual, b, real := served(t, namespace, class, route.place, route.cluster())
				t.Cleanup(func() {
					_ = bed.Home.Client().CoreV1().PersistentVolumes().Delete(context.Background(), virtual.Name, metav1.DeleteOptions{})
				})
				removeAfter(t, route.cluster(), b.Namespace, b.Name)
				removeClass(t, bed.Home, class)
				if row.anew {
					makeAnew(t, class, func(c *storagev1.StorageClass) {
						route.named("absent")(c)
						c.ReclaimPolicy, c.MountOptions = &row.after, []string{"ro"}
					})
				}
				have := volumeOf(t, bed.Home, virtual.Name)
				assert.Equal(t, row.before, have.Spec.PersistentVolumeReclaimPolicy)
				assert.Equal(t, virtual.Spec.MountOptions, have.Spec.MountOptions)
				deletePod(t, namespace, "db")
				bed.CreatePod(t, route.place(fabric.NewPod(namespace, "again", "data")))
				bed.AwaitRunning(t, namespace, "again")
				assert.True(t, isKept(t, route.cluster(), route.storage(), b, real))

				deletePod(t, namespace, "again")
				deleteClaim(t, bed.Home, namespace, "data")
				if row.before == corev1.PersistentVolumeReclaimDelete {
					awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
					assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle), "the real volume is left")
					return
				}
				eventually(t, func() bool { return volumeOf(t, bed.Home, virtual.Name).Status.Phase == corev1.VolumeReleased },
					func() string { return "the virtual volume is not released" })
				consistently(t, func() bool { return isKept(t, route.cluster(), route.storage(), b, real) }, "a retained volume was touched")
			})
		}
	}
}

// TestRealClassThatIsDeletedAndMadeAnew deletes the real class while one claim of
// it has its volume and another waits.
func TestRealClassThatIsDeletedAndMadeAnew(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		name := "real-" + namespace
		class := newClass(t, realClass(t, route, name, false))
		virtual, b, real := served(t, namespace, class, route.place, route.cluster())
		route.storage().SetClass(name, never)
		waiting := bed.CreateClaim(t, fabric.NewClaim(namespace, "waiting", class))
		bed.CreatePod(t, route.place(fabric.NewPod(namespace, "waits", "waiting")))
		old := route.backingIs(t, waiting, name)

		removeClass(t, route.cluster(), name)
		assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "waiting", "NoRealClass"), name)
		awaitAbsent(t, "backing claim of a class that is gone", func() *corev1.PersistentVolumeClaim {
			return claimOf(t, route.cluster(), old.Namespace, old.Name)
		})
		assert.True(t, isKept(t, route.cluster(), route.storage(), b, real))
		route.storage().ResetClass(name)
		makeClass(t, route.cluster(), route.storage().Class(name, storagev1.VolumeBindingWaitForFirstConsumer))
		bed.AwaitRunning(t, namespace, "waits")
		_, other := awaitBound(t, bed.Home, namespace, "waiting")
		assert.NotEqual(t, old.UID, backingOf(t, other).UID)

		removeClass(t, route.cluster(), name)
		remove(t, namespace)
		awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
		assert.False(t, route.storage().Exists(real.Spec.CSI.VolumeHandle), "its class is not needed to delete a volume")
	})
}

// TestWaitingClaimFollowsItsClassThatIsMadeAnew deletes the class while the backing
// claim waits for its volume, and makes it anew with another real class, which
// makes volumes, and with the policy Retain.
func TestWaitingClaimFollowsItsClassThatIsMadeAnew(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		stuck, good := "stuck-"+namespace, "good-"+namespace
		parameters := realClass(t, route, stuck, true)
		goodParameters := realClass(t, route, good, false)
		class := newClass(t, parameters)
		claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", class))
		bed.CreatePod(t, route.place(fabric.NewPod(namespace, "db", "data")))
		first := route.backingIs(t, claim, stuck)

		removeClass(t, bed.Home, class)
		consistently(t, func() bool {
			b := claimOf(t, route.cluster(), first.Namespace, first.Name)
			return b != nil && b.UID == first.UID && b.DeletionTimestamp == nil
		}, "the class may come back: what waits must stay")
		makeAnew(t, class, func(c *storagev1.StorageClass) { goodParameters(c); retain(c) })

		second := route.backingIs(t, claim, good)
		assert.NotEqual(t, first.UID, second.UID)
		bed.AwaitRunning(t, namespace, "db")
		_, virtual := awaitBound(t, bed.Home, namespace, "data")
		removeAfter(t, route.cluster(), second.Namespace, second.Name)
		t.Cleanup(func() {
			_ = bed.Home.Client().CoreV1().PersistentVolumes().Delete(context.Background(), virtual.Name, metav1.DeleteOptions{})
		})
		assert.Equal(t, corev1.PersistentVolumeReclaimRetain, virtual.Spec.PersistentVolumeReclaimPolicy)
		assert.Equal(t, second.UID, backingOf(t, virtual).UID)
	})
}

// TestClassThatBindsAtOnceIsRefusedUntilItIsMended makes a class anew with binding
// mode Immediate while a claim of it waits.
func TestClassThatBindsAtOnceIsRefusedUntilItIsMended(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		stuck := "stuck-" + namespace
		parameters := realClass(t, route, stuck, true)
		class := newClass(t, parameters)
		claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", class))
		bed.CreatePod(t, route.place(fabric.NewPod(namespace, "db", "data")))
		b := route.backingIs(t, claim, stuck)
		removeClass(t, bed.Home, class)
		makeAnew(t, class, func(c *storagev1.StorageClass) {
			parameters(c)
			c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
		})
		assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "InvalidClaim"), "volumeBindingMode Immediate")
		assert.Nil(t, volumeOf(t, bed.Home, twinOf(claim)))

		removeClass(t, bed.Home, class)
		makeAnew(t, class, parameters)
		route.storage().ResetClass(stuck)
		bed.AwaitRunning(t, namespace, "db")
		_, virtual := awaitBound(t, bed.Home, namespace, "data")
		assert.Equal(t, b.UID, backingOf(t, virtual).UID, "what waited is used")
	})
}

// TestWaitingClaimThatIsDeletedLeavesNothing deletes what a claim that waits for its
// real volume depends on, and then the claim.
func TestWaitingClaimThatIsDeletedLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, row := range []struct {
			name   string
			remove func(t *testing.T, namespace, class, real string)
		}{
			{name: "after its class", remove: func(t *testing.T, namespace, class, _ string) {
				t.Helper()
				removeClass(t, bed.Home, class)
				remove(t, namespace)
			}},
			{name: "after its real class", remove: func(t *testing.T, namespace, _, real string) {
				t.Helper()
				removeClass(t, route.cluster(), real)
				remove(t, namespace)
			}},
			{name: "with its namespace", remove: func(t *testing.T, namespace, _, _ string) {
				t.Helper()
				deleteNamespace(t, bed.Home, namespace)
				awaitNamespaceGone(t, bed.Home, namespace)
			}},
		} {
			t.Run(route.name+", "+row.name, func(t *testing.T) {
				namespace := beside(t)
				stuck := "stuck-" + namespace
				class := newClass(t, realClass(t, route, stuck, true))
				claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", class))
				bed.CreatePod(t, route.place(fabric.NewPod(namespace, "db", "data")))
				b := route.backingIs(t, claim, stuck)
				row.remove(t, namespace, class, stuck)

				awaitAbsent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })
				awaitAbsent(t, "backing claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, route.cluster(), b.Namespace, b.Name) })
				assert.Nil(t, volumeOf(t, bed.Home, twinOf(claim)))
			})
		}
	}
}
