package kubelet

import (
	"context"
	"crypto/sha256"
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

// errAnonymous is the answer to requests without credentials.
var errAnonymous = errors.New("show a client certificate of the cluster, or a token: nothing here is open to everybody")

func (s *Server) authenticate(r *http.Request) (*user, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return s.authorities.user(r.Context(), r.TLS.PeerCertificates)
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token = strings.TrimSpace(token); !ok || token == "" {
		return nil, errAnonymous
	}
	if answer, ok := s.tokens.get(token, time.Now()); ok {
		return answer.user, answer.err
	}
	return s.review(r.Context(), token)
}

// review asks the home cluster whose token it is, and caches the answer.
func (s *Server) review(ctx context.Context, token string) (*user, error) {
	review, err := s.config.Judge.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask whose token it is: %w", err)
	}
	if !review.Status.Authenticated {
		err := errors.New("the cluster does not know this token")
		s.tokens.set(token, tokenOwner{err: err}, time.Now())
		return nil, err
	}
	who := review.Status.User
	u := &user{name: who.Username, uid: who.UID, groups: who.Groups, extra: map[string]authorizationv1.ExtraValue{}}
	for key, value := range who.Extra {
		u.extra[key] = authorizationv1.ExtraValue(value)
	}
	s.tokens.set(token, tokenOwner{user: u}, time.Now())
	return u, nil
}

const (
	// authoritiesAge is how long the authorities are cached, authoritiesPause how soon they are
	// read again after an unknown certificate.
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

// user returns the user of a client certificate.
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
		_, failed = chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: intermediates,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
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

// get returns the authorities; it reads them again if they are older than age.
func (a *authorities) get(ctx context.Context, age time.Duration) (*x509.CertPool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pool != nil && time.Since(a.read) < age {
		return a.pool, nil
	}
	published, err := a.home.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		if a.pool != nil {
			return a.pool, nil // the authorities that were read last are still used
		}
		return nil, fmt.Errorf("read the authorities of client certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(published.Data["client-ca-file"])) {
		return nil, errors.New("this cluster publishes no authority of client certificates (ConfigMap " +
			"kube-system/extension-apiserver-authentication): use a token")
	}
	a.pool, a.read = pool, time.Now()
	return pool, nil
}

const (
	// maxTokenChecks is how many requests with tokens are reviewed at once.
	maxTokenChecks = 64
	// ownerAge is how long the answer on a token is cached, also the answer that it is nobody's;
	// maxAnswers limits how many answers are cached.
	ownerAge  = 10 * time.Second
	maxOwners = 1024
)

// tokenOwner is the owner of a token: user, or err if it is nobody's.
type tokenOwner struct {
	user *user
	err  error
	till time.Time
}

// tokenCache has the home cluster's answers on tokens of the last seconds, by the hash of the
// token, so that no tokens are stored. It is safe for concurrent use.
type tokenCache struct {
	mu     sync.Mutex
	owners map[[sha256.Size]byte]tokenOwner
}

func newTokenCache() *tokenCache { return &tokenCache{owners: map[[sha256.Size]byte]tokenOwner{}} }

// get returns the cached answer on a token; false if there is none that is new enough.
func (a *tokenCache) get(token string, now time.Time) (tokenOwner, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, ok := a.owners[sha256.Sum256([]byte(token))]
	return found, ok && now.Before(found.till)
}

// set caches an answer. If there are too many, it drops one: first an expired one, then one on a
// token that is nobody's, so that many requests with invalid tokens do not push out valid ones.
func (a *tokenCache) set(token string, is tokenOwner, now time.Time) {
	is.till = now.Add(ownerAge)
	a.mu.Lock()
	defer a.mu.Unlock()
	key := sha256.Sum256([]byte(token))
	if _, ok := a.owners[key]; !ok && len(a.owners) >= maxOwners {
		delete(a.owners, a.worst(now))
	}
	a.owners[key] = is
}

func (a *tokenCache) worst(now time.Time) (worst [sha256.Size]byte) {
	found, nobodys := false, false
	for key, known := range a.owners {
		switch {
		case !now.Before(known.till):
			return key
		case !found || (known.err != nil && !nobodys):
			worst, found, nobodys = key, true, known.err != nil
		}
	}
	return worst
}

// user is the sender of a request.
type user struct {
	name, uid string
	groups    []string
	extra     map[string]authorizationv1.ExtraValue
}

// allowed asks the home cluster whether a user may do what a request does to a node. Any one of the
// attributes is enough.
func (s *Server) allowed(ctx context.Context, u *user, attributes []authorizationv1.ResourceAttributes) (bool, error) {
	for _, attribute := range attributes {
		review, err := s.config.Judge.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: u.name, UID: u.uid, Groups: u.groups, Extra: u.extra,
				ResourceAttributes: &attribute},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("ask whether %s may %s nodes/%s: %w", u.name, attribute.Verb, attribute.Subresource, err)
		}
		if review.Status.Allowed {
			return true, nil
		}
	}
	return false, nil
}

// attributes returns the rights, any one of which a request needs: the same as those that a kubelet
// checks. Running a command always needs the verb create, whatever the HTTP method of the request.
func attributes(node, method, path string) []authorizationv1.ResourceAttributes {
	verb := map[string]string{http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create",
		http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[method]
	if verb == "" {
		verb = strings.ToLower(method)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	subresources := []string{"proxy"}
	switch first {
	case "exec", "attach", "portForward":
		verb = "create"
	case "metrics":
		subresources = []string{"metrics"}
	case "stats":
		subresources = []string{"stats"}
	case "logs":
		subresources = []string{"log"}
	case "healthz":
		subresources = []string{"healthz", "proxy"}
	case "pods", "runningpods":
		subresources = []string{"pods", "proxy"}
	}
	var result []authorizationv1.ResourceAttributes
	for _, subresource := range subresources {
		result = append(result, authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes", Subresource: subresource, Name: node,
			Version: "v1"})
	}
	return result
}
