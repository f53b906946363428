// Package provisioning tests the whole path from a claim to its volume on real
// control planes.
package provisioning

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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

// longRefusals has a refusal last longer than kube-scheduler waits before it tries a
// pod again, at most 10 s: with less, a pod may try the same place for ever.
const longRefusals = "--refusal-period=15s"

func TestMain(m *testing.M) {
	testbed.Parallel(16)
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Zones: true}); err != nil {
			return err
		}
		if binary, err = bed.BuildProvisioner(ctx); err != nil {
			return err
		}
		if provisioner, err = bed.RunProvisioner(ctx, "provisioner", binary, longRefusals); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		return bed.Peer(ctx)
	})
}

// beside has a test run beside others, in a namespace of its own.
func beside(t *testing.T) string {
	t.Helper()
	t.Parallel()
	return newNamespace(t)
}

// newNamespace makes a namespace in both clusters that home may use in west.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := bed.Namespace(t)
	bed.EmptyAfter(t, namespace)
	return namespace
}

func claimOf(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return await.Claim(t, cluster.Client(), namespace, name)
}

func volumeOf(t *testing.T, cluster *testbed.Cluster, name string) *corev1.PersistentVolume {
	t.Helper()
	return await.Volume(t, cluster.Client(), name)
}

func podOf(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	return await.Pod(t, bed.Home.Client(), namespace, name)
}

func awaitBound(t *testing.T, cluster *testbed.Cluster, namespace, name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	t.Helper()
	var claim *corev1.PersistentVolumeClaim
	eventually(t, func() bool {
		claim = claimOf(t, cluster, namespace, name)
		return claim != nil && claim.Status.Phase == corev1.ClaimBound
	}, func() string {
		return fmt.Sprintf("claim %s/%s of %s is not bound: %+v\nevents: %v", namespace, name, cluster.Name(), claim,
			await.Events(t, bed.Home.Client(), namespace))
	})
	volume := volumeOf(t, cluster, claim.Spec.VolumeName)
	require.NotNil(t, volume)
	return claim, volume
}

func eventually(t *testing.T, done func() bool, otherwise func() string) {
	t.Helper()
	await.Until(t, "what the test waits for is so", done, func() any { return otherwise() })
}

// awaitVolumeEvent waits until an event with a reason is there for a volume, and
// returns its message.
func awaitVolumeEvent(t *testing.T, name, reason string) string {
	t.Helper()
	return await.Event(t, bed.Home.Client(), metav1.NamespaceDefault, name, reason)
}

// warnings returns the warnings about the claims and volumes of a namespace.
// kube-scheduler's, about pods that wait, are none of ours, and neither is that of
// kube-controller-manager when it has not yet seen a class that a test just made.
func warnings(t *testing.T, namespace string) []string {
	t.Helper()
	return slices.DeleteFunc(await.Events(t, bed.Home.Client(), namespace), func(e string) bool {
		return !strings.HasPrefix(e, corev1.EventTypeWarning+" PersistentVolume") ||
			(strings.Contains(e, "storageclass.storage.k8s.io \"virtual-") && strings.HasSuffix(e, "not found"))
	})
}

// consistently checks for a while that something stays as it is.
func consistently(t *testing.T, holds func() bool, otherwise string) {
	t.Helper()
	await.Always(t, otherwise, holds)
}

// awaitAbsent waits until something is gone.
func awaitAbsent[T any](t *testing.T, what string, find func() *T) {
	t.Helper()
	eventually(t, func() bool { return find() == nil }, func() string { return fmt.Sprintf("%s is still there: %+v", what, find()) })
}

// watchClaims watches the claims of a namespace and returns a function that gives
// the UIDs of all claims of a name that were ever there since.
func watchClaims(t *testing.T, cluster *testbed.Cluster, namespace string) func(name string) []types.UID {
	t.Helper()
	watcher, err := cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(watcher.Stop)
	var mu sync.Mutex
	made := map[string][]types.UID{}
	go func() {
		for event := range watcher.ResultChan() {
			if claim, ok := event.Object.(*corev1.PersistentVolumeClaim); ok && event.Type == watch.Added {
				mu.Lock()
				made[claim.Name] = append(made[claim.Name], claim.UID)
				mu.Unlock()
			}
		}
	}()
	return func(name string) []types.UID {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(made[name])
	}
}

// backingOf returns the backing claim that a virtual volume names, nil if it is
// gone.
func backingOf(t *testing.T, virtual *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	t.Helper()
	ref, err := backing.RefOf(virtual)
	require.NoError(t, err)
	cluster := bed.Home
	if ref.Cluster != keys.Home {
		cluster = bed.West
	}
	claim := claimOf(t, cluster, ref.Namespace, ref.Name)
	if claim != nil {
		require.Equal(t, ref.UID, claim.UID)
	}
	return claim
}

func lastPart(handle string) string { return handle[strings.LastIndex(handle, "/")+1:] }

// never is a real volume that is not made until the behaviour is reset.
var never = fakeprovisioner.Behavior{Never: true}

// newClass makes a virtual class of a new name, which goes after the test, and
// returns the name.
func newClass(t *testing.T, changes ...func(*storagev1.StorageClass)) string {
	t.Helper()
	testbed.Require(t)
	class := &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: "virtual-" + rand.String(8)},
		Provisioner:          keys.Driver,
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		ReclaimPolicy:        ptr.To(corev1.PersistentVolumeReclaimDelete),
		AllowVolumeExpansion: ptr.To(true),
	}
	for _, change := range changes {
		change(class)
	}
	return makeClass(t, bed.Home, class)
}

// awaitCapacity waits until kube-scheduler can be told of the room that a virtual class
// has for a node: until then it gives the node no pod with a claim of the class.
func awaitCapacity(t *testing.T, class, name string) {
	t.Helper()
	node := must.Get(t, bed.Home.Client().CoreV1().Nodes(), name)
	await.Until(t, "the room of class "+class+" is told for node "+name, func() bool {
		capacities := must.List(t, bed.Home.Client().StorageV1().CSIStorageCapacities(fabric.System))
		return slices.ContainsFunc(capacities.Items, func(c storagev1.CSIStorageCapacity) bool {
			reach, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
			require.NoError(t, err)
			return c.StorageClassName == class && reach.Matches(labels.Set(node.Labels))
		})
	})
}

func makeClass(t *testing.T, cluster *testbed.Cluster, class *storagev1.StorageClass) string {
	t.Helper()
	classes := cluster.Client().StorageV1().StorageClasses()
	must.Create(t, classes, class)
	t.Cleanup(func() { _ = classes.Delete(context.Background(), class.Name, metav1.DeleteOptions{}) })
	return class.Name
}

func retain(class *storagev1.StorageClass) {
	class.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain)
}

// with sets parameters of a virtual class, given as key, value, key, value.
func with(pairs ...string) func(*storagev1.StorageClass) {
	return func(class *storagev1.StorageClass) {
		class.Parameters = map[string]string{}
		for pair := range slices.Chunk(pairs, 2) {
			class.Parameters[pair[0]] = pair[1]
		}
	}
}

// sized changes what a claim asks for.
func sized(claim *corev1.PersistentVolumeClaim, size string) *corev1.PersistentVolumeClaim {
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	return claim
}

// selecting writes a node on a claim as kube-scheduler does, so that no pod is
// needed.
func selecting(claim *corev1.PersistentVolumeClaim, node string) *corev1.PersistentVolumeClaim {
	return annotated(claim, keys.SelectedNode, node)
}

func annotated(claim *corev1.PersistentVolumeClaim, key, value string) *corev1.PersistentVolumeClaim {
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	claim.Annotations[key] = value
	return claim
}

func deletePod(t *testing.T, namespace, name string) {
	t.Helper()
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), name)
	awaitAbsent(t, "pod", func() *corev1.Pod { return podOf(t, namespace, name) })
}

func deleteClaim(t *testing.T, cluster *testbed.Cluster, namespace, name string) {
	t.Helper()
	must.Delete(t, cluster.Client().CoreV1().PersistentVolumeClaims(namespace), name)
}

func deleteNamespace(t *testing.T, cluster *testbed.Cluster, name string) {
	t.Helper()
	must.Delete(t, cluster.Client().CoreV1().Namespaces(), name)
}

func awaitNamespaceGone(t *testing.T, cluster *testbed.Cluster, name string) {
	t.Helper()
	eventually(t, func() bool {
		_, err := cluster.Client().CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, func() string { return "namespace " + name + " of " + cluster.Name() + " is still there" })
}

// twinOf is the name of a claim's twin in the storage namespace.
func twinOf(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// removeAfter removes a backing claim that is meant to outlive its virtual claim,
// after the test and whatever holds it.
func removeAfter(t *testing.T, cluster *testbed.Cluster, namespace, name string) {
	t.Helper()
	t.Cleanup(func() {
		claims := cluster.Client().CoreV1().PersistentVolumeClaims(namespace)
		_ = claims.Delete(context.Background(), name, metav1.DeleteOptions{})
		_, _ = claims.Patch(context.Background(), name, types.StrategicMergePatchType,
			[]byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+keys.BackingFinalizer+`"]}}`), metav1.PatchOptions{})
	})
}

// claimAndPod makes a claim of a class and a pod that uses it, and waits until
// the pod runs.
func claimAndPod(t *testing.T, namespace, class string, place func(*corev1.Pod) *corev1.Pod) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", class))
	bed.CreatePod(t, place(fabric.NewPod(namespace, "db", "data")))
	bed.AwaitRunning(t, namespace, "db")
	return claim
}

func preferWest(pod *corev1.Pod) *corev1.Pod { return fabric.Prefer(pod, fabric.WestNode) }
