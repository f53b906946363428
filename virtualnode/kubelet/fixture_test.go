package kubelet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// remoteToken is home's token in the remote cluster.
const remoteToken = "token-of-home-in-west"

// authority signs client certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{certificate: &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}}
	pair := a.sign(t, a.certificate)
	a.certificate, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign returns a certificate as in the template; the first one signs itself.
func (a *authority) sign(t *testing.T, template *x509.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, signer)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) client(t *testing.T, name string, groups ...string) *tls.Certificate {
	t.Helper()
	return a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// fixture is the kubelet API of node west, with a home cluster that knows one
// authority, where the group operators may all and the user scraper may read
// metrics, and a remote API server that says what the test wants.
type fixture struct {
	server    *Server
	port      int32
	authority *authority
	remote    *httptest.Server
	session   *session.Session

	mu       sync.Mutex
	answer   http.HandlerFunc // of the remote API server, to all but reading pods
	pods     map[string]*corev1.Pod
	requests []*http.Request // seen by the remote API server, but for reading pods
}

func homePod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app"}},
			InitContainers:      []corev1.Container{{Name: "init"}},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "look"}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1700000000, 0)}}}}},
	}
}

func newFixture(t *testing.T, pods ...*corev1.Pod) *fixture {
	t.Helper()
	f := &fixture{authority: newAuthority(t), pods: map[string]*corev1.Pod{}}
	f.remote = httptest.NewTLSServer(http.HandlerFunc(f.serveRemote))
	t.Cleanup(f.remote.Close)
	objects := []runtime.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"},
		Data: map[string]string{"client-ca-file": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: f.authority.certificate.Raw}))}}}
	for _, pod := range pods {
		objects = append(objects, pod)
		f.pods["/api/v1/namespaces/"+pod.Namespace+"-h1/pods/"+pod.Name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Labels: map[string]string{keys.HomeID: "h1", keys.PodUID: string(pod.UID)}}}
	}
	home := fake.NewClientset(objects...)
	home.PrependReactor("create", "subjectaccessreviews", judge)
	home.PrependReactor("create", "tokenreviews", identify)
	factory := informers.NewSharedInformerFactory(home, 0)
	nodes, podInformer := factory.Core().V1().Nodes().Informer(), factory.Core().V1().Pods()
	podInformer.Informer()
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())

	f.server = New(Config{Home: home, Nodes: nodes, Pods: podInformer.Informer(), NodeIP: "127.0.0.1", Listen: "127.0.0.1"})
	var err error
	f.port, err = f.server.Serve(t.Context(), "west")
	require.NoError(t, err)
	t.Cleanup(func() { f.server.Close("west") })
	f.session, err = session.Open(
		&v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"},
			Spec: v1alpha1.RemoteClusterSpec{Namespaces: v1alpha1.NamespaceMapping{Strategy: v1alpha1.Suffixed}}},
		&rest.Config{Host: f.remote.URL, BearerToken: remoteToken, TLSClientConfig: rest.TLSClientConfig{
			CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.remote.Certificate().Raw})}}, "h1")
	require.NoError(t, err)
	f.session.Gate.OpenUntil(time.Now().Add(time.Hour))
	f.server.Use("west", f.session)
	return f
}

// serveRemote is the remote API server.
func (f *fixture) serveRemote(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	pod, answer := f.pods[r.URL.Path], f.answer
	if pod == nil {
		f.requests = append(f.requests, r)
	}
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case pod != nil:
		_ = json.NewEncoder(w).Encode(pod)
	case answer != nil:
		answer(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: "there is none"})
	}
}

func (f *fixture) answers(answer http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *fixture) seen() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// tls is how a client with a certificate, nil for none, reaches the endpoint.
func (f *fixture) tls(certificate *tls.Certificate) *tls.Config {
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // it is self-signed
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	return config
}

func (f *fixture) url(path string) string { return fmt.Sprintf("https://127.0.0.1:%d%s", f.port, path) }

func judge(action kubetesting.Action) (bool, runtime.Object, error) {
	review := action.(kubetesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
	for _, group := range review.Spec.Groups {
		review.Status.Allowed = review.Status.Allowed || group == "operators"
	}
	attributes := review.Spec.ResourceAttributes
	if review.Spec.User == "scraper" && attributes.Subresource == "metrics" && attributes.Verb == "get" && attributes.Name == "west" {
		review.Status.Allowed = true
	}
	return true, review, nil
}

func identify(action kubetesting.Action) (bool, runtime.Object, error) {
	review := action.(kubetesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
	if review.Spec.Token == "scraper-token" {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "scraper"}}
	}
	return true, review, nil
}
