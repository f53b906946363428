package keep

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Hold has a binding outlast its deletion until LetGo, so that what it gives stays
// in force. One that is being deleted already is left as it is.
func Hold(ctx context.Context, client rbacclient.RoleBindingInterface, binding *rbacv1.RoleBinding) error {
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

// LetGo ends what Hold began.
func LetGo(ctx context.Context, client rbacclient.RoleBindingInterface, binding *rbacv1.RoleBinding) error {
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
