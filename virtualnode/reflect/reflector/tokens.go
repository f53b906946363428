package reflector

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/virtualnode/reflect/needs"
)

// tokenLifetime is how long a home API token is asked to last.
const tokenLifetime = time.Hour

// token is a home API token of a pod.
type token struct {
	value, audience string
	number          int // tells it from the one before
	renew           time.Time
}

// tokens are those that are in use, by the name of their Secret.
type tokens struct {
	mu     sync.Mutex
	byName map[string]token
}

func (t *tokens) get(name string) token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName[name]
}

func (t *tokens) set(name string, value token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byName = map[string]token{}
	}
	t.byName[name] = value
}

func (t *tokens) drop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byName, name)
}

// lookAtToken brings the Secret with the home API token of a pod in step.
func (m *mirror) lookAtToken(ctx context.Context, s *space, k key) (time.Duration, error) {
	pods := m.needing(k)
	if len(pods) == 0 {
		m.tokens.drop(k.name)
		return 0, m.settle(ctx, s, k, nil)
	}
	pod := pods[0] // its UID is in the name
	authority, err := m.configMapLister.ConfigMaps(k.namespace).Get(needs.RootCA)
	if err != nil {
		return 0, fmt.Errorf("get the certificate authority of the home API: %w", err)
	}
	current, err := m.currentToken(ctx, k.name, pod)
	if err != nil {
		return 0, err
	}
	err = m.settle(ctx, s, k, &wanted{
		home: pod.UID, version: strconv.Itoa(current.number) + "/" + authority.ResourceVersion,
		secret: m.place(s).Token(k.name, pod, current.value, authority.Data[corev1.ServiceAccountRootCAKey]),
	})
	return min(max(current.renew.Sub(m.Clock.Now()), time.Second), rewritePeriod), err
}

// currentToken returns the token of a pod, a new one where that is due.
func (m *mirror) currentToken(ctx context.Context, name string, pod *corev1.Pod) (token, error) {
	audience := needs.Of(pod).Audience
	current := m.tokens.get(name)
	now := m.Clock.Now()
	if current.audience == audience && now.Before(current.renew) {
		return current, nil
	}
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	response, err := m.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:         []string{audience},
			ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds())),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		return token{}, &refusal{reason: "NoToken", message: fmt.Sprintf("The pod got no token of the home API: %v; remove its annotation lodestone.dev/service-account-token, or see what rights the virtual nodes need", err)}
	case err != nil:
		return token{}, fmt.Errorf("request a token of service account %s/%s: %w", pod.Namespace, account, err)
	}
	// The API server may have given less time, or more.
	lifetime := response.Status.ExpirationTimestamp.Sub(now)
	current = token{value: response.Status.Token, audience: audience, number: current.number + 1, renew: now.Add(lifetime * 4 / 5)}
	m.tokens.set(name, current)
	return current, nil
}
