// Package replicas tests second copies of volumes on real control planes: all programs of Lodestone work, the nodes of both clusters
// are played, the pods of the tests and the movers really run, as processes on real folders that stand for the volumes, and a CSI
// driver with the real sidecars copies those folders into snapshots and clones.
package replicas

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/counter"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/roles"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The drivers, and their real classes and classes of snapshots; plainDriver has none of snapshots. virtual is the virtual class that
// leads to them.
const (
	homeDriver, westDriver = "files.home.test", "files.west.test"
	plainDriver            = "plain.west.test"
	virtual                = "virtual-files"
)

// bed is shared by the tests of this package; each has a namespace of its own. Without control planes it is empty, so that tests get
// as far as to skip. Tests that stop a program do not run in parallel.
var (
	bed         = &fabric.Fabric{}
	provisioner *fabric.Program
	virtualNode *fabric.Program
	agent       *fabric.Program
	extender    *fabric.Program
	drivers     = map[string]*sidecars.Driver{}
	// programs are the paths of programs that pods run, by image.
	programs = map[string]string{}
)

func TestMain(m *testing.M) {
	testbed.Parallel(4)
	testbed.Main(m, func(ctx context.Context) error {
		mover, err := fabric.BuildMover(ctx)
		if err != nil {
			return err
		}
		programs["lodestone-mover"] = mover
		if bed, err = fabric.Start(ctx, fabric.Options{
			ControllerManagerQPS: 500, Agent: true, VirtualNode: true, Programs: programs,
			Drivers: map[string][]string{keys.Home: {homeDriver}, "west": {westDriver, plainDriver}}, AuditAll: true, Exec: true,
		}); err != nil {
			return err
		}
		if err := storage(ctx); err != nil {
			return err
		}
		if provisioner, err = bed.StartProvisioner(ctx); err != nil {
			return err
		}
		if extender, err = bed.StartExtender(ctx); err != nil {
			return err
		}
		if agent, err = bed.StartAgent(ctx); err != nil {
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

// storage starts the drivers of both clusters, and makes their classes.
func storage(ctx context.Context) error {
	built, err := sidecars.Build(ctx, os.Stderr)
	if err != nil {
		return err
	}
	for name, cluster := range map[string]*testbed.Cluster{homeDriver: bed.Home, westDriver: bed.West, plainDriver: bed.West} {
		driver, err := sidecars.Start(ctx, cluster, built, sidecars.Options{
			Name: name, Pool: 100 << 30, Snapshots: name != plainDriver, Folders: filepath.Join(bed.Disks.Root, name),
		})
		if err != nil {
			return err
		}
		drivers[name] = driver
		if _, err := cluster.Client().StorageV1().StorageClasses().Create(ctx,
			driver.Class(name, storagev1.VolumeBindingWaitForFirstConsumer), metav1.CreateOptions{}); err != nil {
			return err
		}
		if name == plainDriver {
			continue
		}
		if _, err := cluster.Kubectl(ctx, fmt.Sprintf(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotClass,
  metadata: {name: %[1]s}, driver: %[1]s, deletionPolicy: Delete}`, name), "apply", "-f", "-"); err != nil {
			return err
		}
	}
	// The driver of west takes snapshots of several volumes, too, and has no class for them.
	if _, err := bed.Home.Kubectl(ctx, fmt.Sprintf(`{apiVersion: groupsnapshot.storage.k8s.io/v1beta2, kind: VolumeGroupSnapshotClass,
  metadata: {name: together}, driver: %s, deletionPolicy: Delete}`, homeDriver), "apply", "-f", "-"); err != nil {
		return err
	}
	_, err = bed.Home.Client().StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: virtual}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), AllowVolumeExpansion: ptr.To(true),
		Parameters: map[string]string{keys.LocalClass: homeDriver, keys.RemoteClass: westDriver,
			keys.Classes: strings.Join([]string{homeDriver, westDriver, plainDriver, fabric.WestWait}, ",")},
	}, metav1.CreateOptions{})
	return err
}

// able is true once a test found that movers can run here.
var able atomic.Bool

// rights checks that the tests together used each right that is there for replicas, and were refused none.
func rights(ctx context.Context) error {
	if !able.Load() {
		return nil
	}
	id, err := bed.HomeID(ctx)
	if err != nil {
		return err
	}
	// Those of the tests went with their namespaces.
	if _, err := bed.Home.Kubectl(ctx, "", "create", "rolebinding", "lodestone-freeze", "-n", metav1.NamespaceDefault,
		"--clusterrole=lodestone-freeze", "--serviceaccount=lodestone-system:lodestone-provisioner"); err != nil {
		return err
	}
	return roles.Replicas.Check(ctx, bed, keys.TenantPrefix+id+":"+keys.HomeAccount, "lodestone-home", func(q fabric.Request) bool {
		// In a namespace that has gone with its test.
		return strings.HasPrefix(q.ObjectRef.Namespace, "replicas-")
	})
}

// space makes a namespace at home that is open to remote clusters, and deletes what is in it after the test.
func space(t *testing.T) string {
	t.Helper()
	testbed.Require(t)
	harness.Require(t)
	able.Store(true)
	name := "replicas-" + rand.String(6)
	require.NoError(t, bed.Home.MakeNamespace(t.Context(), name))
	core := bed.Home.Client().CoreV1()
	open := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, keys.Offload, keys.OffloadEnabled)
	must.Patch(t, core.Namespaces(), name, types.MergePatchType, open)
	t.Cleanup(func() {
		ctx := context.Background()
		_ = bed.Home.Client().AppsV1().Deployments(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		_ = core.Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		_ = core.PersistentVolumeClaims(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		_ = core.Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	})
	return name
}

// application returns a pod that counts in claim data.
func application(namespace, name string) *corev1.Pod {
	return counter.Pod(namespace, name, "data", counter.Script("0.05"))
}

// deploy makes the Deployment data of one pod.
func deploy(t *testing.T, namespace string, spec corev1.PodSpec) {
	t.Helper()
	labels := map[string]string{"app": "data"}
	must.Create(t, bed.Home.Client().AppsV1().Deployments(namespace), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	})
}

// counts makes a claim of a class, which gets its volume in a cluster, and a Deployment that counts in it and may then run anywhere.
func counts(t *testing.T, namespace, class, cluster string) {
	t.Helper()
	core := bed.Home.Client().CoreV1()
	must.Create(t, core.PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "data", class))
	pod := application(namespace, "first")
	pod.Spec.Tolerations = []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists}}
	first := fabric.AtHome(pod.DeepCopy())
	if cluster != keys.Home {
		first = fabric.InWest(pod.DeepCopy())
	}
	must.Create(t, core.Pods(namespace), first)
	beyond(t, namespace, 0)
	must.Delete(t, core.Pods(namespace), "first")
	deploy(t, namespace, pod.Spec)
	beyond(t, namespace, counted(t, folder(t, namespace))+5)
}

// beyond waits until the application has counted beyond a number, and returns how far it has.
func beyond(t *testing.T, namespace string, number int) (n int) {
	t.Helper()
	await.Until(t, fmt.Sprintf("the application counts beyond %d", number), func() bool {
		at := folder(t, namespace)
		if at != "" {
			n = counted(t, at)
		}
		return n > number
	}, func() any { return n }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	return n
}

// folder returns the folder that stands for the volume of claim data, wherever it is; empty while it has none.
func folder(t *testing.T, namespace string) string {
	t.Helper()
	return bed.Folder(t, namespace, "data")
}

// counted returns how far the application in a folder has counted, and fails unless each number is there once and in order.
func counted(t *testing.T, folder string) int { t.Helper(); return counter.Counted(t, folder) }
