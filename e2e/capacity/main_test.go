// Package capacity tests on real control planes that kube-scheduler knows how
// much room the virtual classes have, and that it never waits for a room that
// nobody tells it of.
package capacity

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		if err := heeded(ctx, true); err != nil {
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
