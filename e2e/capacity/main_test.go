// Package capacity tests on real control planes that kube-scheduler knows how
// much room the virtual classes have, and that it never waits for a room that
// nobody tells it of.
package capacity

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// bed is shared by the tests of this package, which all change what the others
// see: none runs in parallel. Without control planes it is empty, so that tests
// get as far as to skip.
var (
	bed    = &fabric.Fabric{}
	binary string
	// provisioner runs between tests.
	provisioner *testbed.Program
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500}); err != nil {
			return err
		}
		if err := setCapacityChecks(ctx, true); err != nil {
			return err
		}
		if binary, err = bed.BuildProvisioner(ctx); err != nil {
			return err
		}
		if provisioner, err = bed.RunProvisioner(ctx, "provisioner", binary); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		return bed.Peer(ctx)
	})
}

// newNamespace makes a namespace in both clusters that home may use in west, once
// kube-scheduler asks for room.
func newNamespace(t *testing.T) string {
	t.Helper()
	testbed.Require(t)
	awaitCapacityChecks(t, true)
	namespace := bed.Namespace(t)
	return namespace
}

// setDriverCapacity has a driver of a cluster tell how much room a real class has on all
// nodes there, until the test ends. largest may be empty.
func setDriverCapacity(t *testing.T, cluster *testbed.Cluster, class, free, largest string) {
	t.Helper()
	capacities := cluster.Client().StorageV1().CSIStorageCapacities(metav1.NamespaceDefault)
	wanted := &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Name: "room-of-" + class}, StorageClassName: class,
		NodeTopology: &metav1.LabelSelector{}, Capacity: ptr.To(resource.MustParse(free)),
	}
	if largest != "" {
		wanted.MaximumVolumeSize = ptr.To(resource.MustParse(largest))
	}
	if have, err := capacities.Get(t.Context(), wanted.Name, metav1.GetOptions{}); err == nil {
		wanted.ResourceVersion = have.ResourceVersion
		must.Update(t, capacities, wanted)
		return
	}
	must.Create(t, capacities, wanted)
	t.Cleanup(func() {
		must.Delete(t, capacities, wanted.Name)
		of := keys.Home
		if cluster == bed.West {
			of = "west"
		}
		awaitCapacity(t, fabric.Class, of, "7Ei")
	})
}

// setCapacityChecks says whether kube-scheduler heeds what the driver at home tells of
// room.
func setCapacityChecks(ctx context.Context, is bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"storageCapacity":%t}}`, is)
	_, err := bed.Home.Client().StorageV1().CSIDrivers().Patch(ctx, bed.HomeStorage.Name(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// published returns what is published of a virtual class, of all if it is empty.
func published(t *testing.T, class string) []storagev1.CSIStorageCapacity {
	t.Helper()
	list := must.List(t, bed.Home.Client().StorageV1().CSIStorageCapacities(fabric.System), metav1.ListOptions{
		LabelSelector: keys.Capacity + "=" + keys.CapacityPublished})
	var found []storagev1.CSIStorageCapacity
	for _, capacity := range list.Items {
		if class == "" || capacity.StorageClassName == class {
			found = append(found, capacity)
		}
	}
	return found
}

// limit returns the largest volume of a class that a cluster is said to have room
// for; empty if nothing is said.
func limit(t *testing.T, class, cluster string) string {
	t.Helper()
	for _, capacity := range published(t, class) {
		of := capacity.NodeTopology.MatchLabels[keys.Cluster]
		for _, expression := range capacity.NodeTopology.MatchExpressions {
			if expression.Key == keys.Cluster && expression.Operator == metav1.LabelSelectorOpDoesNotExist {
				of = keys.Home
			}
		}
		if of != cluster {
			continue
		}
		if capacity.MaximumVolumeSize != nil {
			return capacity.MaximumVolumeSize.String()
		}
		return capacity.Capacity.String()
	}
	return ""
}

// awaitCapacity waits until a cluster is said to have room for volumes up to a size.
func awaitCapacity(t *testing.T, class, cluster, want string) {
	t.Helper()
	await.Until(t, fmt.Sprintf("the largest volume of class %s in %s is %q", class, cluster, want),
		func() bool { return limit(t, class, cluster) == want }, func() any { return published(t, class) })
}

// awaitCapacityChecks waits until kube-scheduler is told to ask for room, or not to.
func awaitCapacityChecks(t *testing.T, want bool) {
	t.Helper()
	await.Until(t, fmt.Sprintf("storageCapacity of the CSIDriver is %t", want), func() bool { return told(t) == want })
}

func told(t *testing.T) bool {
	t.Helper()
	driver := must.Get(t, bed.Home.Client().StorageV1().CSIDrivers(), keys.Driver)
	return *driver.Spec.StorageCapacity
}

// newClass makes a virtual class and removes it after the test.
func newClass(t *testing.T, name string) {
	t.Helper()
	classes := bed.Home.Client().StorageV1().StorageClasses()
	must.Create(t, classes, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	t.Cleanup(func() {
		_ = classes.Delete(context.Background(), name, metav1.DeleteOptions{})
		await.Until(t, "the capacities of class "+name+" are gone", func() bool { return len(published(t, name)) == 0 })
	})
}

// use makes a claim of a class for a size, and a pod of the same name that mounts
// it.
func use(t *testing.T, pod *corev1.Pod, class, size string) {
	t.Helper()
	claim := fabric.NewClaim(pod.Namespace, pod.Name, class)
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(pod.Namespace), claim)
	must.Create(t, bed.Home.Client().CoreV1().Pods(pod.Namespace), pod)
}

func get(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	return must.Get(t, bed.Home.Client().CoreV1().Pods(namespace), name)
}
