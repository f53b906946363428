package remote

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
)

// kubeconfig returns the kubeconfig of a RemoteCluster. The error is one sentence for the
// user.
func (r *Clusters) kubeconfig(remote *v1alpha1.RemoteCluster) ([]byte, error) {
	ref := remote.Spec.KubeconfigSecretRef
	if ref.Namespace != r.namespace {
		return nil, fmt.Errorf("the kubeconfig Secret must be in namespace %s, where Lodestone runs, not in %s: move it", r.namespace,
			ref.Namespace)
	}
	key := keyOf(remote)
	secret := r.secret(ref.Name)
	if secret == nil {
		return nil, fmt.Errorf("there is no Secret %s/%s: create it with the kubeconfig under key %s", ref.Namespace, ref.Name, key)
	}
	data := secret.Data[key]
	if len(data) == 0 {
		return nil, fmt.Errorf("the Secret %s/%s has no key %s: put the kubeconfig there", ref.Namespace, ref.Name, key)
	}
	return data, nil
}

// keyOf returns the key of the kubeconfig in its Secret.
func keyOf(remote *v1alpha1.RemoteCluster) string {
	if key := remote.Spec.KubeconfigSecretRef.Key; key != "" {
		return key
	}
	return "kubeconfig"
}

func (r *Clusters) secret(name string) *corev1.Secret {
	return controller.Get[corev1.Secret](r.secrets, r.namespace+"/"+name)
}

// CredentialKind is what a kubeconfig logs in with.
type CredentialKind string

// The kinds of credentials.
const (
	// Token is a service account's token with an expiry; it can be renewed.
	Token CredentialKind = "token"
	// Certificate is a client certificate.
	Certificate CredentialKind = "client certificate"
	// Endless is anything without a known expiry.
	Endless CredentialKind = "credentials"
)

// Credentials are what a kubeconfig logs in with.
type Credentials struct {
	Kind CredentialKind
	// Namespace and Account are the service account of a Token.
	Namespace, Account string
	// From and Until are the validity of a Token or Certificate.
	From, Until time.Time
}

// CredentialsOf returns the credentials of a kubeconfig's current context. What cannot be
// parsed is Endless.
func CredentialsOf(kubeconfig []byte) Credentials {
	_, user, err := load(kubeconfig)
	if err != nil {
		return Credentials{Kind: Endless}
	}
	if user.Token != "" {
		return ofToken(user.Token)
	}
	return ofCertificate(user.ClientCertificateData)
}

func ofToken(token string) Credentials {
	none := Credentials{Kind: Endless}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return none
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return none
	}
	// The times may be fractions.
	var claims struct {
		Subject string  `json:"sub"`
		From    float64 `json:"iat"`
		Until   float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return none
	}
	subject := strings.Split(claims.Subject, ":")
	if len(subject) != 4 || subject[0] != "system" || subject[1] != "serviceaccount" || claims.From <= 0 || claims.Until <= claims.From {
		return none
	}
	return Credentials{Kind: Token, Namespace: subject[2], Account: subject[3], From: time.Unix(int64(claims.From), 0).UTC(),
		Until: time.Unix(int64(claims.Until), 0).UTC()}
}

func ofCertificate(data []byte) Credentials {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		// The first certificate is the client's own; the issuers' follow.
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			break
		}
		return Credentials{Kind: Certificate, From: certificate.NotBefore.UTC(), Until: certificate.NotAfter.UTC()}
	}
	return Credentials{Kind: Endless}
}

// RenewAt is when a fifth of the credentials' validity is left; zero if they have no known
// expiry.
func (c Credentials) RenewAt() time.Time {
	if c.Kind == Endless {
		return time.Time{}
	}
	return c.Until.Add(-c.Until.Sub(c.From) / 5)
}

// Due says whether to request a new token at this time.
func (c Credentials) Due(now time.Time) bool {
	return c.Kind == Token && !now.Before(c.RenewAt())
}

// Succeeds returns an error unless token belongs to the same account as c and expires
// later.
func (c Credentials) Succeeds(token string) error {
	next := ofToken(token)
	switch {
	case next.Kind != Token || next.Namespace != c.Namespace || next.Account != c.Account:
		return errors.New("the answer holds no token of the same account")
	case !next.Until.After(c.Until):
		return fmt.Errorf("the new token would end at %s, no later than this one", next.Until.Format(time.RFC3339))
	}
	return nil
}

// KubeconfigWithToken returns a kubeconfig in which the current user has this token.
func KubeconfigWithToken(kubeconfig []byte, token string) ([]byte, error) {
	config, user, err := load(kubeconfig)
	if err != nil {
		return nil, err
	}
	user.Token = token
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return data, nil
}

func load(kubeconfig []byte) (*clientcmdapi.Config, *clientcmdapi.AuthInfo, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.AuthInfos[current.AuthInfo] == nil {
		return nil, nil, errors.New("read kubeconfig: its current context names no user")
	}
	return config, config.AuthInfos[current.AuthInfo], nil
}

// Reasons of the condition CredentialsValid.
const (
	NoEnd         = "NoEnd"
	Valid         = "Valid"
	ExpiresSoon   = "ExpiresSoon"
	RenewalFailed = "RenewalFailed"
	Expired       = "Expired"
)

// renew tells the user how to get new credentials.
const renew = "run kubectl lodestone peer --renew, or put new ones into the Secret"

// Condition returns the condition CredentialsValid at this time. failure is why the last
// attempt to renew them failed, empty if it succeeded.
func (c Credentials) Condition(now time.Time, failure string) metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.CredentialsValid, Status: status, Reason: reason, Message: message}
	}
	until := c.Until.Format(time.RFC3339)
	switch {
	case c.Kind == Endless:
		return is(metav1.ConditionTrue, NoEnd, "the credentials of the kubeconfig have no end that is known here")
	case !now.Before(c.Until):
		return is(metav1.ConditionFalse, Expired, c.Ended(now))
	case failure != "":
		return is(metav1.ConditionTrue, RenewalFailed, fmt.Sprintf("the %s is valid until %s only, for it cannot be renewed: %s; %s before then",
			c.Kind, until, failure, renew))
	case c.Kind == Token:
		return is(metav1.ConditionTrue, Valid, fmt.Sprintf("the token is valid until %s; it is renewed at %s", until,
			c.RenewAt().Format(time.RFC3339)))
	case !now.Before(c.RenewAt()):
		return is(metav1.ConditionTrue, ExpiresSoon, fmt.Sprintf("the client certificate is valid until %s only: %s before then", until, renew))
	}
	return is(metav1.ConditionTrue, Valid, fmt.Sprintf("the client certificate is valid until %s", until))
}

// Ended is a sentence that the credentials have expired at this time; empty if they have
// not.
func (c Credentials) Ended(now time.Time) string {
	if c.Kind == Endless || now.Before(c.Until) {
		return ""
	}
	return fmt.Sprintf("the %s of the kubeconfig expired at %s: %s", c.Kind, c.Until.Format(time.RFC3339), renew)
}

const (
	// renewAgain is the pause after a failed attempt to renew a token.
	renewAgain = 30 * time.Second
	// shortestToken is the shortest validity that API servers give a token.
	shortestToken = 10 * time.Minute
)

// renewal is the state of the attempts to renew one token.
type renewal struct {
	kubeconfig string // fingerprint
	tried      time.Time
	failure    string
}

// renew requests a new token once most of the present one's validity is over, stores it in
// the Secret, and returns the condition CredentialsValid. A crash between request and store
// leaves an unused token, which expires by itself.
func (c *Cluster) renew(ctx context.Context, remote *v1alpha1.RemoteCluster, kubeconfig []byte, usable bool) metav1.Condition {
	now := time.Now()
	have := CredentialsOf(kubeconfig)
	if key := fingerprintOf(kubeconfig); c.renewal.kubeconfig != key {
		c.renewal = renewal{kubeconfig: key}
	}
	c.setCredentialsEnd(have)
	if have.Due(now) && usable && now.Sub(c.renewal.tried) >= renewAgain {
		c.renewal.tried = now
		err := c.renewToken(ctx, remote, kubeconfig, have)
		switch {
		case apierrors.IsConflict(err):
			// Somebody changed the Secret; use its present content.
			c.renewal.tried = time.Time{}
		case err != nil:
			c.renewal.failure = cause(err).Error()
		default:
			c.renewal.failure = ""
		}
	}
	condition := have.Condition(now, c.renewal.failure)
	c.warnCredentials(ctx, remote, condition)
	return condition
}

// setCredentialsEnd sets the expiry of the credentials for the metric.
func (c *Cluster) setCredentialsEnd(have Credentials) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.credentialsEnd = have.Until
}

func (c *Cluster) renewToken(ctx context.Context, remote *v1alpha1.RemoteCluster, kubeconfig []byte, have Credentials) error {
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
	secret := c.clusters.secret(remote.Spec.KubeconfigSecretRef.Name)
	if secret == nil {
		return errors.New("the kubeconfig Secret is gone")
	}
	key := keyOf(remote)
	if !bytes.Equal(secret.Data[key], kubeconfig) {
		// The token belongs to the kubeconfig that was read before, not to this one.
		return apierrors.NewConflict(corev1.Resource("secrets"), secret.Name, errors.New("the kubeconfig was replaced meanwhile"))
	}
	data, err := KubeconfigWithToken(secret.Data[key], answer.Status.Token)
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
	if _, err := c.clusters.home.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	klog.FromContext(ctx).Info("Renewed the token", "secret", klog.KObj(secret))
	c.clusters.event(remote, corev1.EventTypeNormal, "TokenRenewed", fmt.Sprintf("a new token was put into Secret %s/%s", secret.Namespace,
		secret.Name))
	return nil
}

// warnCredentials writes an event when credentials begin to need the user's attention.
func (c *Cluster) warnCredentials(ctx context.Context, remote *v1alpha1.RemoteCluster, condition metav1.Condition) {
	if condition.Reason == c.lastCredentials {
		return
	}
	c.lastCredentials = condition.Reason
	switch condition.Reason {
	case RenewalFailed, ExpiresSoon, Expired:
		klog.FromContext(ctx).Info("Credentials need attention", "reason", condition.Reason, "message", condition.Message)
		c.clusters.event(remote, corev1.EventTypeWarning, "Credentials"+condition.Reason, condition.Message)
	}
}

// bearer is the token of a connection. It can be replaced, so that the connection keeps its
// watches when the token is renewed.
type bearer struct{ token atomic.Pointer[string] }

// newBearer removes the token from a client configuration and adds it to each request
// instead; nil if there is none.
func newBearer(config *rest.Config) *bearer {
	if config.BearerToken == "" {
		return nil
	}
	b := &bearer{}
	b.set(config.BearerToken)
	config.BearerToken = ""
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bearing{bearer: b, next: next} })
	return b
}

func (b *bearer) set(token string) { b.token.Store(&token) }

type bearing struct {
	bearer *bearer
	next   http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = &bearing{}

// RoundTrip implements http.RoundTripper.
func (b *bearing) RoundTrip(request *http.Request) (*http.Response, error) {
	request = utilnet.CloneRequest(request)
	request.Header.Set("Authorization", "Bearer "+*b.bearer.token.Load())
	return b.next.RoundTrip(request)
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (b *bearing) WrappedRoundTripper() http.RoundTripper { return b.next }
