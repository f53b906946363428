// Package partition tests what becomes of claims and volumes while the remote
// cluster cannot be reached. It has clusters of its own, for the outages would
// disturb any other test.
package partition

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
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
		if err := bed.Peer(ctx); err != nil {
			return err
		}
		return bed.AwaitReady(ctx, "west", metav1.ConditionTrue)
	})
}
