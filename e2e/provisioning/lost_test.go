package provisioning

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// TestClaimWhoseRealVolumeIsDeletedSaysSoUntilItIsThereAgain deletes the object of the
// real volume, finalizers too, behind everybody's back. The data is still in the
// storage: nothing may touch it, nor anything else.
func TestClaimWhoseRealVolumeIsDeletedSaysSoUntilItIsThereAgain(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			cluster := route.cluster()
			virtual, b, real := served(t, namespace, fabric.Class, route.place, cluster)
			volumes := cluster.Client().CoreV1().PersistentVolumes()
			require.NoError(t, volumes.Delete(t.Context(), real.Name, metav1.DeleteOptions{}))
			_, err := volumes.Patch(t.Context(), real.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			require.NoError(t, err)

			told := await.Event(t, bed.Home.Client(), namespace, "data", "BackingLost")
			assert.Contains(t, told, "has lost its real volume \""+real.Name+"\"")
			var condition *corev1.PersistentVolumeClaimCondition
			eventually(t, func() bool {
				condition = trouble(t, namespace, "data")
				return condition != nil && condition.Reason == "BackingLost"
			}, func() string { return fmt.Sprintf("the condition of the claim is %+v", condition) })
			assert.Equal(t, told, condition.Message)
			assert.Equal(t, corev1.ConditionTrue, condition.Status)
			assert.False(t, condition.LastTransitionTime.IsZero())
			ref, err := backing.RefOf(virtual)
			require.NoError(t, err)
			assert.Regexp(t, `lodestone_provisioner_volumes_in_trouble{cluster="`+ref.Cluster+`",reason="BackingLost"} [1-9]`, metrics(t))

			claim := claimOf(t, bed.Home, namespace, "data")
			assert.Equal(t, virtual.Name, claim.Spec.VolumeName)
			assert.Equal(t, corev1.ClaimBound, claim.Status.Phase)
			lost := backingOf(t, virtual)
			require.NotNil(t, lost, "the backing claim is gone")
			assert.Equal(t, corev1.ClaimLost, lost.Status.Phase)
			assert.Nil(t, lost.DeletionTimestamp)
			assert.True(t, route.storage().Exists(real.Spec.CSI.VolumeHandle), "the data is gone")

			// As its administrator is told to: the volume again, as it was.
			_, err = volumes.Create(t.Context(), &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: real.Name, Labels: real.Labels, Annotations: real.Annotations}, Spec: real.Spec,
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			eventually(t, func() bool { return trouble(t, namespace, "data") == nil }, func() string { return "the claim still says that something is wrong" })
			assert.Equal(t, corev1.ClaimBound, claimOf(t, cluster, b.Namespace, b.Name).Status.Phase)
		})
	}
}

// trouble returns the condition of a claim that says what is wrong with its volume,
// nil if it has none.
func trouble(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaimCondition {
	t.Helper()
	for _, condition := range claimOf(t, bed.Home, namespace, name).Status.Conditions {
		if condition.Type == keys.VolumeTrouble {
			return &condition
		}
	}
	return nil
}

// metrics returns what the provisioner measures.
func metrics(t *testing.T) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+provisioner.Flag("http-address")+"/metrics", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(content)
}
