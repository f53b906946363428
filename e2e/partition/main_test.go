// Package partition tests what becomes of claims and volumes while the remote
// cluster cannot be reached. It has clusters of its own, for the outages would
// disturb any other test.
package partition

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// bed is empty without control planes, so that tests get as far as to skip.
var bed = &fabric.Fabric{}

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500}); err != nil {
			return err
		}
		binary, err := bed.BuildProvisioner(ctx)
		if err != nil {
			return err
		}
		if _, err := bed.RunProvisioner(ctx, "provisioner", binary); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		return bed.Peer(ctx)
	})
}

// sendToWest writes the choice of west's node on a claim, as kube-scheduler does
// that does not know yet that west is away.
func sendToWest(t *testing.T, namespace, name string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{keys.SelectedNode: fabric.WestNode}},
	})
	require.NoError(t, err)
	must.Patch(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), name, types.MergePatchType, patch)
}

func deleteClaim(t *testing.T, namespace, name string) {
	t.Helper()
	must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), name)
}

func deletePod(t *testing.T, namespace, name string) {
	t.Helper()
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), name)
	await.Until(t, "pod "+name+" is gone", func() bool {
		_, err := bed.Home.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func claimOf(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return await.Claim(t, cluster.Client(), namespace, name)
}

// volumeOf returns the virtual volume of a claim, nil if there is none.
func volumeOf(t *testing.T, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	t.Helper()
	return must.Find(t, bed.Home.Client().CoreV1().PersistentVolumes(), "pvc-"+string(claim.UID))
}

func isBound(t *testing.T, cluster *testbed.Cluster, namespace, name string) bool {
	t.Helper()
	claim := claimOf(t, cluster, namespace, name)
	return claim != nil && claim.Status.Phase == corev1.ClaimBound
}
