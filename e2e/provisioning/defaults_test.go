package provisioning

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The tests of this file change which real classes a cluster has, so they run
// alone.

func setDefault(t *testing.T, cluster *testbed.Cluster, class string, on bool) {
	t.Helper()
	value := "false"
	if on {
		value = "true"
	}
	_, err := cluster.Client().StorageV1().StorageClasses().Patch(context.Background(), class, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"`+value+`"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

// offers waits until home knows the default class of west; empty for none.
func offers(t *testing.T, class string) {
	t.Helper()
	eventually(t, func() bool {
		remote, err := bed.Remotes.Get(context.Background(), "west", metav1.GetOptions{})
		require.NoError(t, err)
		have := ""
		for _, offered := range remote.Status.StorageClasses {
			if offered.Default {
				have = offered.Name
			}
		}
		return have == class
	}, func() string { return "home does not see that " + class + " is the default of west" })
}

func TestChangedDefaultClassCountsForNewClaimsOnly(t *testing.T) {
	namespace := space(t)
	first := createClaim(t, fabric.NewClaim(namespace, "first", fabric.Class))
	createClaim(t, fabric.NewClaim(namespace, "there", fabric.Class))
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "first")))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "far", "there")))
	runs(t, namespace, "db")
	runs(t, namespace, "far")
	twin, _ := bound(t, bed.Home, fabric.Storage, twinOf(first))
	shadow, _ := bound(t, bed.West, namespace, "there")

	t.Cleanup(func() { offers(t, fabric.WestWait) })
	for cluster, classes := range map[*testbed.Cluster][2]string{bed.Home: {fabric.HomeWait, fabric.HomeNow}, bed.West: {fabric.WestWait, fabric.WestNow}} {
		t.Cleanup(func() { setDefault(t, cluster, classes[0], true); setDefault(t, cluster, classes[1], false) })
		setDefault(t, cluster, classes[1], true)
		setDefault(t, cluster, classes[0], false)
	}
	offers(t, fabric.WestNow)
	second := createClaim(t, fabric.NewClaim(namespace, "second", fabric.Class))
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "db2", "second")))
	createClaim(t, fabric.NewClaim(namespace, "there2", fabric.Class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "far2", "there2")))
	runs(t, namespace, "db2")
	runs(t, namespace, "far2")

	assert.Equal(t, fabric.HomeNow, *claimOf(t, bed.Home, fabric.Storage, twinOf(second)).Spec.StorageClassName)
	assert.Equal(t, fabric.WestNow, *claimOf(t, bed.West, namespace, "there2").Spec.StorageClassName)
	assert.Equal(t, twin.ResourceVersion, claimOf(t, bed.Home, fabric.Storage, twinOf(first)).ResourceVersion, "an existing twin was touched")
	assert.Equal(t, shadow.ResourceVersion, claimOf(t, bed.West, namespace, "there").ResourceVersion, "an existing shadow was touched")
}

// TestClaimWithoutAClassGetsTheVirtualDefault makes a virtual class the default
// while a claim without a class waits, and then a second, newer default.
func TestClaimWithoutAClassGetsTheVirtualDefault(t *testing.T) {
	namespace := space(t)
	t.Cleanup(func() { setDefault(t, bed.Home, fabric.HomeWait, true) })
	setDefault(t, bed.Home, fabric.HomeWait, false)
	early := fabric.NewClaim(namespace, "early", "")
	early.Spec.StorageClassName = nil
	early = createClaim(t, early)
	require.Nil(t, early.Spec.StorageClassName)
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "early")))

	isDefault := func(class *storagev1.StorageClass) {
		class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	older := newClass(t, isDefault, with(keys.LocalClass, fabric.HomeWait))
	runs(t, namespace, "db")
	claim, _ := bound(t, bed.Home, namespace, "early")
	assert.Equal(t, older, *claim.Spec.StorageClassName)
	bound(t, bed.Home, fabric.Storage, twinOf(claim))

	time.Sleep(1100 * time.Millisecond) // creation times have seconds
	newer := newClass(t, isDefault, with(keys.LocalClass, fabric.HomeNow))
	eventually(t, func() bool {
		late := fabric.NewClaim(namespace, "late", "")
		late.Spec.StorageClassName = nil
		if late = createClaim(t, late); *late.Spec.StorageClassName == newer {
			return true
		}
		// The API server had not seen the class yet.
		deleteClaim(t, bed.Home, namespace, "late")
		absent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "late") })
		return false
	}, func() string { return "the newer default does not count" })
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "db2", "late")))
	runs(t, namespace, "db2")
	claim, _ = bound(t, bed.Home, namespace, "late")
	twin, _ := bound(t, bed.Home, fabric.Storage, twinOf(claim))
	assert.Equal(t, fabric.HomeNow, *twin.Spec.StorageClassName)
}

func TestRemoteClusterWithoutStorageIsPassedOver(t *testing.T) {
	namespace := space(t)
	classes := bed.West.Client().StorageV1().StorageClasses()
	t.Cleanup(func() { offers(t, fabric.WestWait) })
	for _, name := range []string{fabric.WestWait, fabric.WestNow} {
		class, err := classes.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, classes.Delete(t.Context(), name, metav1.DeleteOptions{}))
		t.Cleanup(func() {
			class.ResourceVersion, class.UID = "", ""
			_, err := classes.Create(context.Background(), class, metav1.CreateOptions{})
			assert.NoError(t, err)
		})
	}
	offers(t, "")

	claim := createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	createPod(t, preferWest(fabric.NewPod(namespace, "db", "data")))
	assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "db"))
	bound(t, bed.Home, fabric.Storage, twinOf(claim))

	// A node that was chosen without the extender.
	createClaim(t, selecting(fabric.NewClaim(namespace, "sent", fabric.Class), fabric.WestNode))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "sent", "NoRealClass"), `cluster "west" has no default storage class`)
	eventually(t, func() bool { return claimOf(t, bed.Home, namespace, "sent").Annotations[keys.SelectedNode] == "" }, func() string { return "the claim still has its node" })
	assert.Nil(t, claimOf(t, bed.West, namespace, "sent"))
}
