// Package remotepods tests that pods of virtual nodes run in the remote cluster,
// once and only once, whatever fails: all programs of Lodestone work, and the
// nodes of the remote cluster are played.
package remotepods

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// bed is shared by the tests of this package; each has namespaces of its own.
// Without control planes bed is empty, so that tests get as far as to skip.
var (
	bed     = &fabric.Fabric{}
	program *fabric.Program // the virtual node program
	homeID  string
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Agent: true, VirtualNode: true}); err != nil {
			return err
		}
		if homeID, err = bed.HomeID(ctx); err != nil {
			return err
		}
		if _, err := bed.StartProvisioner(ctx); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		if _, err := bed.StartAgent(ctx); err != nil {
			return err
		}
		if program, err = bed.StartVirtualNode(ctx); err != nil {
			return err
		}
		if err := bed.PeerAgent(ctx); err != nil {
			return err
		}
		return bed.AwaitNode(ctx, fabric.WestNode, corev1.ConditionTrue)
	})
}
