// Package capacity tests on real control planes that kube-scheduler knows how
// much room the virtual classes have, and that it never waits for a room that
// nobody tells it of.
package capacity

import (
	"context"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// bed is shared by the tests of this package, which all change what the others
// see: none runs in parallel. Without control planes it is empty, so that tests
// get as far as to skip.
var (
	bed    = &fabric.Fabric{}
	binary string
	// provisioner runs between tests.
	provisioner *testbed.Program
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500}); err != nil {
			return err
		}
		if _, err := bed.Home.Client().StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: bed.HomeStorage.Name()},
			Spec:       storagev1.CSIDriverSpec{AttachRequired: ptr.To(false), StorageCapacity: ptr.To(true)},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
		if binary, err = bed.BuildProvisioner(ctx); err != nil {
			return err
		}
		if provisioner, err = bed.RunProvisioner(ctx, "provisioner", binary); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		if err := bed.Peer(ctx); err != nil {
			return err
		}
		return bed.AwaitReady(ctx, "west", metav1.ConditionTrue)
	})
}
