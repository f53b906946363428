// Package history tests what becomes of claims where API servers do not go on from
// what they said before: they have forgotten the changes that somebody missed, or
// were restored from a backup. It has clusters of its own, for that would disturb any
// other test.
package history

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/faultynetwork"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
)

// virtual is a virtual class whose volumes in west are made at once.
const virtual = "virtual"

// bed is empty without control planes, so that tests get as far as to skip. The lines
// are the provisioner's to both clusters; the others have their own.
var (
	bed        = &fabric.Fabric{}
	home, west *faultynetwork.Line
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500}); err != nil {
			return err
		}
		if home, err = lineTo(ctx, bed.Home); err != nil {
			return err
		}
		if west, err = lineTo(ctx, bed.West); err != nil {
			return err
		}
		_, err = bed.Home.Client().StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: virtual}, Provisioner: keys.Driver,
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
			ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete), AllowVolumeExpansion: ptr.To(true),
			Parameters: map[string]string{keys.LocalClass: fabric.HomeWait, keys.RemoteClass: fabric.WestNow},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("make class %s: %w", virtual, err)
		}
		// The same program goes on: it neither ends with its lease nor is started anew.
		_, err = bed.StartProvisioner(ctx, func(c *provisioner.Config) {
			c.LeaderElect = false
			c.Home.Host = home.URL()
		})
		if err != nil {
			return err
		}
		kubeconfig, err := bed.WestKubeconfig(ctx)
		if err != nil {
			return err
		}
		config, err := clientcmd.Load(kubeconfig)
		if err != nil {
			return fmt.Errorf("read home's kubeconfig of west: %w", err)
		}
		for _, cluster := range config.Clusters {
			cluster.Server = west.URL()
		}
		if kubeconfig, err = clientcmd.Write(*config); err != nil {
			return fmt.Errorf("write home's kubeconfig of west: %w", err)
		}
		if err := bed.Register(ctx, "west", kubeconfig); err != nil {
			return err
		}
		return bed.AwaitReady(ctx, "west", metav1.ConditionTrue)
	})
}

func lineTo(ctx context.Context, cluster *testbed.Cluster) (*faultynetwork.Line, error) {
	return faultynetwork.New(ctx, strings.TrimPrefix(cluster.AdminConfig().Host, "https://"))
}

// create makes a claim whose pod goes to a node.
func create(t *testing.T, namespace, name, node string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := fabric.NewClaim(namespace, name, virtual)
	claim.Annotations = map[string]string{keys.SelectedNode: node}
	return must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
}

// awaitServed waits until a claim and its shadow are bound, and returns the handle of the
// shadow's volume.
func awaitServed(t *testing.T, claim *corev1.PersistentVolumeClaim) (handle string) {
	t.Helper()
	await.Until(t, "claim "+claim.Name+" and its shadow are bound", func() bool {
		return bound(t, bed.Home, claim) && bound(t, bed.West, claim)
	}, func() any { return await.Events(t, bed.Home.Client(), claim.Namespace) })
	shadow := await.Claim(t, bed.West.Client(), claim.Namespace, claim.Name)
	return await.Volume(t, bed.West.Client(), shadow.Spec.VolumeName).Spec.CSI.VolumeHandle
}

func bound(t *testing.T, cluster *testbed.Cluster, claim *corev1.PersistentVolumeClaim) bool {
	t.Helper()
	found := await.Claim(t, cluster.Client(), claim.Namespace, claim.Name)
	return found != nil && found.Status.Phase == corev1.ClaimBound
}

func remove(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(claim.Namespace), claim.Name)
}

func requestSize(t *testing.T, cluster *testbed.Cluster, claim *corev1.PersistentVolumeClaim, size string) {
	t.Helper()
	must.Patch(t, cluster.Client().CoreV1().PersistentVolumeClaims(claim.Namespace), claim.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
}

// volumeOf returns the virtual volume of a claim, nil if there is none.
func volumeOf(t *testing.T, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	t.Helper()
	return await.Volume(t, bed.Home.Client(), "pvc-"+string(claim.UID))
}
