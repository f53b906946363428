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

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/copies"
)

// writeSecret makes a Secret or brings it in step, without the right to read it.
// known says that it was there.
func (m *mirror) writeSecret(ctx context.Context, s *space, k key, want *corev1.Secret, known bool, ledger types.UID) error {
	want.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: ledgerName, UID: ledger}}
	if !known {
		if err := m.createSecret(ctx, s, want); !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	patch, err := copies.SecretPatch(want)
	if err != nil {
		return err
	}
	patched, err := m.session.Client.CoreV1().Secrets(s.namespace).Patch(ctx, k.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil && patched.Type == want.Type:
		return nil
	case apierrors.IsNotFound(err):
		s.forget(k.name) // it is made next time
		return fmt.Errorf("patch Secret %s/%s: %w", s.namespace, k.name, err)
	case err != nil && !apierrors.IsInvalid(err):
		return sortError(fmt.Errorf("patch Secret %s/%s: %w", s.namespace, k.name, err))
	}
	// Either it is not ours, or it cannot become what is wanted.
	s.forget(k.name)
	err = m.removeSecret(ctx, s, k.name, types.UID(want.Labels[keys.Reflected]))
	if err != nil {
		return err
	}
	if err := m.createSecret(ctx, s, want); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return m.foreign(s, k)
}

func (m *mirror) createSecret(ctx context.Context, s *space, want *corev1.Secret) error {
	_, err := m.session.Client.CoreV1().Secrets(s.namespace).Create(ctx, want, metav1.CreateOptions{})
	if err != nil {
		return sortError(fmt.Errorf("create Secret %s/%s: %w", s.namespace, want.Name, err))
	}
	return nil
}

// removeSecret deletes a Secret if it is the copy of the home object with the
// given UID, and leaves any other alone.
func (m *mirror) removeSecret(ctx context.Context, s *space, name string, home types.UID) error {
	found, err := m.proveSecret(ctx, s, name, home)
	if errors.Is(err, errForeign) {
		return nil
	}
	if err != nil || found == nil {
		return err
	}
	klog.FromContext(ctx).V(4).Info("Removing copy")
	err = m.session.Client.CoreV1().Secrets(s.namespace).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &found.UID, ResourceVersion: &found.ResourceVersion},
	})
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return sortError(fmt.Errorf("delete Secret %s/%s: %w", s.namespace, name, err))
}

// proveSecret returns a Secret that is the copy of the home object with the given
// UID, nil if none is there, errForeign if it is another one. It changes nothing:
// without the right to read Secrets, a patch is the way to ask.
func (m *mirror) proveSecret(ctx context.Context, s *space, name string, home types.UID) (*corev1.Secret, error) {
	patch, err := copies.ProofPatch(m.session.HomeID, home)
	if err != nil {
		return nil, err
	}
	secret, err := m.session.Client.CoreV1().Secrets(s.namespace).Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
		return secret, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsInvalid(err):
		return nil, errForeign
	}
	return nil, sortError(fmt.Errorf("find out whose Secret %s/%s is: %w", s.namespace, name, err))
}
