package provisioning

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// ask changes what a claim asks for, as its user does.
func ask(t *testing.T, cluster *testbed.Cluster, namespace, name, size string) {
	t.Helper()
	require.NoError(t, patchSize(t, cluster, namespace, name, size))
}

func patchSize(t *testing.T, cluster *testbed.Cluster, namespace, name, size string) error {
	t.Helper()
	_, err := cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size), metav1.PatchOptions{})
	return err
}

// sizes are what an object of each kind says, in the order in which a size goes
// through them: request, capacity, volume.
func sizes(t *testing.T, cluster *testbed.Cluster, namespace, name string) [3]string {
	t.Helper()
	claim := claimOf(t, cluster, namespace, name)
	require.NotNil(t, claim)
	volume := volumeOf(t, cluster, claim.Spec.VolumeName)
	if volume == nil {
		volume = &corev1.PersistentVolume{}
	}
	return [3]string{claim.Spec.Resources.Requests.Storage().String(), claim.Status.Capacity.Storage().String(), volume.Spec.Capacity.Storage().String()}
}

// reaches waits until request, capacity and volume of a claim are of these sizes.
func reaches(t *testing.T, cluster *testbed.Cluster, namespace, name, request, capacity, volume string) {
	t.Helper()
	want := [3]string{request, capacity, volume}
	eventually(t, func() bool { return sizes(t, cluster, namespace, name) == want }, func() string {
		return fmt.Sprintf("claim %s/%s of %s has %v, want %v: %+v\nevents: %v", namespace, name, cluster.Name(), sizes(t, cluster, namespace, name), want,
			claimOf(t, cluster, namespace, name).Status, await.Events(t, bed.Home.Client(), namespace))
	})
}

// conditionOf waits until a claim has a condition, and returns its message.
func conditionOf(t *testing.T, namespace, name string, kind corev1.PersistentVolumeClaimConditionType) string {
	t.Helper()
	message := ""
	eventually(t, func() bool {
		conditions := claimOf(t, bed.Home, namespace, name).Status.Conditions
		i := slices.IndexFunc(conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == kind && c.Status == corev1.ConditionTrue
		})
		if i >= 0 {
			message = conditions[i].Message
		}
		return i >= 0
	}, func() string {
		return fmt.Sprintf("there is no condition %s: %+v\nevents: %v", kind, claimOf(t, bed.Home, namespace, name).Status, await.Events(t, bed.Home.Client(), namespace))
	})
	return message
}

func noConditions(t *testing.T, cluster *testbed.Cluster, namespace, name string) {
	t.Helper()
	eventually(t, func() bool {
		status := claimOf(t, cluster, namespace, name).Status
		return len(status.Conditions) == 0 && len(status.AllocatedResourceStatuses) == 0
	}, func() string { return fmt.Sprintf("%+v", claimOf(t, cluster, namespace, name).Status) })
}

// quota limits what the claims of a namespace may ask for together, and waits
// until that is counted.
func quota(t *testing.T, cluster *testbed.Cluster, namespace, size string) {
	t.Helper()
	quotas := cluster.Client().CoreV1().ResourceQuotas(namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "storage"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse(size)}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, func() bool {
		have, err := quotas.Get(t.Context(), "storage", metav1.GetOptions{})
		_, counted := have.Status.Used[corev1.ResourceRequestsStorage]
		return err == nil && counted
	}, func() string { return "the quota is not counted" })
}

// nfsVolume makes a real volume at home that is of no CSI driver.
func nfsVolume(t *testing.T, class, size string) string {
	t.Helper()
	volumes := bed.Home.Client().CoreV1().PersistentVolumes()
	_, err := volumes.Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.test", Path: "/data"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = volumes.Delete(context.Background(), class, metav1.DeleteOptions{}) })
	return class
}
