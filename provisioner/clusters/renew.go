package clusters

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/credentials"
)

const (
	// renewAgain is how long after a failed attempt to renew a token the next one
	// is made.
	renewAgain = 30 * time.Second
	// shortestToken is the shortest life that API servers give a token.
	shortestToken = 10 * time.Minute
)

// renewal is what became of the attempts to renew one token.
type renewal struct {
	kubeconfig string // fingerprint
	tried      time.Time
	failure    string
}

// renew asks for another token when most of the life of the present one is over
// and puts it into the Secret, and returns the condition CredentialsValid. A
// program that ends between the two leaves a token that nobody has, which ends
// by itself.
func (c *Cluster) renew(ctx context.Context, remote *v1alpha1.RemoteCluster, kubeconfig []byte, usable bool) metav1.Condition {
	now := time.Now()
	have := credentials.Of(kubeconfig)
	if key := fingerprintOf(kubeconfig); c.renewal.kubeconfig != key {
		c.renewal = renewal{kubeconfig: key}
	}
	c.setUntil(have)
	if have.Due(now) && usable && now.Sub(c.renewal.tried) >= renewAgain {
		c.renewal.tried = now
		err := c.renewToken(ctx, remote, kubeconfig, have)
		switch {
		case apierrors.IsConflict(err):
			// Somebody wrote the Secret; what is in it now counts.
			c.renewal.tried = time.Time{}
		case err != nil:
			c.renewal.failure = cause(err).Error()
		default:
			c.renewal.failure = ""
		}
	}
	condition := have.Condition(now, c.renewal.failure)
	c.tellCredentials(ctx, remote, condition)
	return condition
}

func (c *Cluster) renewToken(ctx context.Context, remote *v1alpha1.RemoteCluster, kubeconfig []byte, have credentials.Credentials) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	life := max(have.Until.Sub(have.From), shortestToken)
	seconds := int64(life.Seconds())
	answer, err := c.current().client.CoreV1().ServiceAccounts(have.Namespace).CreateToken(ctx, have.Account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := have.Succeeds(answer.Status.Token); err != nil {
		return err
	}
	secret := c.registry.secret(remote.Spec.KubeconfigSecretRef.Name)
	if secret == nil {
		return errors.New("the kubeconfig Secret is gone")
	}
	key := keyOf(remote)
	if !bytes.Equal(secret.Data[key], kubeconfig) {
		// The token belongs to the kubeconfig that was read, not to this one.
		return apierrors.NewConflict(corev1.Resource("secrets"), secret.Name, errors.New("the kubeconfig was replaced meanwhile"))
	}
	data, err := credentials.WithToken(secret.Data[key], answer.Status.Token)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": secret.UID, "resourceVersion": secret.ResourceVersion},
		"data":     map[string]any{key: data},
	})
	if err != nil {
		return fmt.Errorf("encode Secret: %w", err)
	}
	if _, err := c.registry.home.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	klog.FromContext(ctx).Info("Renewed the token", "secret", klog.KObj(secret))
	c.registry.event(remote, corev1.EventTypeNormal, "TokenRenewed", fmt.Sprintf("a new token was put into Secret %s/%s", secret.Namespace, secret.Name))
	return nil
}

// tellCredentials writes an event when credentials begin to need somebody.
func (c *Cluster) tellCredentials(ctx context.Context, remote *v1alpha1.RemoteCluster, condition metav1.Condition) {
	if condition.Reason == c.told {
		return
	}
	c.told = condition.Reason
	switch condition.Reason {
	case credentials.RenewalFailed, credentials.ExpiresSoon, credentials.Expired:
		klog.FromContext(ctx).Info("Credentials need attention", "reason", condition.Reason, "message", condition.Message)
		c.registry.event(remote, corev1.EventTypeWarning, "Credentials"+condition.Reason, condition.Message)
	}
}

// setUntil notes the end of the credentials for the metric.
func (c *Cluster) setUntil(have credentials.Credentials) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = have.Until
}

// event writes an event on a RemoteCluster.
func (r *Registry) event(remote *v1alpha1.RemoteCluster, kind, reason, message string) {
	r.recorder.Event(&corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "RemoteCluster", Name: remote.Name, UID: remote.UID, ResourceVersion: remote.ResourceVersion,
	}, kind, reason, message)
}
