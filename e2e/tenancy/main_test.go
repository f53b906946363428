// Package tenancy tests, on real control planes, that a user with rights only in
// their own namespace reaches nothing of another tenant's.
package tenancy

import (
	"context"
	"os"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// bed is shared by the tests of this package; each uses namespaces of its own.
// Without control planes it is empty, so that tests get as far as to skip.
var bed = &fabric.Fabric{}

// provisioner is a process of its own, so that it can be told how much memory it
// took. memoryLimit is that of its container in deploy/base, in bytes.
var provisioner *testbed.Program

const memoryLimit = 1 << 30

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{
			ControllerManagerQPS: 500,
			// By default Kubernetes drops data sources of other namespaces: here they get
			// as far as to Lodestone.
			APIServerArgs: []string{"--feature-gates=CrossNamespaceVolumeDataSource=true"},
		}); err != nil {
			return err
		}
		programs, err := sidecars.Build(ctx, os.Stderr)
		if err != nil {
			return err
		}
		if err := sidecars.DefineSnapshots(ctx, bed.Home, programs); err != nil {
			return err
		}
		binary, err := bed.BuildProvisioner(ctx)
		if err != nil {
			return err
		}
		// As in a container with a limit: see deploy/base.
		if err := os.Setenv("GOMEMLIMIT", strconv.Itoa(memoryLimit)); err != nil {
			return err
		}
		if provisioner, err = bed.RunProvisioner(ctx, "provisioner", binary); err != nil {
			return err
		}
		if err := os.Unsetenv("GOMEMLIMIT"); err != nil {
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
