// Package confinement finds out whether the API server confines home clusters, before the agent gives
// them rights: that the admission policy and its binding are there as the agent was built with, and
// that a dry run as the marker, which the policy confines too, is refused by it. policy.Check
// decides what is read.
package confinement

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/deploy/remote/home"
	confined "github.com/lodestone-storage/lodestone/pkg/confinement"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

const (
	// triedFor is for how long a policy that is not changed is not tried again.
	triedFor = time.Minute
	// tokenSeconds is how long a token of the marker is good: as short as API servers allow.
	tokenSeconds = 600
)

// Checker finds out whether home clusters are confined. It is safe for concurrent use.
type Checker struct {
	client kubernetes.Interface
	// try makes a dry run as the marker and returns what the API server answers.
	try  func(ctx context.Context) error
	want confined.Confinement

	mu sync.Mutex
	// tried are the versions of the policy and the binding that a dry run has shown to be in force,
	// and at when.
	tried string
	at    time.Time
}

// New returns a Checker of the cluster that access reaches; client is one of it.
func New(client kubernetes.Interface, access *rest.Config) (*Checker, error) {
	c := &Checker{client: client}
	c.try = func(ctx context.Context) error { return c.dryRun(ctx, access) }
	var err error
	c.want, err = confined.Decode(home.Admission)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Refusal returns why home clusters must get no rights now, nil if they are confined. An error means
// that this is not known.
func (c *Checker) Refusal(ctx context.Context) (*policy.Refusal, error) {
	have, refusal, err := c.read(ctx)
	if refusal != nil || err != nil {
		return refusal, err
	}
	if refusal := policy.Check(c.want, have); refusal != nil {
		return refusal, nil
	}
	version := fmt.Sprintf("%s %s %s %s", have.Policy.UID, have.Policy.ResourceVersion, have.Binding.UID, have.Binding.ResourceVersion)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tried == version && time.Since(c.at) < triedFor {
		return nil, nil
	}
	if refusal := policy.Tried(c.try(ctx)); refusal != nil {
		return refusal, nil
	}
	c.tried, c.at = version, time.Now()
	return nil, nil
}

// read reads what is in the cluster, from the API server. An agent of a newer version than its role
// may not.
func (c *Checker) read(ctx context.Context) (have confined.Confinement, refusal *policy.Refusal, err error) {
	admission := c.client.AdmissionregistrationV1()
	have.Policy, err = admission.ValidatingAdmissionPolicies().Get(ctx, policy.ConfiningPolicy, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return confined.Confinement{}, nil, nil
	}
	if err == nil {
		have.Binding, err = admission.ValidatingAdmissionPolicyBindings().Get(ctx, policy.ConfiningPolicy, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return confined.Confinement{Policy: have.Policy}, nil, nil
		}
	}
	switch {
	case apierrors.IsForbidden(err):
		return have, policy.Unreadable(err), nil
	case err != nil:
		return have, nil, fmt.Errorf("read what confines home clusters: %w", err)
	}
	return have, nil, nil
}

// dryRun asks, as the marker, whether it may make a ConfigMap, and returns the answer.
func (c *Checker) dryRun(ctx context.Context, access *rest.Config) error {
	token, err := c.client.CoreV1().ServiceAccounts(policy.MarkerNamespace).CreateToken(ctx, policy.Marker, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenSeconds))},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("get a token of service account %s in namespace %s: %w", policy.Marker, policy.MarkerNamespace, err)
	}
	config := rest.AnonymousClientConfig(access)
	config.BearerToken = token.Status.Token
	marker, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client of the marker: %w", err)
	}
	_, err = marker.CoreV1().ConfigMaps(policy.MarkerNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Marker},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err //nolint:wrapcheck // policy.Tried reads it
}
