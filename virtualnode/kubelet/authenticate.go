package kubelet

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// errAnonymous is the answer to who does not say who they are.
var errAnonymous = errors.New("show a client certificate of the cluster, or a token: nothing here is open to everybody")

// authenticate finds out who sent a request.
func (s *Server) authenticate(r *http.Request) (*user, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return s.authorities.user(r.Context(), r.TLS.PeerCertificates)
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token = strings.TrimSpace(token); !ok || token == "" {
		return nil, errAnonymous
	}
	if answer, ok := s.answers.get(token, time.Now()); ok {
		return answer.user, answer.err
	}
	return s.review(r.Context(), token)
}

// review asks the home cluster whose token it is, and keeps the answer.
func (s *Server) review(ctx context.Context, token string) (*user, error) {
	review, err := s.config.Judge.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask whose token it is: %w", err)
	}
	if !review.Status.Authenticated {
		err := errors.New("the cluster does not know this token")
		s.answers.set(token, answer{err: err}, time.Now())
		return nil, err
	}
	who := review.Status.User
	u := &user{name: who.Username, uid: who.UID, groups: who.Groups, extra: map[string]authorizationv1.ExtraValue{}}
	for key, value := range who.Extra {
		u.extra[key] = authorizationv1.ExtraValue(value)
	}
	s.answers.set(token, answer{user: u}, time.Now())
	return u, nil
}

const (
	// authoritiesAge is how long the authorities are believed, authoritiesPause how
	// soon they are read again because a certificate is not known.
	authoritiesAge   = time.Minute
	authoritiesPause = 5 * time.Second
)

// authorities are the certificate authorities of the home cluster's clients, as
// its API server publishes them.
type authorities struct {
	home kubernetes.Interface

	mu   sync.Mutex
	pool *x509.CertPool
	read time.Time
}

// user returns who shows a client certificate.
func (a *authorities) user(ctx context.Context, chain []*x509.Certificate) (*user, error) {
	intermediates := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	var failed error
	for _, age := range []time.Duration{authoritiesAge, authoritiesPause} {
		pool, err := a.get(ctx, age)
		if err != nil {
			return nil, err
		}
		_, failed = chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if failed == nil {
			break
		}
	}
	if failed != nil {
		return nil, fmt.Errorf("the client certificate is not one of this cluster: %w", failed)
	}
	name := chain[0].Subject.CommonName
	if name == "" {
		return nil, errors.New("the client certificate names nobody")
	}
	return &user{name: name, groups: append([]string{"system:authenticated"}, chain[0].Subject.Organization...)}, nil
}

// get returns the authorities, read anew if they are older than age.
func (a *authorities) get(ctx context.Context, age time.Duration) (*x509.CertPool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pool != nil && time.Since(a.read) < age {
		return a.pool, nil
	}
	published, err := a.home.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		if a.pool != nil {
			return a.pool, nil // what was read last still tells strangers
		}
		return nil, fmt.Errorf("read the authorities of client certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(published.Data["client-ca-file"])) {
		return nil, errors.New("this cluster publishes no authority of client certificates (ConfigMap kube-system/extension-apiserver-authentication): use a token")
	}
	a.pool, a.read = pool, time.Now()
	return pool, nil
}
