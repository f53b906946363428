// Package clusters tests the life of RemoteCluster objects on real control
// planes: what is wrong with one, how it is mended, what its loss means for
// claims, and how it goes.
package clusters

import (
	"context"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// bed is shared by the tests of this package, and so is east, a third cluster
// that holds no nodes and no storage. Tests that take a cluster away do not run
// in parallel. Without control planes bed is empty, so that tests get as far as
// to skip.
var (
	bed  = &fabric.Fabric{}
	east *testbed.Cluster
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) error {
		var group errgroup.Group
		group.Go(func() (err error) {
			bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500})
			return err
		})
		group.Go(func() error {
			clusters, err := testbed.Start(ctx, testbed.Config{Name: "east"})
			if err != nil {
				return err
			}
			east = clusters[0]
			_, err = east.Kubectl(ctx, "", "apply", "-k", filepath.Join(fabric.Root(), "deploy", "remote-volumes"))
			return err
		})
		if err := group.Wait(); err != nil {
			return err
		}
		if _, err := bed.StartProvisioner(ctx); err != nil {
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
