// Package moves tests moves of volumes on real control planes: all programs of
// Lodestone work, the nodes of both clusters are played, and the pods of the tests
// and the movers really run, as processes on real folders that stand for the
// volumes.
package moves

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/roles"
	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// bed is shared by the tests of this package; each has a namespace of its own.
// Without control planes bed is empty, so that tests get as far as to skip.
var bed = &fabric.Fabric{}

// provisioner and virtualNode are those that run. Tests that stop one do not run in
// parallel.
var provisioner, virtualNode *fabric.Program

// programs are those of an object store.
var programs store.Programs

func TestMain(m *testing.M) {
	testbed.Parallel(4)
	testbed.Main(m, func(ctx context.Context) (err error) {
		// Movers find the restic that is theirs.
		if programs, err = store.Build(ctx, os.Stderr); err != nil {
			return err
		}
		if err := programs.First(); err != nil {
			return err
		}
		mover, err := fabric.BuildMover(ctx)
		if err != nil {
			return err
		}
		if bed, err = fabric.Start(ctx, fabric.Options{
			ControllerManagerQPS: 500, Agent: true, VirtualNode: true, Programs: map[string]string{"lodestone-mover": mover},
			ControllerManagerArgs: []string{"--horizontal-pod-autoscaler-sync-period=1s"},
			Drivers:               files, AuditAll: true,
		}); err != nil {
			return err
		}
		if provisioner, err = bed.StartProvisioner(ctx); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		if _, err := bed.StartAgent(ctx); err != nil {
			return err
		}
		if virtualNode, err = bed.StartVirtualNode(ctx); err != nil {
			return err
		}
		kubeconfig, err := bed.Tenant(ctx, nil)
		if err != nil {
			return err
		}
		if err := bed.Register(ctx, "west", kubeconfig); err != nil {
			return err
		}
		if err := bed.AwaitReady(ctx, "west", metav1.ConditionTrue); err != nil {
			return err
		}
		return bed.AwaitNode(ctx, fabric.WestNode, corev1.ConditionTrue)
	}, rights)
}

// able is true once a test found that movers can run here.
var able atomic.Bool

// rights checks that the tests together used each right that is there for moves, and were
// refused none.
func rights(ctx context.Context) error {
	if !able.Load() {
		return nil
	}
	id, err := bed.HomeID(ctx)
	if err != nil {
		return err
	}
	return roles.Moves.Check(ctx, bed, keys.TenantPrefix+id+":"+keys.HomeAccount, "lodestone-home", refusedToo)
}

// refusedToo: what is read in namespaces that go with their tests, and home's rights there
// before them.
func refusedToo(q fabric.Request) bool {
	return strings.HasPrefix(q.ObjectRef.Namespace, "moves-") && slices.Contains([]string{"get", "list", "watch"}, q.Verb)
}
