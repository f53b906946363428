// Package provisioning tests the whole path from a claim to its volume on real
// control planes.
package provisioning

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// bed is shared by the tests of this package; each uses namespaces of its own.
// Tests that change what others see, as classes and nodes, do not run in parallel.
// Without control planes they name empty ones, so that tests get as far as to skip.
var (
	bed = &fabric.Fabric{}
	// binary is the provisioner's program. It runs as a process of its own: its
	// library writes to what all clients of a process share.
	binary      string
	provisioner *testbed.Program
)

// patient has a refusal last longer than kube-scheduler waits before it tries a
// pod again, at most 10 s: with less, a pod may try the same place for ever.
const patient = "--refusal-period=15s"

func TestMain(m *testing.M) {
	testbed.Parallel(16)
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Zones: true}); err != nil {
			return err
		}
		if binary, err = bed.BuildProvisioner(ctx); err != nil {
			return err
		}
		if provisioner, err = bed.RunProvisioner(ctx, "provisioner", binary, patient); err != nil {
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
