// Package moves tests moves of volumes on real control planes: all programs of
// Lodestone work, the nodes of both clusters are played, and the pods of the tests
// and the movers really run, as processes on real folders that stand for the
// volumes.
package moves

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/counter"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/roles"
	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/app"
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
			Drivers:               files, Attach: true, AuditAll: true,
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
		if err := bed.Admit(ctx, nil); err != nil {
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

// TestApplicationsReallyWriteToTheirVolumes is about the bed itself: without it the
// other tests would show nothing.
func TestApplicationsReallyWriteToTheirVolumes(t *testing.T) {
	namespace := space(t)
	makes(t, fabric.NewClaim(namespace, "here", fabric.Class), fabric.AtHome(application(namespace, "here", "here")))
	makes(t, fabric.NewClaim(namespace, "there", fabric.Class), onWest(application(namespace, "there", "there")))
	for _, claim := range []string{"here", "there"} {
		counts(t, folder(t, namespace, claim), 5)
	}
	assert.NotEqual(t, folder(t, namespace, "here"), folder(t, namespace, "there"))

	// It ends with its pod.
	pods := bed.Home.Client().CoreV1().Pods(namespace)
	must.Delete(t, pods, "there")
	await.Until(t, "the pod is gone", func() bool {
		_, err := pods.Get(t.Context(), "there", metav1.GetOptions{})
		return err != nil
	})
	ended := counted(t, folder(t, namespace, "there"))
	await.Never(t, "nobody may write when the pod is gone", func() bool { return counted(t, folder(t, namespace, "there")) != ended })
}

// space makes a namespace at home that is open to remote clusters, and deletes
// what is in it after the test.
func space(t *testing.T) string {
	t.Helper()
	testbed.Require(t)
	harness.Require(t)
	able.Store(true)
	// The test before may have started the provisioner anew, and kube-scheduler does not look again when a cluster is Ready.
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	name := "moves-" + rand.String(6)
	require.NoError(t, bed.Home.MakeNamespace(t.Context(), name))
	core := bed.Home.Client().CoreV1()
	open := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, keys.Offload, keys.OffloadEnabled)
	must.Patch(t, core.Namespaces(), name, types.MergePatchType, open)
	t.Cleanup(func() {
		ctx := context.Background()
		_ = core.Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		_ = core.PersistentVolumeClaims(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		_ = core.Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	})
	return name
}

// application returns a pod that counts in a file of a claim.
func application(namespace, name, claim string) *corev1.Pod {
	return counter.Pod(namespace, name, claim, counter.Script("0.02"))
}

// onWest lets a pod run in west only.
func onWest(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	return fabric.InWest(pod)
}

// makes makes a claim and a pod, and waits until the pod runs.
func makes(t *testing.T, claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	t.Helper()
	core := bed.Home.Client().CoreV1()
	must.Create(t, core.PersistentVolumeClaims(claim.Namespace), claim)
	must.Create(t, core.Pods(pod.Namespace), pod)
	bed.AwaitRunning(t, pod.Namespace, pod.Name)
}

// folder returns the folder that stands for the volume of a claim, wherever it is.
func folder(t *testing.T, namespace, claim string) string {
	t.Helper()
	real, disks := realOf(t, namespace, claim)
	path, err := disks.Of(real)
	require.NoError(t, err)
	return path
}

func realOf(t *testing.T, namespace, claim string) (*corev1.PersistentVolume, processes.Disks) {
	t.Helper()
	found := await.Claim(t, bed.Home.Client(), namespace, claim)
	require.NotNil(t, found)
	volume := await.Volume(t, bed.Home.Client(), found.Spec.VolumeName)
	require.NotNil(t, volume, "claim %s has no volume", claim)
	ref, err := backing.RefOf(volume)
	require.NoError(t, err)
	cluster, disks := bed.West, bed.Disks
	switch ref.Cluster {
	case keys.Home:
		cluster = bed.Home
	case "east":
		cluster, disks = east.West, east.Disks
	}
	var behind *corev1.PersistentVolumeClaim
	await.Until(t, "backing claim "+ref.String()+" is bound", func() bool {
		behind = await.Claim(t, cluster.Client(), ref.Namespace, ref.Name)
		return behind != nil && behind.Spec.VolumeName != ""
	})
	real := await.Volume(t, cluster.Client(), behind.Spec.VolumeName)
	require.NotNil(t, real)
	return real, disks
}

// counted returns how far the application in a folder has counted, and fails unless each number is there once and in order.
func counted(t *testing.T, folder string) int { t.Helper(); return counter.Counted(t, folder) }

// counts waits until the application of a claim has counted beyond a number.
func counts(t *testing.T, folder string, beyond int) int {
	t.Helper()
	await.Until(t, fmt.Sprintf("the application counts beyond %d in %s", beyond, folder), func() bool { return counted(t, folder) > beyond },
		func() any { return counted(t, folder) })
	return counted(t, folder)
}

// restart stops the provisioner and starts it again; tune changes its flags.
func restart(t *testing.T, tune ...func(*app.Config)) {
	t.Helper()
	require.NoError(t, provisioner.Stop())
	resume(t, tune...)
}

// resume starts the provisioner, which was stopped.
func resume(t *testing.T, tune ...func(*app.Config)) {
	t.Helper()
	var err error
	provisioner, err = bed.StartProvisioner(context.WithoutCancel(t.Context()), tune...)
	require.NoError(t, err)
}
