// Package csi tests what becomes of virtual claims where the real class is that of a
// CSI driver with the real sidecars: external-provisioner makes and deletes the
// backing claims' volumes, publishes capacities and drops selected nodes,
// external-resizer grows volumes, csi-snapshotter makes snapshots.
package csi

import (
	"context"
	"os"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/roles"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The drivers, and their classes: the same name in both clusters.
const (
	homeDriver, westDriver = "files.home.test", "files.west.test"

	waiting, atOnce = "files-wait", "files-now"

	// virtual is the virtual class that leads to waiting.
	virtual = "virtual-files"

	gibibyte = 1 << 30
	// poolSize is the room of each node.
	poolSize = 100 * gibibyte
)

// bed is shared by the tests of this package; each uses namespaces of its own.
// Tests that order failures or fill pools do not run in parallel. Without control
// planes the names are of empty ones, so that tests get as far as to skip.
var (
	bed        = &fabric.Fabric{}
	home, west *sidecars.Driver
)

func TestMain(m *testing.M) {
	testbed.Parallel(8)
	testbed.Main(m, func(ctx context.Context) error {
		programs, err := sidecars.Build(ctx, os.Stderr)
		if err != nil {
			return err
		}
		bed, err = fabric.Start(ctx, fabric.Options{
			ControllerManagerQPS: 500,
			Drivers:              map[string][]string{"home": {homeDriver}, "west": {westDriver}}, AuditAll: true,
			APIServerArgs: []string{"--runtime-config=storage.k8s.io/v1beta1/volumeattributesclasses=true"},
		})
		if err != nil {
			return err
		}
		options := sidecars.Options{Name: homeDriver, Pool: poolSize, AttributesClasses: true, Snapshots: true}
		if home, err = sidecars.Start(ctx, bed.Home, programs, options); err != nil {
			return err
		}
		options.Name = westDriver
		if west, err = sidecars.Start(ctx, bed.West, programs, options); err != nil {
			return err
		}
		if err := makeClasses(ctx); err != nil {
			return err
		}
		if err := makeSnapshotClasses(ctx); err != nil {
			return err
		}
		binary, err := bed.BuildProvisioner(ctx)
		if err != nil {
			return err
		}
		// A refusal lasts longer than kube-scheduler waits before it tries a pod again.
		if _, err := bed.RunProvisioner(ctx, "provisioner", binary, "--refusal-period=15s"); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		if err := bed.Peer(ctx); err != nil {
			return err
		}
		return bed.AwaitReady(ctx, "west", metav1.ConditionTrue)
	}, rights)
}

// rights checks that the tests together used each right that is there for snapshots, and
// were refused none.
func rights(ctx context.Context) error {
	return roles.Snapshots.Check(ctx, bed, "lodestone-volumes:lodestone-home", "lodestone-home-claims", func(q fabric.Request) bool {
		// In a namespace that is not bound, any more.
		return strings.HasPrefix(q.ObjectRef.Namespace, "test-")
	})
}

func makeClasses(ctx context.Context) error {
	for _, driver := range []*sidecars.Driver{home, west} {
		for name, mode := range map[string]storagev1.VolumeBindingMode{waiting: storagev1.VolumeBindingWaitForFirstConsumer, atOnce: storagev1.VolumeBindingImmediate} {
			if err := makeClass(ctx, clusterOf(driver), driver.Class(name, mode)); err != nil {
				return err
			}
		}
	}
	return makeClass(ctx, bed.Home, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: virtual}, Provisioner: keys.Driver,
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowVolumeExpansion: ptr.To(true),
		Parameters:           map[string]string{keys.LocalClass: waiting, keys.RemoteClass: waiting},
	})
}

func makeClass(ctx context.Context, cluster *testbed.Cluster, class *storagev1.StorageClass) error {
	_, err := cluster.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	return err
}

// clusterOf returns the cluster that a driver runs in.
func clusterOf(driver *sidecars.Driver) *testbed.Cluster {
	if driver == west {
		return bed.West
	}
	return bed.Home
}
