package tenancy

import (
	"context"
	"fmt"
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/keep"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// provide makes what a home cluster needs to ask for more. A refusal says why it
// gets nothing.
func (c *Controller) provide(ctx context.Context, home *remotev1alpha1.HomeCluster) (*policy.Refusal, error) {
	subject, refusal := policy.Identity(home)
	if refusal != nil {
		return refusal, c.revoke(ctx, home.Name)
	}
	refusal, err := c.ensureNamespace(ctx, home)
	if err != nil || refusal != nil {
		return refusal, err
	}
	if err := c.ensureIdentity(ctx, home); err != nil {
		return nil, err
	}
	mark, tenant := policy.Mark(home.Name), policy.Tenant(home.Name)
	// The Lease is made here, so that home needs no right to make one.
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: keys.HeartbeatLease, Labels: mark}}
	if err := keep.Object(ctx, c.Client.CoordinationV1().Leases(tenant), lease, nil); err != nil {
		return nil, err
	}
	rbac := c.Client.RbacV1()
	if err := keep.RoleBinding(ctx, rbac.RoleBindings(tenant), policy.TenantRole, policy.TenantRole, mark, subject); err != nil {
		return nil, err
	}
	own := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: policy.OwnRole(home.Name), Labels: mark},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{remotev1alpha1.GroupVersion.Group}, Resources: []string{"homeclusters"},
			ResourceNames: []string{home.Name}, Verbs: []string{"get", "list", "watch"},
		}},
	}
	err = keep.Object(ctx, rbac.ClusterRoles(), own, func(have *rbacv1.ClusterRole) bool {
		changed := keep.Labels(have, mark, nil)
		if !reflect.DeepEqual(have.Rules, own.Rules) || have.AggregationRule != nil {
			have.Rules, have.AggregationRule, changed = own.Rules, nil, true
		}
		return changed
	})
	if err != nil {
		return nil, err
	}
	if err := keep.ClusterRoleBinding(ctx, rbac.ClusterRoleBindings(), own.Name, own.Name, mark, subject); err != nil {
		return nil, err
	}
	return nil, keep.ClusterRoleBinding(ctx, rbac.ClusterRoleBindings(), policy.ReaderBinding(home.Name), policy.ReaderRole, mark, subject)
}

func (c *Controller) ensureNamespace(ctx context.Context, home *remotev1alpha1.HomeCluster) (*policy.Refusal, error) {
	var refusal *policy.Refusal
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: policy.Tenant(home.Name), Labels: policy.TenantMark(home), Annotations: policy.TenantNotes(home),
	}}
	err := keep.Object(ctx, c.Client.CoreV1().Namespaces(), want, func(have *corev1.Namespace) bool {
		if refusal = policy.OwnTenant(have, home); refusal != nil {
			return false
		}
		return keep.Labels(have, want.Labels, want.Annotations)
	})
	return refusal, err
}

// ensureIdentity makes the ServiceAccount, or deletes it if the home cluster has
// another identity, which makes its tokens invalid.
func (c *Controller) ensureIdentity(ctx context.Context, home *remotev1alpha1.HomeCluster) error {
	accounts := c.Client.CoreV1().ServiceAccounts(policy.Tenant(home.Name))
	if home.Spec.User != "" {
		return keep.Gone(ctx, accounts, keys.HomeAccount, home.Name)
	}
	want := &corev1.ServiceAccount{
		ObjectMeta:                   metav1.ObjectMeta{Name: keys.HomeAccount, Labels: policy.Mark(home.Name)},
		AutomountServiceAccountToken: ptr.To(false),
	}
	return keep.Object(ctx, accounts, want, func(have *corev1.ServiceAccount) bool {
		return keep.Labels(have, want.Labels, nil)
	})
}

// revoke takes back all rights of a home cluster, and its identity.
func (c *Controller) revoke(ctx context.Context, id string) error {
	rbac := c.Client.RbacV1()
	bindings, err := rbac.RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID + "=" + id})
	if err != nil {
		return fmt.Errorf("list role bindings of home cluster %s: %w", id, err)
	}
	for _, b := range bindings.Items {
		if err := keep.LetGo(ctx, rbac.RoleBindings(b.Namespace), &b); err != nil {
			return err
		}
		err := rbac.RoleBindings(b.Namespace).Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &b.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete role binding %s/%s: %w", b.Namespace, b.Name, err)
		}
	}
	for _, name := range []string{policy.OwnRole(id), policy.ReaderBinding(id)} {
		if err := keep.Gone(ctx, rbac.ClusterRoleBindings(), name, id); err != nil {
			return err
		}
	}
	if err := keep.Gone(ctx, rbac.ClusterRoles(), policy.OwnRole(id), id); err != nil {
		return err
	}
	return keep.Gone(ctx, c.Client.CoreV1().ServiceAccounts(policy.Tenant(id)), keys.HomeAccount, id)
}
