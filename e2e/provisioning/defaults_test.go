package provisioning

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
