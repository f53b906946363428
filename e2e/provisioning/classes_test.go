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

	"github.com/lodestone-storage/lodestone/e2e/fabric"
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
		{name: "a local class does not count elsewhere", class: []string{keys.LocalClass, fabric.HomeNow}, place: fabric.InWest, west: fabric.WestWait},
		{name: "a remote class", class: []string{keys.RemoteClass, fabric.WestNow}, place: fabric.InWest, west: fabric.WestNow},
		{name: "a class for one remote cluster goes before that for all", class: []string{keys.RemoteClass, "none", keys.RemoteClass + ".west", fabric.WestNow}, place: fabric.InWest, west: fabric.WestNow},
		{name: "a class that the claim chooses among those listed", class: []string{keys.Classes, "x, " + fabric.HomeNow}, wants: fabric.HomeNow, place: fabric.AtHome, home: fabric.HomeNow},
		{name: "… and in the remote cluster", class: []string{keys.Classes, "x, " + fabric.WestNow}, wants: fabric.WestNow, place: fabric.InWest, west: fabric.WestNow},
		{name: "clusters that leave out the preferred one", class: []string{keys.Clusters, "home,east"}, place: preferWest, home: fabric.HomeWait},
		{name: "a remote class that the preferred cluster lacks", class: []string{keys.RemoteClass, "absent"}, place: preferWest, home: fabric.HomeWait},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			claim := fabric.NewClaim(namespace, "data", newClass(t, with(row.class...)))
			if row.wants != "" {
				annotated(claim, keys.Class, row.wants)
			}
			claim = createClaim(t, claim)
			createPod(t, row.place(fabric.NewPod(namespace, "db", "data")))
			runs(t, namespace, "db")
			if row.home != "" {
				twin, _ := bound(t, bed.Home, fabric.Storage, twinOf(claim))
				assert.Equal(t, row.home, *twin.Spec.StorageClassName)
				return
			}
			shadow, _ := bound(t, bed.West, namespace, "data")
			assert.Equal(t, row.west, *shadow.Spec.StorageClassName)
		})
	}
}

func TestNamesOf253Characters(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			name := strings.Repeat("n", 253)
			createClaim(t, fabric.NewClaim(namespace, name, fabric.Class))
			pod := route.place(fabric.NewPod(namespace, "db", name))
			pod.Spec.Volumes[0].Name = "data"
			createPod(t, pod)
			runs(t, namespace, "db")
			_, virtual := bound(t, bed.Home, namespace, name)
			assert.NotNil(t, backingOf(t, virtual))

			deletePod(t, namespace, "db")
			deleteClaim(t, bed.Home, namespace, name)
			absent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, virtual.Name) })
			assert.Nil(t, backingOf(t, virtual))
		})
	}
}

// TestAffinityOfTheRealVolumeIsKept uses a hand-made real volume, since few
// provisioners name nodes by field.
func TestAffinityOfTheRealVolumeIsKept(t *testing.T) {
	t.Parallel()
	namespace := space(t)
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
	createClaim(t, fabric.NewClaim(namespace, "data", newClass(t, with(keys.LocalClass, class))))
	createPod(t, fabric.OnNode(fabric.NewPod(namespace, "db", "data"), "home-2"))
	runs(t, namespace, "db")

	_, virtual := bound(t, bed.Home, namespace, "data")
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
	t.Parallel()
	namespace := space(t)
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
		"of another class":          createClaim(t, selecting(fabric.NewClaim(namespace, "other", fabric.HomeWait), "home-1")),
		"bound to a given volume":   createClaim(t, selecting(prebound, "home-1")),
		"that no pod uses":          createClaim(t, fabric.NewClaim(namespace, "unused", class)),
		"of a class that is absent": createClaim(t, selecting(fabric.NewClaim(namespace, "absent", "absent"), "home-1")),
	}
	bound(t, bed.Home, namespace, "other")
	bound(t, bed.Home, namespace, "prebound")
	consistently(t, func() bool {
		for what, claim := range claims {
			require.Nil(t, claimOf(t, bed.Home, fabric.Storage, twinOf(claim)), "a twin was made for a claim "+what)
		}
		return true
	}, "")
	for _, warning := range warnings(t, namespace) {
		assert.Contains(t, warning, "PersistentVolumeClaim/absent ProvisioningFailed: storageclass", "kube-controller-manager's own is the only one")
	}
}

func createVolume(t *testing.T, cluster *testbed.Cluster, volume *corev1.PersistentVolume) {
	t.Helper()
	volumes := cluster.Client().CoreV1().PersistentVolumes()
	_, err := volumes.Create(t.Context(), volume, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = volumes.Delete(context.Background(), volume.Name, metav1.DeleteOptions{}) })
}
