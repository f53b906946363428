package namespaces

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/keep"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// lookAgain is how soon a namespace that is being deleted is looked at again:
// claims are not watched here.
const lookAgain = 2 * time.Second

// giveRights binds home's role in a namespace. The binding has a finalizer: who
// deletes the namespace deletes the binding too, and without its rights home
// could never let its claims there go, which hold the namespace.
func (c *Controller) giveRights(ctx context.Context, id, namespace string, subject rbacv1.Subject) error {
	have, err := c.binding(ctx, id, namespace)
	if err != nil {
		return err
	}
	bindings := c.Client.RbacV1().RoleBindings(namespace)
	if have != nil && (have.DeletionTimestamp != nil || have.RoleRef.Name != policy.NamespacesRole) {
		if err := keep.LetGo(ctx, bindings, have); err != nil {
			return err
		}
	}
	if err := keep.RoleBinding(ctx, bindings, policy.NamespacesRole, policy.NamespacesRole, policy.Mark(id), subject); err != nil {
		return err
	}
	if have, err = c.binding(ctx, id, namespace); err != nil || have == nil {
		return err
	}
	return keep.Hold(ctx, bindings, have)
}

// takeRights takes a home cluster's rights in a namespace back.
func (c *Controller) takeRights(ctx context.Context, id, namespace string) error {
	have, err := c.binding(ctx, id, namespace)
	if err != nil || have == nil {
		return err
	}
	bindings := c.Client.RbacV1().RoleBindings(namespace)
	if err := keep.LetGo(ctx, bindings, have); err != nil {
		return err
	}
	return keep.Gone(ctx, bindings, policy.NamespacesRole, id)
}

// letGo lets home's rights in a namespace that is being deleted go with it once
// no claims are left, and says when to look again.
func (c *Controller) letGo(ctx context.Context, id, namespace string) (time.Duration, error) {
	have, err := c.binding(ctx, id, namespace)
	if err != nil || have == nil {
		return 0, err
	}
	claims, err := c.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("list claims of namespace %s: %w", namespace, err)
	}
	if len(claims.Items) > 0 || have.DeletionTimestamp == nil {
		return lookAgain, nil
	}
	return 0, keep.LetGo(ctx, c.Client.RbacV1().RoleBindings(namespace), have)
}

// binding returns the binding of a home cluster's role in a namespace, nil if there
// is none.
func (c *Controller) binding(ctx context.Context, id, namespace string) (*rbacv1.RoleBinding, error) {
	have, err := c.Client.RbacV1().RoleBindings(namespace).Get(ctx, policy.NamespacesRole, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get role binding %s/%s: %w", namespace, policy.NamespacesRole, err)
	}
	if have.Labels[keys.HomeID] != id {
		return nil, nil
	}
	return have, nil
}
