package pitfalls

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/capacity"
)

// Kubernetes 1.37 prefers nodes with much room by default. kube-scheduler 1.36 has that behind a
// gate, with the same formula. Nobody knows how much room there is in west.
func TestRoomThatNobodyKnowsDrawsNoPods(t *testing.T) {
	testbed.NotInShort(t)
	testbed.Require(t)
	publishRoom(t)
	drawsNoPods(t, settings{}, settings{gates: "StorageCapacityScoring=true"})
}

// With E2E_LONG, since another Kubernetes has to be built for it: kube-scheduler 1.37 as it is, beside the same
// without the preference.
func TestRoomThatNobodyKnowsDrawsNoPodsInKubernetes137(t *testing.T) {
	testbed.Require(t)
	if os.Getenv("E2E_LONG") == "" {
		t.Skip("kube-scheduler 1.37 takes minutes to build: set E2E_LONG")
	}
	publishRoom(t)
	// Its API server would serve the rules of device taints in a version that that of 1.36 has not.
	const served = "DRADeviceTaintRules=false"
	drawsNoPods(t, settings{newer: true, gates: served + ",StorageCapacityScoring=false"}, settings{newer: true, gates: served})
}

// drawsNoPods has kube-scheduler place pods without and with scoring, and compares.
func drawsNoPods(t *testing.T, off, on settings) {
	t.Helper()
	const pods = 200
	places := map[string]map[string]int{}
	for name, s := range map[string]settings{"off": off, "on": on} {
		t.Run("scoring "+name, func(t *testing.T) { places[name] = placed(t, s, pods) })
	}
	t.Logf("pods by node: %v", places)
	for node := range places["off"] {
		assert.InDelta(t, places["off"][node], places["on"][node], pods*0.05, "pods on node %s: %v", node, places)
	}
}

// publishRoom has a driver at home tell its room, and publishes what the provisioner would, until the
// test ends.
func publishRoom(t *testing.T) {
	t.Helper()
	ctx, storage := t.Context(), bed.Client().StorageV1()
	const driver = "disk.home.test"
	_, err := storage.CSIDrivers().Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = storage.StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "disk", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	told := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "disk"}, StorageClassName: "disk",
		NodeTopology: &metav1.LabelSelector{}, Capacity: ptr.To(resource.MustParse("100Gi"))}

	classes, err := storage.StorageClasses().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	drivers, err := storage.CSIDrivers().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	remotes, err := clients.NewRemoteClusters(bed.AdminConfig())
	require.NoError(t, err)
	known, err := remotes.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	world := capacity.World{Classes: pointers(classes.Items), Drivers: pointers(drivers.Items), Remotes: pointers(known.Items),
		Capacities: []*storagev1.CSIStorageCapacity{told}}
	require.Nil(t, world.Remotes[0].Status.StorageClasses[0].Free, "the room in west is unknown")
	for _, object := range capacity.Compare(capacity.Plan(world), nil, system).Create {
		_, err := storage.CSIStorageCapacities(system).Create(ctx, object, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	heed := func(ctx context.Context, is bool) {
		_, err := storage.CSIDrivers().Patch(ctx, keys.Driver, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"storageCapacity":%t}}`, is),
			metav1.PatchOptions{})
		require.NoError(t, err)
	}
	heed(ctx, true)
	t.Cleanup(func() {
		ctx := context.Background()
		heed(ctx, false)
		assert.NoError(t, storage.CSIStorageCapacities(system).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		assert.NoError(t, storage.StorageClasses().Delete(ctx, "disk", metav1.DeleteOptions{}))
		assert.NoError(t, storage.CSIDrivers().Delete(ctx, driver, metav1.DeleteOptions{}))
	})
}

func pointers[T storagev1.StorageClass | storagev1.CSIDriver | v1alpha1.RemoteCluster](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

// placed has a kube-scheduler of its own find nodes for pods with a claim each, and returns how many it
// selected for each node. No volume is made, so no pod is bound: they go before the next scheduler looks.
func placed(t *testing.T, s settings, pods int) map[string]int {
	t.Helper()
	where := newShop(t, open)
	claims := bed.Client().CoreV1().PersistentVolumeClaims(where.name)
	var group errgroup.Group
	group.SetLimit(8)
	for i := range pods {
		group.Go(func() error {
			name := fmt.Sprintf("web-%d", i)
			claim := newClaim(name)
			claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("50Gi")
			if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
				return err
			}
			pod := newPod(name, name)
			// A hundredth of a node, so that as many run on each but for what the room draws.
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("640m"), corev1.ResourceMemory: resource.MustParse("2560Mi")}
			_, err := bed.Client().CoreV1().Pods(where.name).Create(t.Context(), pod, metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(t, group.Wait())
	// Pods of a test before would take room on some nodes, and only while the first scheduler looks.
	require.Eventually(t, func() bool {
		all, err := bed.Client().CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		return err == nil && !slices.ContainsFunc(all.Items, func(pod corev1.Pod) bool {
			return pod.Namespace != where.name && strings.HasPrefix(pod.Namespace, "test-")
		})
	}, long, 10*often, "the pods of other tests must be gone")
	scheduler(t, nil, s)
	t.Cleanup(func() {
		all := bed.Client().CoreV1().Pods(where.name)
		assert.NoError(t, all.DeleteCollection(context.Background(), *metav1.NewDeleteOptions(0), metav1.ListOptions{}))
	})
	nodes := map[string]int{}
	require.Eventually(t, func() bool {
		list, err := claims.List(t.Context(), metav1.ListOptions{})
		clear(nodes)
		for _, claim := range list.Items {
			nodes[claim.Annotations[keys.SelectedNode]]++
		}
		return err == nil && len(list.Items) == pods && nodes[""] == 0
	}, long, 10*often, "each claim must get a node")
	return nodes
}
