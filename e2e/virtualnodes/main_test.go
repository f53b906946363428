// Package virtualnodes tests virtual nodes on real control planes: the Node
// objects, what becomes of them when clusters and programs fail, their kubelet
// API, and which pods are let onto them. The tests play the remote agent,
// and no pod runs here.
package virtualnodes

import (
	"context"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/virtualnode/app"
)

// bed is shared by the tests of this package. Tests that take a cluster or
// a program away do not run in parallel. Without control planes bed is empty, so
// that tests get as far as to skip.
var (
	bed     = &fabric.Fabric{}
	program *fabric.Program
	homeID  string

	// east is a third cluster, and eastKubeconfig home's identity there.
	east           *testbed.Cluster
	eastKubeconfig []byte
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		var group errgroup.Group
		group.Go(func() (err error) {
			bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Agent: true, VirtualNode: true})
			return err
		})
		group.Go(func() error {
			clusters, err := testbed.Start(ctx, testbed.Config{Name: "east"})
			if err != nil {
				return err
			}
			east = clusters[0]
			_, err = east.Kubectl(ctx, "", "apply", "-k", filepath.Join(fabric.Root(), "deploy", "remote"))
			return err
		})
		if err := group.Wait(); err != nil {
			return err
		}
		if program, err = bed.StartVirtualNode(ctx, withoutPods); err != nil {
			return err
		}
		if homeID, err = bed.HomeID(ctx); err != nil {
			return err
		}
		if eastKubeconfig, err = tenancy(ctx, east, homeID); err != nil {
			return err
		}
		kubeconfig, err := tenancy(ctx, bed.West, homeID)
		if err != nil {
			return err
		}
		if err := bed.Register(ctx, "west", kubeconfig); err != nil {
			return err
		}
		return bed.AwaitNode(ctx, fabric.WestNode, corev1.ConditionTrue)
	})
}

// withoutPods leaves out the work for pods, which other packages test: here they
// are moved by the tests.
func withoutPods(config *app.Config) {
	config.Workers = func(app.Shared) ([]app.Worker, error) { return nil, nil }
}
