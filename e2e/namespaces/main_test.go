// Package namespaces tests, on two real control planes, that the provisioner asks
// a remote cluster for the namespaces that it needs, gives them back, and keeps
// its credentials there.
package namespaces

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
)

// bed is shared by the tests of this package; owner is west's.
// Without control planes bed is empty, so that tests get as far as to skip.
var (
	bed     = &fabric.Fabric{}
	owner   = &tenancy{}
	running *fabric.Program
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Agent: true}); err != nil {
			return err
		}
		if err := owner.serve(ctx); err != nil {
			return err
		}
		if running, err = startProvisioner(ctx); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		kubeconfig, err := owner.admit(ctx)
		if err != nil {
			return err
		}
		if err := bed.Register(ctx, "west", kubeconfig); err != nil {
			return err
		}
		return bed.AwaitReady(ctx, "west", metav1.ConditionTrue)
	})
}

func startProvisioner(ctx context.Context) (*fabric.Program, error) {
	return bed.StartProvisioner(ctx, func(c *provisioner.Config) { c.LeaderElect = false })
}
