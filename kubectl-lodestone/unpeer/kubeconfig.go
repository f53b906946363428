package unpeer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// keyOf returns the key of a Secret that holds the kubeconfig.
func keyOf(ref v1alpha1.SecretKeyRef) string {
	if ref.Key != "" {
		return ref.Key
	}
	return credentials.Key
}

// forgotten returns the key under which a kubeconfig is kept that no program may
// use any more.
func forgotten(ref v1alpha1.SecretKeyRef) string { return keyOf(ref) + ".forgotten" }

// takeKubeconfig takes the kubeconfig out of the Secret. One that peer did not
// make stays there under the key for forgotten ones.
func (u *unpeering) takeKubeconfig(ctx context.Context, ref v1alpha1.SecretKeyRef) error {
	secrets, taken := u.home.Client.CoreV1().Secrets(ref.Namespace), false
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret, err := secrets.Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if taken = take(secret, ref, u.foreign); !taken {
			return nil
		}
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		return err
	})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return u.home.Explain("take the credentials out of Secret "+ref.Namespace+"/"+ref.Name, err)
	case err == nil && taken:
		u.Say("took the credentials out of Secret %s/%s", ref.Namespace, ref.Name)
	}
	return nil
}

// take takes the kubeconfig out of a Secret, and says whether it was there. keep
// leaves it under the key for forgotten ones.
func take(secret *corev1.Secret, ref v1alpha1.SecretKeyRef, keep bool) bool {
	kubeconfig, there := secret.Data[keyOf(ref)]
	if !there {
		return false // by a run before
	}
	if keep {
		secret.Data[forgotten(ref)] = kubeconfig
	}
	delete(secret.Data, keyOf(ref))
	return true
}

// usedByNoOther refuses to take a kubeconfig away from another RemoteCluster.
func (u *unpeering) usedByNoOther(ctx context.Context, remote *v1alpha1.RemoteCluster, deletes bool) error {
	if remote == nil {
		return nil
	}
	all, err := u.home.Remotes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return u.home.Explain("list RemoteClusters", err)
	}
	ref := remote.Spec.KubeconfigSecretRef
	if other := sharer(remote, all.Items, deletes); other != "" {
		return outcome.Refuse("RemoteCluster %q uses the kubeconfig in Secret %s/%s too and would lose it, so nothing was changed: give that one a Secret of its own, then run the same command again", other, ref.Namespace, ref.Name)
	}
	return nil
}

// sharer returns the name of another RemoteCluster that names the same key of the
// same Secret or, where the Secret is deleted, any key of it; empty if none does.
func sharer(remote *v1alpha1.RemoteCluster, all []v1alpha1.RemoteCluster, deletes bool) string {
	ref := remote.Spec.KubeconfigSecretRef
	for _, other := range all {
		its := other.Spec.KubeconfigSecretRef
		if other.Name != remote.Name && its.Namespace == ref.Namespace && its.Name == ref.Name && (deletes || keyOf(its) == keyOf(ref)) {
			return other.Name
		}
	}
	return ""
}
