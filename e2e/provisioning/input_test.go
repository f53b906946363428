package provisioning

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/hollow"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestBadInputIsToldOnTheClaimAndChangesNothing gives claims a node by hand: for
// most of them the extender would leave the scheduler none.
func TestBadInputIsToldOnTheClaimAndChangesNothing(t *testing.T) {
	t.Parallel()
	immediate := func(class *storagev1.StorageClass) {
		class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
	}
	testbed.Require(t)
	later := storagev1.VolumeBindingWaitForFirstConsumer
	static := makeClass(t, bed.Home, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "static-later"}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &later,
	})
	templated := bed.HomeStorage.Class("templated", later)
	templated.Parameters = map[string]string{"path": "/${pvc.namespace}"}
	makeClass(t, bed.Home, templated)
	// No kubelet plays this node, and no pod can go there.
	_, err := bed.Home.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "east", Labels: map[string]string{keys.Cluster: "east"}},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = bed.Home.Client().CoreV1().Nodes().Delete(context.Background(), "east", metav1.DeleteOptions{})
	})
	snapshot := &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "friday"}
	for _, row := range []struct {
		name   string
		class  func(*storagev1.StorageClass)
		claim  func(*corev1.PersistentVolumeClaim)
		node   string
		apart  bool // the namespace is not offloaded
		reason string
		says   string
		// refused: the node is taken off the claim.
		refused bool
	}{
		{name: "a class that binds at once", class: immediate, reason: "InvalidClaim", says: "volumeBindingMode Immediate"},
		{name: "an unknown parameter", class: with("lodestone.dev/colour", "blue"), reason: "InvalidClaim", says: `unknown parameter "lodestone.dev/colour"`},
		{name: "no such real class at home", class: with(keys.LocalClass, "absent"), reason: "NoRealClass", says: `the home cluster has no real storage class "absent"`, refused: true},
		{name: "no such real class in the remote cluster", class: with(keys.RemoteClass, "absent"), node: fabric.WestNode, reason: "NoRealClass", says: `cluster "west" has no real storage class "absent"`, refused: true},
		{name: "a real class that is itself virtual", class: with(keys.LocalClass, fabric.Class), reason: "NoRealClass", says: "a virtual class does not count", refused: true},
		{name: "a node that does not exist", node: "absent", reason: "NodeGone", says: `node "absent" no longer exists`, refused: true},
		{name: "a node of a cluster that is not known", node: "east", reason: "UnknownCluster", says: `cluster "east", which has no RemoteCluster object`, refused: true},
		{name: "a selector", claim: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
		}, reason: "InvalidClaim", says: "selector"},
		{name: "a snapshot where there are none", claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = snapshot }, reason: "SnapshotNotReady", says: "the home cluster has no VolumeSnapshots: install"},
		{name: "a class of its own that is not listed", claim: func(c *corev1.PersistentVolumeClaim) { annotated(c, keys.Class, fabric.HomeNow) }, reason: "InvalidClaim", says: "does not list"},
		{name: "a namespace that may not leave home", node: fabric.WestNode, apart: true, reason: "NotOffloaded", says: "label the namespace lodestone.dev/offload=enabled", refused: true},
		{name: "a cluster that the class leaves out", class: with(keys.Clusters, "home"), node: fabric.WestNode, reason: "ClusterNotAllowed", says: `out of cluster "west"`, refused: true},
		{name: "a real class of hand-made volumes that only the scheduler binds", class: with(keys.LocalClass, static), reason: "StaticClass", says: "only the scheduler binds", refused: true},
		{name: "a real class that depends on the namespace", class: with(keys.LocalClass, templated.Name), reason: "TemplatedClass", says: "depend on the claim's namespace", refused: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			namespace := testbed.Namespace(t, bed.Home, bed.West)
			if !row.apart {
				require.NoError(t, bed.Bind(t.Context(), namespace))
			}
			class := fabric.Class
			if row.class != nil {
				class = newClass(t, row.class)
			}
			claim := fabric.NewClaim(namespace, "data", class)
			if row.claim != nil {
				row.claim(claim)
			}
			node := row.node
			if node == "" {
				node = "home-1"
			}
			claim = createClaim(t, selecting(claim, node))

			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", row.reason), row.says)
			if row.refused {
				eventually(t, func() bool {
					return claimOf(t, bed.Home, namespace, "data").Annotations[keys.SelectedNode] == ""
				}, func() string { return "the scheduler cannot choose again" })
			}
			consistently(t, func() bool {
				return claimOf(t, bed.Home, fabric.Storage, twinOf(claim)) == nil && claimOf(t, bed.West, namespace, "data") == nil && volumeOf(t, bed.Home, twinOf(claim)) == nil
			}, "something was made")
			assert.Len(t, warnings(t, namespace), 1, "one clear event: %v", warnings(t, namespace))
		})
	}
}

func TestInvalidClassIsTakenUpOnceItIsMended(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	class := newClass(t, with(keys.LocalClass, "later-"+namespace))
	claim := createClaim(t, fabric.NewClaim(namespace, "data", class))
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "data")))
	await.Event(t, bed.Home.Client(), namespace, "data", "NoRealClass")

	makeClass(t, bed.Home, bed.HomeStorage.Class("later-"+namespace, storagev1.VolumeBindingWaitForFirstConsumer))
	runs(t, namespace, "db")
	bound(t, bed.Home, fabric.Storage, twinOf(claim))
}

// TestNodeThatGoesAwayIsReplaced deletes the selected node while the twin waits
// for its volume there.
func TestNodeThatGoesAwayIsReplaced(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	node := "gone-" + namespace
	// The taint keeps pods of other tests, which run at the same time, off a node that goes away.
	require.NoError(t, bed.HomeNodes.AddNodes(t.Context(), hollow.Node{
		Name: node, Labels: map[string]string{"disk": "spare"}, Drivers: map[string]int32{"disk.home.test": 0},
		Taints: []corev1.Taint{{Key: "spare", Effect: corev1.TaintEffectNoSchedule}},
	}))
	claim := createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.HomeStorage.SetClaim(fabric.Storage, twinOf(claim), never)
	pod := fabric.Prefer(fabric.AtHome(fabric.NewPod(namespace, "db", "data")), node)
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "spare", Operator: corev1.TolerationOpExists})
	createPod(t, pod)
	eventually(t, func() bool {
		twin := claimOf(t, bed.Home, fabric.Storage, twinOf(claim))
		return twin != nil && twin.Annotations[keys.SelectedNode] == node
	}, func() string { return "there is no twin for the node" })

	require.NoError(t, bed.HomeNodes.RemoveNode(t.Context(), node))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NodeGone"), node)
	bed.HomeStorage.ResetClaim(fabric.Storage, twinOf(claim))
	assert.NotEqual(t, node, runs(t, namespace, "db"))
	twin, _ := bound(t, bed.Home, fabric.Storage, twinOf(claim))
	assert.NotEqual(t, node, twin.Annotations[keys.SelectedNode])
	for _, warning := range warnings(t, namespace) {
		assert.NotContains(t, warning, "ProvisioningFailed", "the library must not be the one that handles it")
	}
}
