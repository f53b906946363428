package provisioning

import (
	"context"
	"slices"
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
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// never is a real volume that is not made until the behaviour is reset.
var never = instant.Behavior{Never: true}

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

// hasRoom waits until kube-scheduler can be told of the room that a virtual class
// has for a node: until then it gives the node no pod with a claim of the class.
func hasRoom(t *testing.T, class, name string) {
	t.Helper()
	node, err := bed.Home.Client().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	await.Until(t, "the room of class "+class+" is told for node "+name, func() bool {
		capacities, err := bed.Home.Client().StorageV1().CSIStorageCapacities(fabric.System).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
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
	_, err := classes.Create(t.Context(), class, metav1.CreateOptions{})
	require.NoError(t, err)
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
	require.NoError(t, bed.Home.Client().CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	absent(t, "pod", func() *corev1.Pod { return podOf(t, namespace, name) })
}

func deleteClaim(t *testing.T, cluster *testbed.Cluster, namespace, name string) {
	t.Helper()
	require.NoError(t, cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func deleteNamespace(t *testing.T, cluster *testbed.Cluster, name string) {
	t.Helper()
	require.NoError(t, cluster.Client().CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// namespaceGone waits until a namespace is gone.
func namespaceGone(t *testing.T, cluster *testbed.Cluster, name string) {
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
	claim := createClaim(t, fabric.NewClaim(namespace, "data", class))
	createPod(t, place(fabric.NewPod(namespace, "db", "data")))
	runs(t, namespace, "db")
	return claim
}

func preferWest(pod *corev1.Pod) *corev1.Pod { return fabric.Prefer(pod, fabric.WestNode) }
