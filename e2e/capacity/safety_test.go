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
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// restart ends the provisioner, as the node that it runs on would, and has it run
// with other flags.
func restart(t *testing.T, flags ...string) {
	t.Helper()
	provisioner.Kill()
	var err error
	provisioner, err = bed.RunProvisioner(context.Background(), "provisioner", binary, flags...)
	require.NoError(t, err)
}

// stopped ends the provisioner, for the rest of the test unless that restarts it.
func stopped(t *testing.T) {
	t.Helper()
	provisioner.Kill()
	t.Cleanup(func() {
		if !provisioner.Running() {
			restart(t)
		}
	})
}

// An older version's manifests say false, and an apply of the new ones takes that
// back to the default.
func TestKubeSchedulerIsToldAgainAfterAnUpgrade(t *testing.T) {
	space(t)
	_, err := bed.Home.Client().StorageV1().CSIDrivers().Patch(t.Context(), keys.Driver, types.MergePatchType, []byte(`{"spec":{"storageCapacity":false}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	heeds(t, true)
	require.NoError(t, bed.Install(t.Context(), fabric.Options{}))
	await.Always(t, "the manifests leave it to the provisioner", func() bool { return told(t) })
}

func TestNothingIsLostWhileNoProvisionerRuns(t *testing.T) {
	namespace := space(t)
	stopped(t)
	class(t, "made-meanwhile")
	use(t, fabric.NewPod(namespace, "new", "new"), "made-meanwhile", "1Gi")
	use(t, fabric.InWest(fabric.NewPod(namespace, "old", "old")), fabric.Class, "1Gi")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "new", "FailedScheduling"), tooSmall)
	await.Until(t, "the claim of a class that is published gets its node", func() bool {
		claim, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "old", metav1.GetOptions{})
		return err == nil && claim.Annotations[keys.SelectedNode] == fabric.WestNode
	})
	restart(t)
	assert.NotEmpty(t, runs(t, namespace, "new"))
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "old"))
}

func TestCapacitiesGoWithTheirClassWithoutAProvisioner(t *testing.T) {
	space(t)
	class(t, "short-lived")
	await.Until(t, "the class is published", func() bool { return len(published(t, "short-lived")) > 0 })
	stopped(t)
	require.NoError(t, bed.Home.Client().StorageV1().StorageClasses().Delete(t.Context(), "short-lived", metav1.DeleteOptions{}))
	await.Until(t, "they are collected", func() bool { return len(published(t, "short-lived")) == 0 })
}

func TestPublishingCanBeTurnedOff(t *testing.T) {
	namespace := space(t)
	restart(t, "--publish-capacity=false")
	heeds(t, false)
	await.Until(t, "all is removed", func() bool { return len(published(t, "")) == 0 })
	class(t, "unpublished")
	use(t, fabric.NewPod(namespace, "free", "free"), "unpublished", "1Gi")
	assert.NotEmpty(t, runs(t, namespace, "free"))
	restart(t)
	heeds(t, true)
	assert.NotEmpty(t, published(t, "unpublished"), "first the objects, then the word")
}

func TestPodsRunWhereCapacitiesCannotBePublished(t *testing.T) {
	namespace := space(t)
	quotas := bed.Home.Client().CoreV1().ResourceQuotas(fabric.System)
	name := corev1.ResourceName("count/csistoragecapacities.storage.k8s.io")
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "capacities"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{name: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	defer func() {
		require.NoError(t, quotas.Delete(context.Background(), "capacities", metav1.DeleteOptions{}))
		heeds(t, true)
		assert.NotEmpty(t, published(t, "unpublishable"))
	}()
	await.Until(t, "the quota is in force", func() bool {
		quota, err := quotas.Get(t.Context(), "capacities", metav1.GetOptions{})
		used := quota.Status.Used[name]
		return err == nil && used.Value() > 0
	})
	class(t, "unpublishable")
	use(t, fabric.NewPod(namespace, "early", "early"), "unpublishable", "1Gi")
	heeds(t, false)
	assert.NotEmpty(t, runs(t, namespace, "early"), "one that found no room is woken")
	use(t, fabric.NewPod(namespace, "all-the-same", "all-the-same"), "unpublishable", "1Gi")
	assert.NotEmpty(t, runs(t, namespace, "all-the-same"))
}
