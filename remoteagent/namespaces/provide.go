package namespaces

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/keep"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// reasonPreparing: pods cannot be made in the namespace yet.
const reasonPreparing = "Preparing"

// provide makes a namespace and all that belongs in it. A refusal says why not.
func (c *Controller) provide(ctx context.Context, home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest) (*policy.Refusal, error) {
	subject, refusal := policy.Identity(home)
	if refusal != nil {
		return refusal, c.takeRights(ctx, home.Name, request.Name)
	}
	refusal, err := c.ensureNamespace(ctx, home, request)
	if refusal != nil || err != nil {
		return refusal, err
	}
	// The bounds before the rights.
	if err := c.ensureBounds(ctx, home, request.Name); err != nil {
		return nil, err
	}
	if err := c.giveRights(ctx, home.Name, request.Name, subject); err != nil {
		return nil, err
	}
	// Without it no pod is admitted.
	_, err = c.Client.CoreV1().ServiceAccounts(request.Name).Get(ctx, "default", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &policy.Refusal{Reason: reasonPreparing, Message: "The namespace was made; its default service account is not there yet."}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get default service account of namespace %s: %w", request.Name, err)
	}
	return nil, nil
}

func (c *Controller) ensureNamespace(ctx context.Context, home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest) (*policy.Refusal, error) {
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
	labels, annotations := policy.NamespaceLabels(home), policy.NamespaceAnnotations(home, request)
	if existing == nil {
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: request.Name}}
		keep.Labels(made, labels, annotations)
		if _, err := namespaces.Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("make namespace %s: %w", request.Name, err)
		}
		return nil, nil
	}
	if keep.Labels(existing, labels, annotations) {
		if _, err := namespaces.Update(ctx, existing, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("update namespace %s: %w", request.Name, err)
		}
	}
	return nil, nil
}

// count returns how many namespaces a home cluster has.
func (c *Controller) count(ctx context.Context, home *remotev1alpha1.HomeCluster) (int, error) {
	list, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID + "=" + home.Name})
	if err != nil {
		return 0, fmt.Errorf("list namespaces of home cluster %s: %w", home.Name, err)
	}
	return len(list.Items), nil
}

// ensureBounds makes, changes or deletes the quota and the limits of a namespace.
func (c *Controller) ensureBounds(ctx context.Context, home *remotev1alpha1.HomeCluster, namespace string) error {
	core := c.Client.CoreV1()
	if quota := policy.Quota(home); quota == nil {
		if err := keep.Gone(ctx, core.ResourceQuotas(namespace), policy.Bounds, home.Name); err != nil {
			return err
		}
	} else if err := keep.Object(ctx, core.ResourceQuotas(namespace), quota, func(have *corev1.ResourceQuota) bool {
		changed := keep.Labels(have, quota.Labels, nil)
		if !sameResources(have.Spec.Hard, quota.Spec.Hard) || have.Spec.ScopeSelector != nil || len(have.Spec.Scopes) > 0 {
			have.Spec, changed = quota.Spec, true
		}
		return changed
	}); err != nil {
		return err
	}
	limits := policy.Limits(home)
	if limits == nil {
		return keep.Gone(ctx, core.LimitRanges(namespace), policy.Bounds, home.Name)
	}
	return keep.Object(ctx, core.LimitRanges(namespace), limits, func(have *corev1.LimitRange) bool {
		changed := keep.Labels(have, limits.Labels, nil)
		if !sameLimits(have.Spec.Limits, limits.Spec.Limits) {
			have.Spec, changed = limits.Spec, true
		}
		return changed
	})
}

func sameResources(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, quantity := range a {
		if other, ok := b[name]; !ok || quantity.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// sameLimits reports whether have is want with the API server's defaults.
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
