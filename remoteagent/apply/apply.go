// Package apply creates objects or updates them to what they should be (Object, Labels,
// RoleBinding, ClusterRoleBinding), and deletes them (Absent). It reads the API server, not a
// cache, so it never compares with a state from before the call.
package apply

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Client has the methods of a typed client that this package needs.
type Client[T metav1.Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// Object creates want if there is no object of its name. Otherwise it calls change with the
// existing object; change edits it and returns whether it had to, and then Object writes it. A nil
// change means that the object only has to exist. Object is idempotent; it returns a conflict as
// such.
func Object[T metav1.Object](ctx context.Context, client Client[T], want T, change func(have T) bool) error {
	have, err := client.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if _, err := client.Create(ctx, want, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make %T %s: %w", want, want.GetName(), err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %T %s: %w", want, want.GetName(), err)
	}
	if change == nil || !change(have) {
		return nil
	}
	if _, err := client.Update(ctx, have, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update %T %s: %w", want, want.GetName(), err)
	}
	return nil
}

// Absent deletes an object if it is labelled as made for the home cluster. It is
// idempotent.
func Absent[T metav1.Object](ctx context.Context, client Client[T], name, homeID string) error {
	return deleteIf(ctx, client, name, func(have T) bool { return have.GetLabels()[keys.HomeID] == homeID })
}

// deleteIf deletes an object of a name if it is there, and is so.
func deleteIf[T metav1.Object](ctx context.Context, client Client[T], name string, is func(T) bool) error {
	have, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", name, err)
	}
	if !is(have) {
		return nil
	}
	err = client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(have.GetUID())}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %T %s: %w", have, name, err)
	}
	return nil
}

// Entries sets entries of a map of labels or annotations, deletes those whose wanted value is
// empty, and reports whether anything changed.
func Entries(have map[string]string, want map[string]string) (map[string]string, bool) {
	changed := false
	for key, value := range want {
		was, ok := have[key]
		if value == "" {
			if ok {
				delete(have, key)
				changed = true
			}
			continue
		}
		if !ok || was != value {
			if have == nil {
				have = map[string]string{}
			}
			have[key] = value
			changed = true
		}
	}
	return have, changed
}

// Labels sets labels and annotations of an object, and reports whether anything changed.
func Labels(have metav1.Object, labels, annotations map[string]string) bool {
	l, changedLabels := Entries(have.GetLabels(), labels)
	a, changedAnnotations := Entries(have.GetAnnotations(), annotations)
	have.SetLabels(l)
	have.SetAnnotations(a)
	return changedLabels || changedAnnotations
}

// RoleBinding binds a ClusterRole to one subject in the client's namespace.
func RoleBinding(ctx context.Context, client rbacclient.RoleBindingInterface, name, role string, labels map[string]string,
	subject rbacv1.Subject) error {
	want := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		RoleRef:    clusterRole(role), Subjects: []rbacv1.Subject{subject},
	}
	// The role of a binding cannot be changed.
	if err := deleteIf(ctx, client, name, func(have *rbacv1.RoleBinding) bool { return have.RoleRef != want.RoleRef }); err != nil {
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

// ClusterRoleBinding binds a ClusterRole to one subject in the whole cluster.
func ClusterRoleBinding(ctx context.Context, client rbacclient.ClusterRoleBindingInterface, name, role string, labels map[string]string,
	subject rbacv1.Subject) error {
	want := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		RoleRef:    clusterRole(role), Subjects: []rbacv1.Subject{subject},
	}
	// The role of a binding cannot be changed.
	if err := deleteIf(ctx, client, name, func(have *rbacv1.ClusterRoleBinding) bool { return have.RoleRef != want.RoleRef }); err != nil {
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

// ProtectBinding adds a finalizer to a binding, so that its rights stay in force after its deletion
// until UnprotectBinding. A binding that is being deleted already is not changed.
func ProtectBinding(ctx context.Context, client rbacclient.RoleBindingInterface, binding *rbacv1.RoleBinding) error {
	if binding.DeletionTimestamp != nil || slices.Contains(binding.Finalizers, keys.RightsFinalizer) {
		return nil
	}
	binding = binding.DeepCopy()
	binding.Finalizers = append(binding.Finalizers, keys.RightsFinalizer)
	if _, err := client.Update(ctx, binding, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("hold role binding %s: %w", binding.Name, err)
	}
	return nil
}

// UnprotectBinding removes the finalizer that ProtectBinding added.
func UnprotectBinding(ctx context.Context, client rbacclient.RoleBindingInterface, binding *rbacv1.RoleBinding) error {
	if !slices.Contains(binding.Finalizers, keys.RightsFinalizer) {
		return nil
	}
	binding = binding.DeepCopy()
	binding.Finalizers = slices.DeleteFunc(binding.Finalizers, func(f string) bool { return f == keys.RightsFinalizer })
	if _, err := client.Update(ctx, binding, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("let role binding %s go: %w", binding.Name, err)
	}
	return nil
}
