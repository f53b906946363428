// Package csi tests what becomes of virtual claims where the real class is that of a
// CSI driver with the real sidecars: external-provisioner makes and deletes the
// backing claims' volumes, publishes capacities and drops selected nodes,
// external-resizer grows volumes, csi-snapshotter makes snapshots.
package csi

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/roles"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The drivers, and their classes: the same name in both clusters.
const (
	homeDriver, westDriver = "files.home.test", "files.west.test"

	waiting, atOnce = "files-wait", "files-now"

	// virtual is the virtual class that leads to waiting.
	virtual = "virtual-files"

	gibibyte = 1 << 30
	// poolSize is the room of each node.
	poolSize = 100 * gibibyte
)

// bed is shared by the tests of this package; each uses namespaces of its own.
// Tests that order failures or fill pools do not run in parallel. Without control
// planes the names are of empty ones, so that tests get as far as to skip.
var (
	bed        = &fabric.Fabric{}
	home, west *sidecars.Driver
)

func TestMain(m *testing.M) {
	testbed.Parallel(8)
	testbed.Main(m, func(ctx context.Context) error {
		programs, err := sidecars.Build(ctx, os.Stderr)
		if err != nil {
			return err
		}
		bed, err = fabric.Start(ctx, fabric.Options{
			ControllerManagerQPS: 500,
			Drivers:              map[string][]string{"home": {homeDriver}, "west": {westDriver}}, AuditAll: true,
			APIServerArgs: []string{"--runtime-config=storage.k8s.io/v1beta1/volumeattributesclasses=true"},
		})
		if err != nil {
			return err
		}
		options := sidecars.Options{Name: homeDriver, Pool: poolSize, AttributesClasses: true, Snapshots: true}
		if home, err = sidecars.Start(ctx, bed.Home, programs, options); err != nil {
			return err
		}
		options.Name = westDriver
		if west, err = sidecars.Start(ctx, bed.West, programs, options); err != nil {
			return err
		}
		if err := makeClasses(ctx); err != nil {
			return err
		}
		if err := makeSnapshotClasses(ctx); err != nil {
			return err
		}
		binary, err := bed.BuildProvisioner(ctx)
		if err != nil {
			return err
		}
		// A refusal lasts longer than kube-scheduler waits before it tries a pod again.
		if _, err := bed.RunProvisioner(ctx, "provisioner", binary, "--refusal-period=15s"); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		return bed.Peer(ctx)
	}, checkRights)
}

// checkRights checks that the tests together used each right that is there for snapshots,
// and were refused none.
func checkRights(ctx context.Context) error {
	return roles.Snapshots.Check(ctx, bed, "lodestone-volumes:lodestone-home", "lodestone-home-claims", func(q fabric.Request) bool {
		// In a namespace that is not bound, any more.
		return strings.HasPrefix(q.ObjectRef.Namespace, "test-")
	})
}

func makeClasses(ctx context.Context) error {
	for _, driver := range []*sidecars.Driver{home, west} {
		for name, mode := range map[string]storagev1.VolumeBindingMode{waiting: storagev1.VolumeBindingWaitForFirstConsumer,
			atOnce: storagev1.VolumeBindingImmediate} {
			if err := makeClass(ctx, clusterOf(driver), driver.Class(name, mode)); err != nil {
				return err
			}
		}
	}
	return makeClass(ctx, bed.Home, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: virtual}, Provisioner: keys.Driver,
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowVolumeExpansion: ptr.To(true),
		Parameters:           map[string]string{keys.LocalClass: waiting, keys.RemoteClass: waiting},
	})
}

func makeClass(ctx context.Context, cluster *testbed.Cluster, class *storagev1.StorageClass) error {
	_, err := cluster.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	return err
}

// clusterOf returns the cluster that a driver runs in.
func clusterOf(driver *sidecars.Driver) *testbed.Cluster {
	if driver == west {
		return bed.West
	}
	return bed.Home
}

// route is a way that a claim can take.
type route struct {
	name   string
	place  func(*corev1.Pod) *corev1.Pod
	driver func() *sidecars.Driver
}

// cluster returns where the data is that takes it.
func (r route) cluster() *testbed.Cluster { return clusterOf(r.driver()) }

var routes = []route{
	{name: "at home", place: fabric.AtHome, driver: func() *sidecars.Driver { return home }},
	{name: "in the remote cluster", place: fabric.InWest, driver: func() *sidecars.Driver { return west }},
}

// onRoutes runs a test once for each route, at the same time and in namespaces of their own.
func onRoutes(t *testing.T, test func(t *testing.T, r route, namespace string)) {
	t.Parallel()
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			test(t, r, beside(t))
		})
	}
}

// beside has a test run beside others, in a namespace of its own.
func beside(t *testing.T) string {
	t.Helper()
	t.Parallel()
	return newNamespace(t)
}

// newNamespace makes a namespace in both clusters that home may use in west. Before it
// goes, what is in it is deleted: with the namespace home's rights there go, too.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := bed.Namespace(t)
	bed.EmptyAfter(t, namespace)
	return namespace
}

// create makes a claim "data" of the virtual class and a pod "db" that uses it.
func create(t *testing.T, namespace string, place func(*corev1.Pod) *corev1.Pod, change ...func(*corev1.PersistentVolumeClaim)) {
	t.Helper()
	claim := fabric.NewClaim(namespace, "data", virtual)
	for _, c := range change {
		c(claim)
	}
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
	bed.CreatePod(t, place(fabric.NewPod(namespace, "db", "data")))
}

// chain is a virtual claim with all that is behind it.
type chain struct {
	claim, backing *corev1.PersistentVolumeClaim
	virtual, real  *corev1.PersistentVolume
	volume         sidecars.Volume // what the driver knows of it
	cluster        *testbed.Cluster
}

// awaitServed waits until pod "db" runs and returns what is behind its claim "data".
func awaitServed(t *testing.T, namespace string, driver *sidecars.Driver) chain {
	t.Helper()
	bed.AwaitRunning(t, namespace, "db")
	return chainOf(t, namespace, "data", driver)
}

// chainOf returns what is behind a claim that a pod uses.
func chainOf(t *testing.T, namespace, name string, driver *sidecars.Driver) chain {
	t.Helper()
	c := chain{cluster: clusterOf(driver)}
	c.claim = claimOf(t, bed.Home, namespace, name)
	c.virtual = volumeOf(t, bed.Home, c.claim.Spec.VolumeName)
	require.NotNil(t, c.virtual)
	ref, err := backing.RefOf(c.virtual)
	require.NoError(t, err)
	await.Until(t, "the claim behind "+name+" is bound", func() bool { // its volume says so a little earlier
		c.backing = claimOf(t, c.cluster, ref.Namespace, ref.Name)
		require.NotNil(t, c.backing)
		return c.backing.Status.Phase == corev1.ClaimBound
	})
	c.real = volumeOf(t, c.cluster, c.backing.Spec.VolumeName)
	require.NotNil(t, c.real)
	volume, ok := volumes(t, driver)[c.real.Spec.CSI.VolumeHandle]
	require.True(t, ok, "the driver has no volume %s", c.real.Spec.CSI.VolumeHandle)
	c.volume = volume
	return c
}

func volumes(t *testing.T, driver *sidecars.Driver) map[string]sidecars.Volume {
	t.Helper()
	found, err := driver.Volumes()
	require.NoError(t, err)
	return found
}

// claimOf returns a claim, nil if there is none.
func claimOf(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return await.Claim(t, cluster.Client(), namespace, name)
}

// volumeOf returns a volume, nil if there is none.
func volumeOf(t *testing.T, cluster *testbed.Cluster, name string) *corev1.PersistentVolume {
	t.Helper()
	return await.Volume(t, cluster.Client(), name)
}

// sized makes a claim ask for a size.
func sized(size string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	}
}

// requestSize raises what a claim asks for.
func requestSize(t *testing.T, cluster *testbed.Cluster, namespace, name, size string) {
	t.Helper()
	must.Kubectl(t, cluster, "", "patch", "pvc", "-n", namespace, name,
		"-p", fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
}
