// Package reflect tests, on real control planes, that what the pods of a virtual
// node need follows them to the remote cluster, and nothing else.
package reflect

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// The clusters are shared by the tests of this package; each test is a home
// cluster of its own for west.
var home, west *testbed.Cluster

func TestMain(m *testing.M) {
	testbed.Parallel(4)
	testbed.Main(m, func(ctx context.Context) error {
		clusters, err := testbed.Start(ctx, testbed.Config{Name: "home"}, testbed.Config{Name: "west"})
		if err != nil {
			return err
		}
		home, west = clusters[0], clusters[1]
		remote := filepath.Join("..", "..", "deploy", "remote")
		_, roles := west.Kubectl(ctx, "", "apply", "-k", filepath.Join(remote, "home"))
		_, objects := west.Kubectl(ctx, "", "apply", "-f", filepath.Join(remote, "crds"))
		_, ready := west.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/namespacerequests.remote.lodestone.dev", "--timeout=30s")
		if err := errors.Join(roles, objects, ready); err != nil {
			return fmt.Errorf("prepare west: %w", err)
		}
		return nil
	})
}
