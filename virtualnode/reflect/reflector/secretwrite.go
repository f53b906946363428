package reflector

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/copies"
)

// writeSecret makes a Secret or brings it in step, without reading it, and
// returns its UID. known is its UID if it is known to be there.
func (m *mirror) writeSecret(ctx context.Context, s *space, k key, want *corev1.Secret, known, ledger types.UID) (types.UID, error) {
	client := m.session.Client.CoreV1().Secrets(s.namespace)
	want.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: ledgerName, UID: ledger}}
	if known == "" {
		created, err := client.Create(ctx, want, metav1.CreateOptions{})
		if err == nil {
			return created.UID, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return "", sortError(fmt.Errorf("create Secret %s/%s: %w", s.namespace, k.name, err))
		}
	}
	patch, err := copies.SecretPatch(want)
	if err != nil {
		return "", err
	}
	patched, err := client.Patch(ctx, k.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil && patched.Type == want.Type:
		return patched.UID, nil
	case apierrors.IsNotFound(err):
		s.forget(k.name) // it is made next time
		return "", fmt.Errorf("patch Secret %s/%s: %w", s.namespace, k.name, err)
	case err != nil && !apierrors.IsInvalid(err):
		return "", sortError(fmt.Errorf("patch Secret %s/%s: %w", s.namespace, k.name, err))
	}
	// Either it is not ours, or it cannot become what is wanted.
	home := types.UID(want.Labels[keys.Reflected])
	uid, err := m.proveSecret(ctx, s, k.name, home)
	switch {
	case errors.Is(err, errForeign):
		s.forget(k.name)
		return "", m.foreign(s, k)
	case err != nil:
		return "", err
	}
	if err := m.deleteSecret(ctx, s, k.name, uid); err != nil {
		return "", err
	}
	s.forget(k.name)
	created, err := client.Create(ctx, want, metav1.CreateOptions{})
	if err != nil {
		return "", sortError(fmt.Errorf("create Secret %s/%s: %w", s.namespace, k.name, err))
	}
	return created.UID, nil
}

// proveSecret returns the UID of a Secret that is the copy of the home object with
// the given UID, empty if none is there, errForeign if it is another one.
func (m *mirror) proveSecret(ctx context.Context, s *space, name string, home types.UID) (types.UID, error) {
	patch, err := copies.ProofPatch(m.session.HomeID, home)
	if err != nil {
		return "", err
	}
	secret, err := m.session.Client.CoreV1().Secrets(s.namespace).Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
		return secret.UID, nil
	case apierrors.IsNotFound(err):
		return "", nil
	case apierrors.IsInvalid(err):
		return "", errForeign
	}
	return "", sortError(fmt.Errorf("find out whose Secret %s/%s is: %w", s.namespace, name, err))
}

// removeSecret deletes the copy of a home object with the given UID, and nothing
// else.
func (m *mirror) removeSecret(ctx context.Context, s *space, name string, home types.UID, have written) error {
	uid := have.remote
	if have.home != home || uid == "" {
		proven, err := m.proveSecret(ctx, s, name, home)
		if errors.Is(err, errForeign) {
			return nil
		}
		if err != nil {
			return err
		}
		uid = proven
	}
	return m.deleteSecret(ctx, s, name, uid)
}

func (m *mirror) deleteSecret(ctx context.Context, s *space, name string, uid types.UID) error {
	if uid == "" {
		return nil
	}
	klog.FromContext(ctx).V(4).Info("Removing copy")
	err := m.session.Client.CoreV1().Secrets(s.namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(uid)}})
	// A conflict: another object has the name by now.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return sortError(fmt.Errorf("delete Secret %s/%s: %w", s.namespace, name, err))
}
