package virtualnodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/app"
)

func TestTheNodeStandsForItsCluster(t *testing.T) {
	testbed.Require(t)
	node := nodeNow(t, fabric.WestNode)
	assert.Equal(t, "west", node.Labels[keys.Cluster])
	assert.Equal(t, "virtual-kubelet", node.Labels["type"])
	assert.Equal(t, "true", node.Labels[corev1.LabelNodeExcludeBalancers])
	assert.Equal(t, "linux", node.Labels[corev1.LabelOSStable])
	assert.Contains(t, node.Spec.Taints, corev1.Taint{Key: keys.RemoteTaint, Value: "west", Effect: corev1.TaintEffectNoSchedule})
	assert.Positive(t, node.Status.Allocatable.Cpu().Value())
	assert.Positive(t, node.Status.Allocatable.Pods().Value())
	assert.Equal(t, []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}, node.Status.Addresses)
	assert.Positive(t, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
}

func TestANodeThatSomebodyDeletesIsMadeAgain(t *testing.T) {
	testbed.Require(t)
	before := nodeNow(t, fabric.WestNode)
	must.Delete(t, bed.Home.Client().CoreV1().Nodes(), fabric.WestNode)
	await.Until(t, "there is another node", func() bool {
		return exists(t, fabric.WestNode) && nodeNow(t, fabric.WestNode).UID != before.UID
	}, func() any { return "no other node" })
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	assert.Equal(t, before.Status.DaemonEndpoints, nodeNow(t, fabric.WestNode).Status.DaemonEndpoints)
	advances(t, bed.Home, corev1.NamespaceNodeLease, fabric.WestNode)
}

func TestWhatUsersWriteOnANodeStays(t *testing.T) {
	testbed.Require(t)
	for _, args := range [][]string{
		{"label", "node", fabric.WestNode, "team=data", "--overwrite"}, {"cordon", fabric.WestNode},
		{"taint", "node", fabric.WestNode, "gpu=yes:NoSchedule", "--overwrite"},
		{"annotate", "node", fabric.WestNode, "note=mine", "--overwrite"},
		{"taint", "node", fabric.WestNode, keys.RemoteTaint + "-"}, {"label", "node", fabric.WestNode, keys.Cluster + "-"},
	} {
		must.Kubectl(t, bed.Home, "", args...)
	}
	t.Cleanup(func() {
		for _, args := range [][]string{{"uncordon", fabric.WestNode}, {"taint", "node", fabric.WestNode, "gpu-"},
			{"label", "node", fabric.WestNode, "team-"}} {
			must.Kubectl(t, bed.Home, "", args...)
		}
	})
	restart(t)
	offer(t, "9")
	offer(t, "12")
	await.Until(t, "what is ours is there again", func() bool {
		node := nodeNow(t, fabric.WestNode)
		return node.Labels[keys.Cluster] == "west" &&
			slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == keys.RemoteTaint })
	}, func() any { return nodeNow(t, fabric.WestNode) })
	node := nodeNow(t, fabric.WestNode)
	assert.Equal(t, "data", node.Labels["team"])
	assert.Equal(t, "mine", node.Annotations["note"])
	assert.True(t, node.Spec.Unschedulable)
	assert.True(t, slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "gpu" }))
}

func TestAnotherReplicaTakesOver(t *testing.T) {
	testbed.Require(t)
	fast := func(config *app.Config) { config.LeaseDuration = 3 * time.Second }
	second, err := bed.StartVirtualNode(t.Context(), withoutPods, fast)
	require.NoError(t, err)
	before := nodeNow(t, fabric.WestNode).Status.DaemonEndpoints.KubeletEndpoint.Port
	require.NoError(t, program.Stop())
	await.Until(t, "the node's API is served by the second", func() bool {
		port := nodeNow(t, fabric.WestNode).Status.DaemonEndpoints.KubeletEndpoint.Port
		return port != 0 && port != before
	}, func() any { return nodeNow(t, fabric.WestNode).Status })
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	advances(t, bed.Home, corev1.NamespaceNodeLease, fabric.WestNode)
	program, err = bed.StartVirtualNode(context.Background(), withoutPods)
	require.NoError(t, err)
	require.NoError(t, second.Stop())
	offer(t, "8")
	offer(t, "12")
}

func TestANodeOfThatNameThatIsNotOursIsLeftAlone(t *testing.T) {
	testbed.Require(t)
	theirs := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{keys.Cluster: "theirs"}}}
	nodes := bed.Home.Client().CoreV1().Nodes()
	must.Create(t, nodes, theirs)
	t.Cleanup(func() {
		must.Delete(t, nodes, "theirs")
	})
	registered(t, "theirs", eastKubeconfig)
	assert.Contains(t, said(t, "theirs", metav1.ConditionFalse, "NameTaken"), "a node named theirs that is not Lodestone's")
	assert.Empty(t, nodeNow(t, "theirs").Spec.ProviderID)
	unregister(t, "theirs")
	assert.True(t, exists(t, "theirs"))
}

func TestARemoteClusterThatIsDeletedIsDrainedFirst(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	registered(t, "second", eastKubeconfig)
	require.NoError(t, bed.AwaitNode(t.Context(), "second", corev1.ConditionTrue))
	bound(t, namespace, "db", "second", keys.RemotePodFinalizer)

	must.Delete(t, bed.Remotes, "second")
	assert.Contains(t, said(t, "second", metav1.ConditionFalse, "Leaving"), "node second is being emptied, pods left: 1")
	assert.True(t, nodeNow(t, "second").Spec.Unschedulable)
	await.Until(t, "the pod is asked to end", func() bool { return podNow(t, namespace, "db").DeletionTimestamp != nil },
		func() any { return podNow(t, namespace, "db") })
	restart(t)
	time.Sleep(2 * time.Second)
	assert.True(t, exists(t, "second"), "its pod may still run")

	release(t, namespace, "db")
	await.Until(t, "node and RemoteCluster are gone", func() bool {
		_, err := bed.Remotes.Get(t.Context(), "second", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && !exists(t, "second")
	}, func() any { return condition(t, "second") })
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
}

func TestAVirtualNodeThatIsNotWantedGoesAndComesBack(t *testing.T) {
	testbed.Require(t)
	registered(t, "optional", eastKubeconfig)
	require.NoError(t, bed.AwaitNode(t.Context(), "optional", corev1.ConditionTrue))
	want := func(mode v1alpha1.VirtualNodeMode) {
		must.Patch(t, bed.Remotes, "optional", types.MergePatchType, []byte(`{"spec":{"virtualNode":"`+string(mode)+`"}}`))
	}
	want(v1alpha1.VirtualNodeDisabled)
	said(t, "optional", metav1.ConditionFalse, "Disabled")
	assert.False(t, exists(t, "optional"))
	want(v1alpha1.VirtualNodeEnabled)
	require.NoError(t, bed.AwaitNode(t.Context(), "optional", corev1.ConditionTrue))
	assert.False(t, nodeNow(t, "optional").Spec.Unschedulable)
}

func TestOneClusterGetsOneNodeAndHomeNone(t *testing.T) {
	testbed.Require(t)
	registered(t, "again", kubeconfigOf(t, "west"))
	assert.Contains(t, said(t, "again", metav1.ConditionFalse, "Duplicate"), `RemoteCluster "west" already stands for this cluster`)
	assert.False(t, exists(t, "again"))

	kubeconfig, err := bed.Home.ServiceAccountKubeconfig(t.Context(), fabric.System, "lodestone-provisioner")
	require.NoError(t, err)
	registered(t, "mirror", kubeconfig)
	assert.Contains(t, said(t, "mirror", metav1.ConditionFalse, "PointsHome"), "leads to the home cluster itself")
	assert.False(t, exists(t, "mirror"))
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
}

// tenancy plays the remote agent in a cluster: it makes the HomeCluster, home's
// identity and its rights, and says Ready. It returns home's kubeconfig. So the
// tests decide what an agent says, and when.
func tenancy(ctx context.Context, cluster *testbed.Cluster, home string) ([]byte, error) {
	agents, err := clients.NewRemoteClient(cluster.AdminConfig())
	if err != nil {
		return nil, err
	}
	created, err := agents.HomeClusters().Create(ctx, &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: home}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make HomeCluster: %w", err)
	}
	tenant := keys.TenantPrefix + home
	if err := cluster.MakeNamespace(ctx, tenant); err != nil {
		return nil, err
	}
	client := cluster.Client()
	_, err = client.CoreV1().ServiceAccounts(tenant).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: keys.HomeAccount}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make home's account: %w", err)
	}
	_, err = client.CoordinationV1().Leases(tenant).Create(ctx,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: keys.HeartbeatLease}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make the heartbeat: %w", err)
	}
	self := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: tenant}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{remotev1alpha1.GroupVersion.Group}, Resources: []string{"homeclusters"}, ResourceNames: []string{home},
		Verbs: []string{"get", "list", "watch"}}}}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, self, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make home's role: %w", err)
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: keys.HomeAccount}}
	for _, role := range []string{tenant, "lodestone-home-reader"} {
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: tenant + "-" + role}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("bind role %s: %w", role, err)
		}
	}
	if err := bind(ctx, cluster, home, tenant, "lodestone-home-tenant"); err != nil {
		return nil, err
	}
	if err := say(ctx, agents, created.Name, func(status *remotev1alpha1.HomeClusterStatus) {
		ready(status, metav1.ConditionTrue, "Ready", "")
	}); err != nil {
		return nil, err
	}
	return cluster.ServiceAccountKubeconfig(ctx, tenant, keys.HomeAccount)
}

// bind gives home's identity a role in one namespace.
func bind(ctx context.Context, cluster *testbed.Cluster, home, namespace, role string) error {
	_, err := cluster.Client().RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: keys.TenantPrefix + home, Name: keys.HomeAccount}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind role %s in %s: %w", role, namespace, err)
	}
	return nil
}

func say(ctx context.Context, agents *clients.RemoteClient, home string, change func(*remotev1alpha1.HomeClusterStatus)) error {
	object, err := agents.HomeClusters().Get(ctx, home, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get HomeCluster: %w", err)
	}
	change(&object.Status)
	if _, err := agents.HomeClusters().UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write HomeCluster: %w", err)
	}
	return nil
}

// ready sets the condition Ready and an offer.
func ready(status *remotev1alpha1.HomeClusterStatus, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: remotev1alpha1.Ready, Status: value, Reason: reason, Message: message})
	status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("100")}
	status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("12"), corev1.ResourceMemory: resource.MustParse("48Gi"),
		corev1.ResourcePods: resource.MustParse("90")}
	status.Nodes = remotev1alpha1.NodeSummary{Count: 2, OperatingSystem: "linux", Architecture: "amd64",
		Topology: map[string]string{corev1.LabelTopologyRegion: "west-region"}}
}

var (
	remote      = corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	notReady    = corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	unreachable = corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
)

func within(toleration corev1.Toleration, seconds int64) corev1.Toleration {
	toleration.TolerationSeconds = &seconds
	return toleration
}

func TestTolerationsThatPodsAreGiven(t *testing.T) {
	open, closed := testbed.Namespace(t, bed.Home), testbed.Namespace(t, bed.Home)
	must.Kubectl(t, bed.Home, "", "label", "namespace", open, keys.Offload+"="+keys.OffloadEnabled)
	// A policy takes hold a moment after it is written, and a label after it is set.
	await.Until(t, "the policy is in force", func() bool {
		return len(admitted(t, open, fabric.NewPod(open, "first")).Spec.Tolerations) == 3
	}, func() any { return admitted(t, open, fabric.NewPod(open, "first")).Spec.Tolerations })

	own := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpEqual, Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	for name, test := range map[string]struct {
		namespace string
		claims    []string
		change    func(*corev1.Pod)
		want      []corev1.Toleration
	}{
		"a pod": {namespace: open, want: []corev1.Toleration{within(notReady, 300), within(unreachable, 300), remote}},
		"a pod of another namespace": {namespace: closed, claims: []string{"data"},
			want: []corev1.Toleration{within(notReady, 300), within(unreachable, 300)}},
		"a pod with a claim": {namespace: open, claims: []string{"data"}, want: []corev1.Toleration{notReady, unreachable, remote}},
		"a pod with an ephemeral claim": {namespace: open, change: func(pod *corev1.Pod) {
			claim := fabric.NewClaim(open, "scratch", fabric.Class)
			pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim.Spec}}}}}
		}, want: []corev1.Toleration{notReady, unreachable, remote}},
		"tolerations of its own stay": {namespace: open, claims: []string{"data"}, change: func(pod *corev1.Pod) {
			pod.Spec.Tolerations = []corev1.Toleration{own, within(notReady, 20)}
		}, want: []corev1.Toleration{own, within(notReady, 20), unreachable, remote}},
		"one that has the toleration": {namespace: open, change: func(pod *corev1.Pod) {
			pod.Spec.Tolerations = []corev1.Toleration{remote}
		}, want: []corev1.Toleration{remote, within(notReady, 300), within(unreachable, 300)}},
		"one that tolerates everything": {namespace: open, change: func(pod *corev1.Pod) {
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, want: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
		"one that tolerates one cluster": {namespace: open, change: func(pod *corev1.Pod) {
			pod.Spec.Tolerations = []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpEqual, Value: "east",
				Effect: corev1.TaintEffectNoSchedule}}
		},
			want: []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpEqual, Value: "east",
				Effect: corev1.TaintEffectNoSchedule},
				within(notReady, 300), within(unreachable, 300), remote}},
		"a pod of a DaemonSet": {namespace: open, claims: []string{"data"}, change: func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agents", UID: "1",
				Controller: ptr.To(true)}}
		}, want: []corev1.Toleration{within(notReady, 300), within(unreachable, 300)}},
		"a pod that is bound already": {namespace: open, change: func(pod *corev1.Pod) { pod.Spec.NodeName = "home-1" },
			want: []corev1.Toleration{within(notReady, 300), within(unreachable, 300)}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := fabric.NewPod(test.namespace, "pod", test.claims...)
			if test.change != nil {
				test.change(pod)
			}
			assert.ElementsMatch(t, test.want, admitted(t, test.namespace, pod).Spec.Tolerations)
		})
	}
}

// admitted returns a pod as the API server would store it.
func admitted(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	result, err := bed.Home.Client().CoreV1().Pods(namespace).Create(context.Background(), pod,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	return result
}

func TestTheProgramHasTheRightsThatItNeedsAndNoOthers(t *testing.T) {
	testbed.Require(t)
	for _, test := range []struct {
		allowed bool
		rights  []string // verb, group/resource[/subresource], namespace, name
	}{
		{allowed: true, rights: []string{
			"create /nodes", "patch /nodes/status", "delete /nodes", "patch /pods default", "patch /pods/status default",
			"create /pods/eviction default",
			"delete /pods default", "watch /secrets", "watch /configmaps", "watch discovery.k8s.io/endpointslices",
			"create /serviceaccounts/token default",
			"update coordination.k8s.io/leases kube-node-lease west", "update coordination.k8s.io/leases lodestone-system lodestone-virtualnode",
			"create certificates.k8s.io/certificatesigningrequests", "create authentication.k8s.io/tokenreviews",
			"create authorization.k8s.io/subjectaccessreviews",
			"patch lodestone.dev/remoteclusters", "update lodestone.dev/remoteclusters/status",
			"get /persistentvolumeclaims default", "get /persistentvolumes",
		}},
		{rights: []string{
			"create /pods default", "update /pods default", "create /pods/exec default", "create /pods/binding default", "get /nodes/proxy",
			"update /nodes",
			"create /secrets default", "patch /secrets lodestone-system", "delete /secrets default", "patch /configmaps kube-system",
			"patch /services default",
			"update coordination.k8s.io/leases lodestone-system lodestone-provisioner", "delete coordination.k8s.io/leases kube-node-lease",
			"update certificates.k8s.io/certificatesigningrequests/approval", "approve certificates.k8s.io/signers",
			"create lodestone.dev/remoteclusters", "delete lodestone.dev/remoteclusters", "patch /namespaces",
			"delete /persistentvolumeclaims default",
			"patch /persistentvolumes", "list /persistentvolumes", "list /persistentvolumeclaims default", "impersonate /users",
			"bind rbac.authorization.k8s.io/clusterroles",
		}},
	} {
		for _, right := range test.rights {
			assert.Equal(t, test.allowed, may(t, right), right)
		}
	}
}

func may(t *testing.T, right string) bool {
	t.Helper()
	words := append(strings.Fields(right), "", "")
	group, rest, _ := strings.Cut(words[1], "/")
	resource, subresource, _ := strings.Cut(rest, "/")
	review := must.Create(t, bed.Home.Client().AuthorizationV1().SubjectAccessReviews(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + fabric.System + ":lodestone-virtualnode",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + fabric.System, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: words[0], Group: group, Resource: resource, Subresource: subresource, Namespace: words[2], Name: words[3]},
		}})
	return review.Status.Allowed
}
