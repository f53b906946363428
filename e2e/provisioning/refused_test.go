package provisioning

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestClaimThatTheRemoteClusterRefusesGoesHome(t *testing.T) {
	t.Parallel()
	for _, refusal := range []struct {
		name   string
		setUp  func(t *testing.T) (namespace string)
		reason string
		says   string
	}{
		{
			name: "its quota leaves no room",
			setUp: func(t *testing.T) string {
				t.Helper()
				namespace := newNamespace(t)
				limitClaims(t, namespace, "0")
				return namespace
			},
			reason: "QuotaExceeded", says: "exceeded quota: claims",
		},
		{
			name: "it has no such namespace",
			setUp: func(t *testing.T) string {
				t.Helper()
				namespace := testbed.Namespace(t, bed.Home)
				offload(t, namespace)
				return namespace
			},
			// Rights in a namespace that does not exist cannot be had.
			reason: "NotAllowed", says: "no such namespace, no rights in it",
		},
		{
			name: "home has no rights in the namespace",
			setUp: func(t *testing.T) string {
				t.Helper()
				namespace := testbed.Namespace(t, bed.Home, bed.West)
				offload(t, namespace)
				return namespace
			},
			reason: "NotAllowed", says: "no such namespace, no rights in it",
		},
		{
			name: "its admission refuses the claim",
			setUp: func(t *testing.T) string {
				t.Helper()
				namespace := newNamespace(t)
				refuseClaims(t, namespace)
				return namespace
			},
			reason: "NotValid", says: "the owner of this cluster says no",
		},
		{
			name: "somebody else has a claim of that name there",
			setUp: func(t *testing.T) string {
				t.Helper()
				namespace := newNamespace(t)
				must.Create(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "data", fabric.WestNow))
				return namespace
			},
			reason: "ForeignClaim", says: "does not belong to this one",
		},
	} {
		t.Run(refusal.name, func(t *testing.T) {
			t.Parallel()
			namespace := refusal.setUp(t)
			before := claimOf(t, bed.West, namespace, "data")
			claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
			bed.CreatePod(t, preferWest(fabric.NewPod(namespace, "db", "data")))

			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", refusal.reason), refusal.says)
			assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
			awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))
			after := claimOf(t, bed.West, namespace, "data")
			if before == nil {
				assert.Nil(t, after, "nothing of ours may stay in west")
				return
			}
			require.NotNil(t, after)
			assert.Equal(t, before.UID, after.UID)
			assert.Empty(t, after.Labels)
			assert.Empty(t, after.Annotations[keys.Claim])
		})
	}
}

func TestClaimsOfOnePodGoHomeTogetherWhenOneIsRefused(t *testing.T) {
	namespace := beside(t)
	limitClaims(t, namespace, "1")
	var claims []*corev1.PersistentVolumeClaim
	for _, name := range []string{"one", "two", "three"} {
		claims = append(claims, bed.CreateClaim(t, fabric.NewClaim(namespace, name, fabric.Class)))
	}
	bed.CreatePod(t, preferWest(fabric.NewPod(namespace, "db", "one", "two", "three")))

	assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
	for _, claim := range claims {
		awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))
		assert.Nil(t, claimOf(t, bed.West, namespace, claim.Name))
	}
}

func TestTwinIsMadeAnewWhenTheRealProvisionerHasNoRoomOnTheNode(t *testing.T) {
	namespace := beside(t)
	twins := watchClaims(t, bed.Home, fabric.Storage)
	claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.HomeStorage.SetClaim(fabric.Storage, twinOf(claim), fakeprovisioner.Behavior{FullNodes: []string{"home-1"}})
	bed.CreatePod(t, fabric.Prefer(fabric.AtHome(fabric.NewPod(namespace, "db", "data")), "home-1"))

	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NoCapacity"), `"home-1"`)
	assert.Equal(t, "home-2", bed.AwaitRunning(t, namespace, "db"))
	twin, _ := awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))
	assert.Equal(t, "home-2", twin.Annotations[keys.SelectedNode])
	assert.Len(t, twins(twinOf(claim)), 2)
}

func TestPodWaitsAtHomeUntilThereIsRoom(t *testing.T) {
	namespace := beside(t)
	claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.HomeStorage.SetClaim(fabric.Storage, twinOf(claim), fakeprovisioner.Behavior{FullNodes: []string{fakeprovisioner.EveryNode}})
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "data")))
	await.Event(t, bed.Home.Client(), namespace, "data", "NoCapacity")
	bed.HomeStorage.ResetClaim(fabric.Storage, twinOf(claim))
	bed.AwaitRunning(t, namespace, "db")
}

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
	must.Create(t, bed.Home.Client().CoreV1().Nodes(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "east", Labels: map[string]string{keys.Cluster: "east"}},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	})
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
		{name: "an unknown parameter", class: with("lodestone.dev/colour", "blue"), reason: "InvalidClaim",
			says: `unknown parameter "lodestone.dev/colour"`},
		{name: "no such real class at home", class: with(keys.LocalClass, "absent"), reason: "NoRealClass",
			says: `the home cluster has no real storage class "absent"`, refused: true},
		{name: "no such real class in the remote cluster", class: with(keys.RemoteClass, "absent"), node: fabric.WestNode, reason: "NoRealClass",
			says: `cluster "west" has no real storage class "absent"`, refused: true},
		{name: "a real class that is itself virtual", class: with(keys.LocalClass, fabric.Class), reason: "NoRealClass",
			says: "a virtual class does not count", refused: true},
		{name: "a node that does not exist", node: "absent", reason: "NodeGone", says: `node "absent" no longer exists`, refused: true},
		{name: "a node of a cluster that is not known", node: "east", reason: "UnknownCluster",
			says: `cluster "east", which has no RemoteCluster object`, refused: true},
		{name: "a selector", claim: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
		}, reason: "InvalidClaim", says: "selector"},
		{name: "a snapshot where there are none", claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = snapshot },
			reason: "SnapshotNotReady", says: "the home cluster has no VolumeSnapshots: install"},
		{name: "a class of its own that is not listed", claim: func(c *corev1.PersistentVolumeClaim) { annotated(c, keys.Class, fabric.HomeNow) },
			reason: "InvalidClaim", says: "does not list"},
		{name: "a namespace that may not leave home", node: fabric.WestNode, apart: true, reason: "NotOffloaded",
			says: "label the namespace lodestone.dev/offload=enabled", refused: true},
		{name: "a cluster that the class leaves out", class: with(keys.Clusters, "home"), node: fabric.WestNode, reason: "ClusterNotAllowed",
			says: `out of cluster "west"`, refused: true},
		{name: "a real class of hand-made volumes that only the scheduler binds", class: with(keys.LocalClass, static), reason: "StaticClass",
			says: "only the scheduler binds", refused: true},
		{name: "a real class that depends on the namespace", class: with(keys.LocalClass, templated.Name), reason: "TemplatedClass",
			says: "depend on the claim's namespace", refused: true},
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
			claim = bed.CreateClaim(t, selecting(claim, node))

			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", row.reason), row.says)
			if row.refused {
				eventually(t, func() bool {
					return claimOf(t, bed.Home, namespace, "data").Annotations[keys.SelectedNode] == ""
				}, func() string { return "the scheduler cannot choose again" })
			}
			consistently(t, func() bool {
				return claimOf(t, bed.Home, fabric.Storage, twinOf(claim)) == nil && claimOf(t, bed.West, namespace, "data") == nil &&
					volumeOf(t, bed.Home, twinOf(claim)) == nil
			}, "something was made")
			assert.Len(t, warnings(t, namespace), 1, "one clear event: %v", warnings(t, namespace))
		})
	}
}

func TestInvalidClassIsTakenUpOnceItIsMended(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	class := newClass(t, with(keys.LocalClass, "later-"+namespace))
	claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", class))
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "data")))
	await.Event(t, bed.Home.Client(), namespace, "data", "NoRealClass")

	makeClass(t, bed.Home, bed.HomeStorage.Class("later-"+namespace, storagev1.VolumeBindingWaitForFirstConsumer))
	bed.AwaitRunning(t, namespace, "db")
	awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))
}

// TestNodeThatGoesAwayIsReplaced deletes the selected node while the twin waits
// for its volume there.
func TestNodeThatGoesAwayIsReplaced(t *testing.T) {
	namespace := beside(t)
	node := "gone-" + namespace
	// The taint keeps pods of other tests, which run at the same time, off a node that goes away.
	require.NoError(t, bed.HomeNodes.AddNodes(t.Context(), fakekubelet.Node{
		Name: node, Labels: map[string]string{"disk": "spare"}, Drivers: map[string]int32{"disk.home.test": 0},
		Taints: []corev1.Taint{{Key: "spare", Effect: corev1.TaintEffectNoSchedule}},
	}))
	claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.HomeStorage.SetClaim(fabric.Storage, twinOf(claim), never)
	pod := fabric.Prefer(fabric.AtHome(fabric.NewPod(namespace, "db", "data")), node)
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "spare", Operator: corev1.TolerationOpExists})
	bed.CreatePod(t, pod)
	eventually(t, func() bool {
		twin := claimOf(t, bed.Home, fabric.Storage, twinOf(claim))
		return twin != nil && twin.Annotations[keys.SelectedNode] == node
	}, func() string { return "there is no twin for the node" })

	require.NoError(t, bed.HomeNodes.RemoveNode(t.Context(), node))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NodeGone"), node)
	bed.HomeStorage.ResetClaim(fabric.Storage, twinOf(claim))
	assert.NotEqual(t, node, bed.AwaitRunning(t, namespace, "db"))
	twin, _ := awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))
	assert.NotEqual(t, node, twin.Annotations[keys.SelectedNode])
	for _, warning := range warnings(t, namespace) {
		assert.NotContains(t, warning, "ProvisioningFailed", "the library must not be the one that handles it")
	}
}

// refuse makes a cluster refuse to create some objects, chosen by a condition in
// CEL, until the returned function is called or the test ends. probe says whether
// it is in force yet.
func refuse(t *testing.T, cluster *testbed.Cluster, name, resourceName, condition string, probe func(context.Context) error) (undo func()) {
	t.Helper()
	api := cluster.Client().AdmissionregistrationV1()
	must.Create(t, api.ValidatingAdmissionPolicies(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resourceName}},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "chosen", Expression: condition}},
			Validations:     []admissionv1.Validation{{Expression: "false", Message: "the owner of this cluster says no"}},
		},
	})
	must.Create(t, api.ValidatingAdmissionPolicyBindings(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	})
	undo = func() {
		_ = api.ValidatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = api.ValidatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{})
	}
	t.Cleanup(undo)
	eventually(t, func() bool { return probe(t.Context()) != nil }, func() string { return "the policy is not in force" })
	return undo
}

// refuseClaims makes west refuse all claims in a namespace.
func refuseClaims(t *testing.T, namespace string) {
	t.Helper()
	refuse(t, bed.West, namespace, "persistentvolumeclaims", "object.metadata.namespace == '"+namespace+"'", func(ctx context.Context) error {
		_, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Create(ctx, fabric.NewClaim(namespace, "probe", fabric.WestNow),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// limitClaims makes west allow only so many claims in a namespace.
func limitClaims(t *testing.T, namespace, most string) {
	t.Helper()
	quotas := bed.West.Client().CoreV1().ResourceQuotas(namespace)
	must.Create(t, quotas, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "claims"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse(most)}},
	})
	eventually(t, func() bool {
		quota := must.Get(t, quotas, "claims")
		return len(quota.Status.Used) > 0
	}, func() string { return "the quota is not in force" })
}

func offload(t *testing.T, namespace string) {
	t.Helper()
	must.Kubectl(t, bed.Home, "", "label", "namespace", namespace, "lodestone.dev/offload=enabled")
}

// ofClass is the name of the quota of what claims of a class ask for together.
func ofClass(class string) corev1.ResourceName {
	return corev1.ResourceName(class + ".storageclass.storage.k8s.io/requests.storage")
}

// limitTo makes a quota in a namespace, named storage-limit, and waits until it is
// counted.
func limitTo(t *testing.T, cluster *testbed.Cluster, namespace string, hard corev1.ResourceList) {
	t.Helper()
	quotas := cluster.Client().CoreV1().ResourceQuotas(namespace)
	name := "storage-limit"
	if namespace == fabric.Storage {
		name += "-" + rand.String(6)
		t.Cleanup(func() { _ = quotas.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	must.Create(t, quotas, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}})
	eventually(t, func() bool {
		have, err := quotas.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && len(have.Status.Used) == len(hard)
	}, func() string { return "the quota is not counted" })
}

// bounds makes a LimitRange for claims in a namespace of west. It is in force once
// a claim that breaks it is refused.
func bounds(t *testing.T, namespace string, item corev1.LimitRangeItem) {
	t.Helper()
	item.Type = corev1.LimitTypePersistentVolumeClaim
	must.Create(t, bed.West.Client().CoreV1().LimitRanges(namespace), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "sizes"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}},
	})
	eventually(t, func() bool {
		_, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(),
			fabric.NewClaim(namespace, "probe", fabric.WestNow), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	}, func() string { return "the limits are not in force" })
}

func size(quantity string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(quantity)}
}

// Whichever way its real class binds, a shadow is refused when it is made.
func TestClaimGoesHomeWhereQuotasAndLimitsOfTheRemoteNamespaceDoNotAllowIt(t *testing.T) {
	t.Parallel()
	for _, class := range []string{fabric.WestNow, fabric.WestWait} {
		for name, test := range map[string]struct {
			limit  func(t *testing.T, namespace string)
			reason string
			says   []string
		}{
			"a quota of what claims ask for together": {
				limit: func(t *testing.T, namespace string) {
					t.Helper()
					limitTo(t, bed.West, namespace, corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("512Mi")})
				}, reason: "QuotaExceeded", says: []string{"storage-limit", "requests.storage=512Mi"}},
			"a quota of the real class": {
				limit: func(t *testing.T, namespace string) {
					t.Helper()
					limitTo(t, bed.West, namespace, corev1.ResourceList{ofClass(class): resource.MustParse("512Mi")})
				}, reason: "QuotaExceeded", says: []string{"storage-limit", class}},
			"a LimitRange with a maximum": {
				limit: func(t *testing.T, namespace string) {
					t.Helper()
					bounds(t, namespace, corev1.LimitRangeItem{Max: size("512Mi")})
				}, reason: "OutsideLimits", says: []string{"maximum storage usage per PersistentVolumeClaim is 512Mi, but request is 1Gi",
					"LimitRange"}},
			"a LimitRange with a minimum": {
				limit: func(t *testing.T, namespace string) {
					t.Helper()
					bounds(t, namespace, corev1.LimitRangeItem{Min: size("2Gi")})
				}, reason: "OutsideLimits", says: []string{"minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"}},
		} {
			t.Run(name+", "+class, func(t *testing.T) {
				namespace := beside(t)
				test.limit(t, namespace)
				virtual := newClass(t, with(keys.RemoteClass, class))
				awaitCapacity(t, virtual, fabric.WestNode)
				claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", virtual))
				bed.CreatePod(t, preferWest(fabric.NewPod(namespace, "db", "data")))
				told := await.Event(t, bed.Home.Client(), namespace, "data", test.reason)
				for _, says := range test.says {
					assert.Contains(t, told, says)
				}
				assert.NotEqual(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
				awaitBound(t, bed.Home, fabric.Storage, twinOf(claim))
				assert.Nil(t, claimOf(t, bed.West, namespace, "data"))
			})
		}
	}
}

func TestClaimGoesThereOnceTheQuotaOfTheRemoteNamespaceIsRaised(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	limitTo(t, bed.West, namespace, corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("512Mi")})
	bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "QuotaExceeded"), "storage-limit")
	must.Kubectl(t, bed.West, "", "patch", "resourcequota", "-n", namespace, "storage-limit", "-p",
		`{"spec":{"hard":{"requests.storage":"1Gi"}}}`)
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
	awaitBound(t, bed.West, namespace, "data")
}

func TestClaimGoesElsewhereWhenTheQuotaOfTheStorageNamespaceLeavesNoRoom(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	real := makeClass(t, bed.Home, bed.HomeStorage.Class("limited-"+namespace, storagev1.VolumeBindingWaitForFirstConsumer))
	limitTo(t, bed.Home, fabric.Storage, corev1.ResourceList{ofClass(real): resource.MustParse("1Gi")})
	class := newClass(t, with(keys.LocalClass, real))
	bed.CreateClaim(t, fabric.NewClaim(namespace, "first", class))
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "one", "first")))
	bed.AwaitRunning(t, namespace, "one")
	bed.CreateClaim(t, fabric.NewClaim(namespace, "data", class))
	bed.CreatePod(t, fabric.Prefer(fabric.NewPod(namespace, "db", "data"), "home-1"))
	told := await.Event(t, bed.Home.Client(), namespace, "data", "QuotaExceeded")
	assert.Contains(t, told, "storage-limit")
	assert.Contains(t, told, fabric.Storage)
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
	awaitBound(t, bed.West, namespace, "data")
}

// A virtual claim counts once, in the namespace of its user, as one of the virtual
// class; its twin counts elsewhere, as one of the real class.
func TestVirtualClaimsCountInTheQuotasOfTheirNamespace(t *testing.T) {
	namespace := beside(t)
	class := newClass(t)
	hard := corev1.ResourceList{
		ofClass(class): resource.MustParse("3Gi"), ofClass(fabric.HomeWait): resource.MustParse("0"),
		corev1.ResourceRequestsStorage:        resource.MustParse("3Gi"),
		corev1.ResourcePersistentVolumeClaims: resource.MustParse("2"),
	}
	limitTo(t, bed.Home, namespace, hard)
	bed.CreateClaim(t, sized(fabric.NewClaim(namespace, "home", class), "2Gi"))
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "one", "home")))
	bed.CreateClaim(t, fabric.NewClaim(namespace, "west", class))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "two", "west")))
	bed.AwaitRunning(t, namespace, "one")
	bed.AwaitRunning(t, namespace, "two")
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), fabric.NewClaim(namespace, "more", class),
		metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.ErrorContains(t, err, "storage-limit")
	quota := must.Get(t, bed.Home.Client().CoreV1().ResourceQuotas(namespace), "storage-limit")
	for name, want := range map[corev1.ResourceName]string{
		ofClass(class): "3Gi", ofClass(fabric.HomeWait): "0", corev1.ResourceRequestsStorage: "3Gi", corev1.ResourcePersistentVolumeClaims: "2"} {
		used := quota.Status.Used[name]
		assert.Zero(t, used.Cmp(resource.MustParse(want)), "%s: used %s", name, used.String())
	}
}
