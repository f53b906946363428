package clusters

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func storageClass(t *testing.T, cluster *testbed.Cluster, name, provisioner string) {
	t.Helper()
	classes := cluster.Client().StorageV1().StorageClasses()
	_, err := classes.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, classes.Delete(context.Background(), name, metav1.DeleteOptions{})) })
}

// TestTheLifeOfARemoteCluster follows one from a mistake to its end.
func TestTheLifeOfARemoteCluster(t *testing.T) {
	testbed.Require(t)
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	registered(t, "east", nil)
	becomes(t, "east", metav1.ConditionFalse, "BadKubeconfig")

	secret(t, fabric.System, "east", "kubeconfig", kubeconfigOf(t, east))
	becomes(t, "east", metav1.ConditionTrue, "Ready")
	seen := status(t, "east")
	assert.Equal(t, "v1.36.3", seen.KubernetesVersion)
	assert.NotEmpty(t, seen.ClusterUID)
	assert.Zero(t, seen.Volumes)
	assert.Empty(t, seen.StorageClasses, "there are none")

	storageClass(t, east, "virtual", keys.Driver)
	storageClass(t, east, "real", "disk.east.test")
	await.Until(t, "the new class is shown", func() bool { return len(status(t, "east").StorageClasses) > 0 }, func() any { return status(t, "east") })
	assert.Equal(t, []v1alpha1.OfferedClass{{Name: "real", Provisioner: "disk.east.test", BindingMode: storagev1.VolumeBindingWaitForFirstConsumer}},
		status(t, "east").StorageClasses, "the virtual one is left out")
	showsRoom(t, "real")

	held, err := secrets.Get(t.Context(), "east", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Contains(t, held.Finalizers, keys.ClusterFinalizer, "nobody can take the Secret away")

	// Tokens end with their account.
	accounts := east.Client().CoreV1().ServiceAccounts(accountNamespace)
	account, err := accounts.Get(t.Context(), accountName, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, accounts.Delete(t.Context(), accountName, metav1.DeleteOptions{}))
	account.ResourceVersion, account.UID = "", ""
	_, err = accounts.Create(t.Context(), account, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Contains(t, becomes(t, "east", metav1.ConditionFalse, "NotAuthorized"), "renew them in the Secret")

	rotate(t, "east", kubeconfigOf(t, east))
	becomes(t, "east", metav1.ConditionTrue, "Ready")

	unregister(t, "east")
	await.Until(t, "the Secret is let go", func() bool {
		free, err := secrets.Get(t.Context(), "east", metav1.GetOptions{})
		require.NoError(t, err)
		return len(free.Finalizers) == 0
	}, func() any { return "still held" })
}

func TestACredentialThatIsRotatedServesOn(t *testing.T) {
	namespace := space(t)
	createClaim(t, fabric.NewClaim(namespace, "before", fabric.Class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "before", "before")))
	require.Equal(t, fabric.WestNode, runs(t, namespace, "before"))

	rotate(t, "west", kubeconfigOf(t, bed.West))
	createClaim(t, fabric.NewClaim(namespace, "after", fabric.Class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "after", "after")))
	require.Equal(t, fabric.WestNode, runs(t, namespace, "after"))

	volume := claimOf(t, bed.Home, namespace, "before").Spec.VolumeName
	deletePodAndClaim(t, namespace, "before", "before")
	await.Until(t, "the volume made before goes", func() bool { return !hasVolume(t, volume) }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	assert.Nil(t, claimOf(t, bed.West, namespace, "before"))
	deletePodAndClaim(t, namespace, "after", "after")
	await.Until(t, "the shadow made after goes", func() bool { return claimOf(t, bed.West, namespace, "after") == nil }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

func TestAClusterThatHoldsVolumesStays(t *testing.T) {
	namespace := space(t)
	createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	runs(t, namespace, "db")
	volume := claimOf(t, bed.Home, namespace, "data").Spec.VolumeName
	await.Until(t, "the volume is counted", func() bool { return status(t, "west").Volumes > 0 }, func() any { return status(t, "west") })
	assert.Contains(t, status(t, "west").Namespaces, namespace)

	require.NoError(t, bed.Remotes.Delete(t.Context(), "west", metav1.DeleteOptions{}))
	message := becomes(t, "west", metav1.ConditionFalse, "Leaving")
	assert.Contains(t, message, "volumes have their data there")
	assert.Contains(t, message, "kubectl get pv -l lodestone.dev/cluster=west")
	await.Never(t, "neither object nor volume may go", func() bool {
		_, err := bed.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
		return err != nil || !hasVolume(t, volume)
	})

	createClaim(t, fabric.NewClaim(namespace, "new", fabric.Class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "new", "new")))
	waits(t, namespace, "new")
	assert.Nil(t, claimOf(t, bed.West, namespace, "new"), "it takes no new volumes")

	deletePodAndClaim(t, namespace, "db", "data")
	await.Until(t, "the volume goes", func() bool { return !hasVolume(t, volume) }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	unregister(t, "west")
	require.NoError(t, bed.Home.Client().CoreV1().Secrets(fabric.System).Delete(t.Context(), "west", metav1.DeleteOptions{}), "it is not held any more")

	// The pod that waits is woken when the cluster is back.
	require.NoError(t, bed.Peer(t.Context()))
	require.Equal(t, fabric.WestNode, runs(t, namespace, "new"))
	deletePodAndClaim(t, namespace, "new", "new")
}

func TestAKubeconfigOfAnotherClusterDeletesNothing(t *testing.T) {
	namespace := space(t)
	createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	runs(t, namespace, "db")
	volume := claimOf(t, bed.Home, namespace, "data").Spec.VolumeName
	shadow := claimOf(t, bed.West, namespace, "data")
	uid := status(t, "west").ClusterUID

	rotate(t, "west", kubeconfigOf(t, east))
	t.Cleanup(func() { becomes(t, "west", metav1.ConditionTrue, "Ready") })
	assert.Contains(t, becomes(t, "west", metav1.ConditionFalse, "OtherCluster"), "put back the kubeconfig")
	assert.Equal(t, uid, status(t, "west").ClusterUID, "what it stands for is not forgotten")

	deletePodAndClaim(t, namespace, "db", "data")
	await.Never(t, "the volume must stay until its own cluster answers", func() bool { return !hasVolume(t, volume) })
	still := claimOf(t, bed.West, namespace, "data")
	require.NotNil(t, still)
	assert.Equal(t, shadow.UID, still.UID)
	assert.Nil(t, still.DeletionTimestamp)

	rotate(t, "west", kubeconfigOf(t, bed.West))
	becomes(t, "west", metav1.ConditionTrue, "Ready")
	await.Until(t, "all goes", func() bool { return !hasVolume(t, volume) }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	assert.Nil(t, claimOf(t, bed.West, namespace, "data"))
}
