package keep

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/utils/ptr"
)

// RoleBinding gives a ClusterRole to one subject in the client's namespace.
func RoleBinding(ctx context.Context, client rbacclient.RoleBindingInterface, name, role string, labels map[string]string, subject rbacv1.Subject) error {
	want := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		RoleRef:    clusterRole(role), Subjects: []rbacv1.Subject{subject},
	}
	stale := func(have *rbacv1.RoleBinding) bool { return have.RoleRef != want.RoleRef }
	if err := replace(ctx, client, name, stale); err != nil {
		return err
	}
	return Object(ctx, client, want, func(have *rbacv1.RoleBinding) bool {
		changed := Labels(have, labels, nil)
		if !slices.Equal(have.Subjects, want.Subjects) {
			have.Subjects, changed = want.Subjects, true
		}
		return changed
	})
}

// ClusterRoleBinding gives a ClusterRole to one subject in the whole cluster.
func ClusterRoleBinding(ctx context.Context, client rbacclient.ClusterRoleBindingInterface, name, role string, labels map[string]string, subject rbacv1.Subject) error {
	want := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		RoleRef:    clusterRole(role), Subjects: []rbacv1.Subject{subject},
	}
	stale := func(have *rbacv1.ClusterRoleBinding) bool { return have.RoleRef != want.RoleRef }
	if err := replace(ctx, client, name, stale); err != nil {
		return err
	}
	return Object(ctx, client, want, func(have *rbacv1.ClusterRoleBinding) bool {
		changed := Labels(have, labels, nil)
		if !slices.Equal(have.Subjects, want.Subjects) {
			have.Subjects, changed = want.Subjects, true
		}
		return changed
	})
}

func clusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

// replace deletes a binding to another role: the role of a binding cannot be
// changed.
func replace[T metav1.Object](ctx context.Context, client Client[T], name string, stale func(T) bool) error {
	have, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get binding %s: %w", name, err)
	}
	if !stale(have) {
		return nil
	}
	err = client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(have.GetUID())}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete binding %s to another role: %w", name, err)
	}
	return nil
}
