package namespaces

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/apply"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// reasonPreparing: pods cannot be made in the namespace yet.
const reasonPreparing = "Preparing"

// provide creates a namespace and the objects that it needs, and sets in the status of the request,
// without writing it, which home namespace it is for. A refusal says why not.
func (c *Controller) provide(ctx context.Context, home *remotev1alpha1.HomeCluster,
	request *remotev1alpha1.NamespaceRequest) (*policy.Refusal, error) {
	subject, refusal := policy.Identity(home)
	if refusal != nil {
		return refusal, c.revokeRights(ctx, home.Name, request.Name)
	}
	refusal, err := c.ensureNamespace(ctx, home, request)
	if err != nil || refusal != nil && refusal.Reason != remotev1alpha1.ReasonAnotherNamespace {
		return refusal, err
	}
	// The quota and the limits are set before home gets rights.
	if err := c.ensureBounds(ctx, home, request.Name); err != nil {
		return nil, err
	}
	if refusal, err := c.grantRights(ctx, home.Name, request.Name, subject); refusal != nil || err != nil {
		return refusal, err
	}
	if refusal != nil {
		// Home has the rights to delete what it has there.
		return c.makeAnew(ctx, request, refusal)
	}
	// Without this ServiceAccount no pod is admitted.
	_, err = c.Client.CoreV1().ServiceAccounts(request.Name).Get(ctx, "default", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &policy.Refusal{Reason: reasonPreparing, Message: "The namespace was made; its default service account is not there yet."}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get default service account of namespace %s: %w", request.Name, err)
	}
	return nil, nil
}

func (c *Controller) ensureNamespace(ctx context.Context, home *remotev1alpha1.HomeCluster,
	request *remotev1alpha1.NamespaceRequest) (*policy.Refusal, error) {
	namespaces := c.Client.CoreV1().Namespaces()
	existing, err := namespaces.Get(ctx, request.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		existing = nil
	} else if err != nil {
		return nil, fmt.Errorf("get namespace %s: %w", request.Name, err)
	}
	count := 0
	if existing == nil {
		if count, err = c.count(ctx, home); err != nil {
			return nil, err
		}
	}
	if refusal := policy.Grant(home, request, existing, count); refusal != nil {
		return refusal, nil
	}
	labels, annotations := policy.NamespaceLabels(home), policy.NamespaceAnnotations(home, request, existing,
		policy.Classes(home, c.Sources.ClassesForHomes()))
	kept, _ := policy.VersionsKept(home, time.Now())
	maps.Copy(annotations, kept)
	if existing == nil {
		request.Status.HomeNamespaceUID = request.Spec.HomeNamespaceUID
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: request.Name}}
		apply.Labels(made, labels, annotations)
		if _, err := namespaces.Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("make namespace %s: %w", request.Name, err)
		}
		return nil, nil
	}
	another := policy.AnotherNamespace(request, existing)
	if another != nil {
		delete(annotations, keys.HomeNamespaceUID)
	}
	if apply.Labels(existing, labels, annotations) {
		if _, err := namespaces.Update(ctx, existing, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("update namespace %s: %w", request.Name, err)
		}
	}
	request.Status.HomeNamespaceUID = types.UID(existing.Annotations[keys.HomeNamespaceUID])
	return another, nil
}

// makeAnew deletes a namespace that was made for another home namespace if it contains nothing that
// anybody could miss: then it is made again for the present one.
func (c *Controller) makeAnew(
	ctx context.Context, request *remotev1alpha1.NamespaceRequest, refusal *policy.Refusal,
) (*policy.Refusal, error) {
	existing, err := c.Client.CoreV1().Namespaces().Get(ctx, request.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get namespace %s: %w", request.Name, err)
	}
	if policy.AnotherNamespace(request, existing) == nil {
		// The owner of this cluster has just bound it again: an event comes.
		return refusal, nil
	}
	left, err := c.DeleteIfEmpty(ctx, existing)
	if err != nil || left != "" {
		return refusal, err
	}
	return policy.BeingDeleted(request.Name), nil
}

// count returns how many namespaces a home cluster has.
func (c *Controller) count(ctx context.Context, home *remotev1alpha1.HomeCluster) (int, error) {
	list, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID + "=" + home.Name})
	if err != nil {
		return 0, fmt.Errorf("list namespaces of home cluster %s: %w", home.Name, err)
	}
	return len(list.Items), nil
}

// ensureBounds creates, updates or deletes the quota and the limits of a namespace.
func (c *Controller) ensureBounds(ctx context.Context, home *remotev1alpha1.HomeCluster, namespace string) error {
	core := c.Client.CoreV1()
	if quota := policy.Quota(home); quota == nil {
		if err := apply.Absent(ctx, core.ResourceQuotas(namespace), policy.Bounds, home.Name); err != nil {
			return err
		}
	} else if err := apply.Object(ctx, core.ResourceQuotas(namespace), quota, func(have *corev1.ResourceQuota) bool {
		changed := apply.Labels(have, quota.Labels, nil)
		if !sameResources(have.Spec.Hard, quota.Spec.Hard) || have.Spec.ScopeSelector != nil || len(have.Spec.Scopes) > 0 {
			have.Spec, changed = quota.Spec, true
		}
		return changed
	}); err != nil {
		return err
	}
	limits := policy.Limits(home)
	if limits == nil {
		return apply.Absent(ctx, core.LimitRanges(namespace), policy.Bounds, home.Name)
	}
	return apply.Object(ctx, core.LimitRanges(namespace), limits, func(have *corev1.LimitRange) bool {
		changed := apply.Labels(have, limits.Labels, nil)
		if !sameLimits(have.Spec.Limits, limits.Spec.Limits) {
			have.Spec, changed = limits.Spec, true
		}
		return changed
	})
}

func sameResources(a, b corev1.ResourceList) bool {
	return len(a) == len(b) && within(a, b)
}

// sameLimits reports whether have equals want with the API server's defaults.
func sameLimits(have, want []corev1.LimitRangeItem) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		h, w := have[i], want[i]
		if h.Type != w.Type || !within(w.Max, h.Max) || !within(w.Min, h.Min) || !within(w.Default, h.Default) ||
			!within(w.DefaultRequest, h.DefaultRequest) || !within(w.MaxLimitRequestRatio, h.MaxLimitRequestRatio) {
			return false
		}
		if !reflect.DeepEqual(names(w.Max, w.Default, w.DefaultRequest, w.Min), names(h.Max, h.Default, h.DefaultRequest, h.Min)) {
			return false
		}
	}
	return true
}

// within reports whether all of want are in have, with the same quantities.
func within(want, have corev1.ResourceList) bool {
	for name, quantity := range want {
		if other, ok := have[name]; !ok || quantity.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// names returns the resources that any of the lists names.
func names(lists ...corev1.ResourceList) map[corev1.ResourceName]bool {
	all := map[corev1.ResourceName]bool{}
	for _, list := range lists {
		for name := range list {
			all[name] = true
		}
	}
	return all
}

// recheckAfter is when a namespace that is being deleted is reconciled again: claims are not
// watched here.
const recheckAfter = 2 * time.Second

// reconfineAfter is when rights are given again that were not, since home clusters are not confined:
// the policy is not watched.
const reconfineAfter = 5 * time.Second

// emptyAfter is when a namespace is checked again that was made for another home namespace: once it
// is empty it is made anew.
const emptyAfter = 5 * time.Second

// grantRights binds home's role in a namespace. The binding has a finalizer: the deletion of the
// namespace deletes the binding too, and without its rights home could never remove its finalizers
// from its claims there, which block the deletion. A refusal says why home gets no rights; those that
// it has already need nothing to be given.
func (c *Controller) grantRights(ctx context.Context, id, namespace string, subject rbacv1.Subject) (*policy.Refusal, error) {
	have, err := c.binding(ctx, id, namespace)
	if err != nil {
		return nil, err
	}
	if have == nil || have.DeletionTimestamp != nil || have.RoleRef.Name != policy.NamespacesRole ||
		!slices.Equal(have.Subjects, []rbacv1.Subject{subject}) {
		if refusal, err := c.Confined(ctx); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, c.bind(ctx, id, namespace, subject, have)
}

// bind is grantRights, once that is allowed; have is the present binding, nil for none.
func (c *Controller) bind(ctx context.Context, id, namespace string, subject rbacv1.Subject, have *rbacv1.RoleBinding) error {
	bindings := c.Client.RbacV1().RoleBindings(namespace)
	if have != nil && (have.DeletionTimestamp != nil || have.RoleRef.Name != policy.NamespacesRole) {
		if err := apply.UnprotectBinding(ctx, bindings, have); err != nil {
			return err
		}
	}
	if err := apply.RoleBinding(ctx, bindings, policy.NamespacesRole, policy.NamespacesRole, policy.HomeLabels(id), subject); err != nil {
		return err
	}
	have, err := c.binding(ctx, id, namespace)
	if err != nil || have == nil {
		return err
	}
	return apply.ProtectBinding(ctx, bindings, have)
}

// revokeRights removes a home cluster's rights in a namespace.
func (c *Controller) revokeRights(ctx context.Context, id, namespace string) error {
	have, err := c.binding(ctx, id, namespace)
	if err != nil || have == nil {
		return err
	}
	bindings := c.Client.RbacV1().RoleBindings(namespace)
	if err := apply.UnprotectBinding(ctx, bindings, have); err != nil {
		return err
	}
	return apply.Absent(ctx, bindings, policy.NamespacesRole, id)
}

// releaseRights removes the finalizer from the binding in a namespace that is being deleted once no
// claims are left. Until then it returns when to reconcile again.
func (c *Controller) releaseRights(ctx context.Context, id, namespace string) (time.Duration, error) {
	have, err := c.binding(ctx, id, namespace)
	if err != nil || have == nil {
		return 0, err
	}
	claims, err := c.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("list claims of namespace %s: %w", namespace, err)
	}
	if len(claims.Items) > 0 || have.DeletionTimestamp == nil {
		return recheckAfter, nil
	}
	return 0, apply.UnprotectBinding(ctx, c.Client.RbacV1().RoleBindings(namespace), have)
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
