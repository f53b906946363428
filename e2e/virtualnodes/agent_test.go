package virtualnodes

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
)

// tenancy plays the remote agent in a cluster: it makes the HomeCluster, home's
// identity and its rights, and says Ready. It returns home's kubeconfig. So the
// tests decide what an agent says, and when.
func tenancy(ctx context.Context, cluster *testbed.Cluster, home string) ([]byte, error) {
	agents, err := remoteapi.NewClient(cluster.AdminConfig())
	if err != nil {
		return nil, err
	}
	created, err := agents.HomeClusters().Create(ctx, &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: home}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make HomeCluster: %w", err)
	}
	tenant := keys.TenantPrefix + home
	if err := cluster.MakeNamespace(ctx, tenant); err != nil {
		return nil, err
	}
	client := cluster.Client()
	_, err = client.CoreV1().ServiceAccounts(tenant).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: keys.HomeAccount}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make home's account: %w", err)
	}
	_, err = client.CoordinationV1().Leases(tenant).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: keys.HeartbeatLease}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make the heartbeat: %w", err)
	}
	self := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: tenant}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{remotev1alpha1.GroupVersion.Group}, Resources: []string{"homeclusters"}, ResourceNames: []string{home}, Verbs: []string{"get", "list", "watch"}}}}
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
	if err := say(ctx, agents, created.Name, func(status *remotev1alpha1.HomeClusterStatus) { ready(status, metav1.ConditionTrue, "Ready", "") }); err != nil {
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

// say changes what the agent of a cluster says of home.
func say(ctx context.Context, agents *remoteapi.Client, home string, change func(*remotev1alpha1.HomeClusterStatus)) error {
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
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("100")}
	status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("12"), corev1.ResourceMemory: resource.MustParse("48Gi"), corev1.ResourcePods: resource.MustParse("90")}
	status.Nodes = remotev1alpha1.NodeSummary{Count: 2, OperatingSystem: "linux", Architecture: "amd64",
		Topology: map[string]string{corev1.LabelTopologyRegion: "west-region"}}
}
