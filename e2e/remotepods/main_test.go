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
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

// bed is shared by the tests of this package; each has namespaces of its own.
// Without control planes bed is empty, so that tests get as far as to skip.
var (
	bed     = &fabric.Fabric{}
	program *fabric.Program // the virtual node program
	homeID  string
	way     *link // from home to west
	// startProgram starts a virtual node program that ends with the tests.
	startProgram func(tune ...func(*virtualnode.Config)) (*fabric.Program, error)
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		startProgram = func(tune ...func(*virtualnode.Config)) (*fabric.Program, error) {
			return bed.StartVirtualNode(ctx, tune...)
		}
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
		if program, err = startProgram(); err != nil {
			return err
		}
		kubeconfig, err := bed.Tenant(ctx, nil)
		if err != nil {
			return err
		}
		if way, kubeconfig, err = newLink(bed.West.AdminConfig(), kubeconfig); err != nil {
			return err
		}
		if err := bed.Register(ctx, "west", kubeconfig); err != nil {
			return err
		}
		return bed.AwaitNode(ctx, fabric.WestNode, corev1.ConditionTrue)
	})
}
