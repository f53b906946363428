package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority is a certificate authority.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{certificate, key}
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// serving is a certificate of an API server for an address.
func (a authority) serving(t *testing.T, ip net.IP) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), IPAddresses: []net.IP{ip},
		NotBefore: a.certificate.NotBefore, NotAfter: a.certificate.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		a.certificate, &key.PublicKey, a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// server is an API server that records what it was sent.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	paths  []string
	logins []string
}

func newServer(t *testing.T, certificate tls.Certificate, clusterInfo []byte) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.paths = append(s.paths, r.URL.Path)
		s.logins = append(s.logins, r.Header.Get("Authorization"))
		if r.URL.Path == "/api/v1/namespaces/kube-public/configmaps/cluster-info" && clusterInfo != nil {
			_, _ = w.Write(clusterInfo)
			return
		}
		http.Error(w, "{}", http.StatusForbidden)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// infoOf is the ConfigMap cluster-info as kubeadm writes it.
func infoOf(t *testing.T, ca []byte) []byte {
	t.Helper()
	config, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"": {CertificateAuthorityData: ca}}})
	require.NoError(t, err)
	content, err := json.Marshal(corev1.ConfigMap{Data: map[string]string{"kubeconfig": string(config)}})
	require.NoError(t, err)
	return content
}

func TestATokenGoesToTheServerOfTheAuthorityThatTheOwnerNamedAndToNoOther(t *testing.T) {
	owner, other, here := newAuthority(t), newAuthority(t), net.IPv4(127, 0, 0, 1)
	leaf := owner.serving(t, here)
	chain := leaf
	chain.Certificate = append(chain.Certificate[:1:1], owner.certificate.Raw)
	pretended := other.serving(t, here)
	pretended.Certificate = append(pretended.Certificate, owner.certificate.Raw)
	elsewhere := owner.serving(t, net.IPv4(192, 0, 2, 1))
	elsewhere.Certificate = append(elsewhere.Certificate, owner.certificate.Raw)
	const none = "shows no certificate authority with the hash that its owner handed out"
	for name, row := range map[string]struct {
		shows       tls.Certificate
		info, known []byte
		says        string
	}{
		"the handshake shows it":                    {shows: chain},
		"cluster-info shows it":                     {shows: leaf, info: infoOf(t, owner.pem())},
		"the owner has handed out its file":         {shows: leaf, known: owner.pem()},
		"nothing shows it":                          {shows: leaf, says: none},
		"a server of another authority":             {shows: other.serving(t, here), info: infoOf(t, other.pem()), says: none},
		"the file is of another one":                {shows: other.serving(t, here), known: other.pem(), says: none},
		"cluster-info is no ConfigMap":              {shows: leaf, info: []byte("<html>"), says: none},
		"cluster-info is no end of bytes":           {shows: leaf, info: make([]byte, 10*maxClusterInfo), says: none},
		"another one shows it, and lacks its key":   {shows: pretended, says: "has not signed for it"},
		"another one has it in cluster-info":        {shows: other.serving(t, here), info: infoOf(t, owner.pem()), says: "has not signed for it"},
		"the server of the owner, but another host": {shows: elsewhere, says: "has not signed for it"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, row.shows, row.info)
			cluster, err := ConnectAnnounced(t.Context(), "west", s.URL, AuthorityHash(owner.certificate), "the-token", row.known)
			if row.says != "" {
				assert.ErrorContains(t, err, row.says)
				assert.ErrorContains(t, err, "the token was not sent")
				assert.Equal(t, Refused, ExitCodeOf(err))
				assert.NotEmpty(t, s.paths)
			} else {
				require.NoError(t, err)
				assert.NotContains(t, s.logins, "Bearer the-token")
				_, err := cluster.UID(t.Context())
				assert.ErrorContains(t, err, `in the cluster of context "west"`)
				assert.Equal(t, "Bearer the-token", s.logins[len(s.logins)-1])
				s.logins = s.logins[:len(s.logins)-1]
			}
			for _, login := range s.logins {
				assert.Empty(t, login)
			}
		})
	}
}

func TestAServerThatIsNotThereIsSaid(t *testing.T) {
	_, err := FindAuthority(t.Context(), "https://127.0.0.1:1", "sha256:00", nil)
	assert.ErrorContains(t, err, `the API server at "https://127.0.0.1:1" does not answer (`)
	assert.NotContains(t, err.Error(), clusterInfo)
}

func TestTheAuthorityOfAClusterIsTheOneThatItsCertificateLeadsTo(t *testing.T) {
	owner, old := newAuthority(t), newAuthority(t)
	s := newServer(t, owner.serving(t, net.IPv4(127, 0, 0, 1)), nil)
	cluster := &Cluster{Context: "west", Config: &rest.Config{Host: s.URL, BearerToken: "the-token", TLSClientConfig: rest.TLSClientConfig{
		CAData: append(old.pem(), owner.pem()...)}}}
	found, err := cluster.Authority(t.Context())
	require.NoError(t, err)
	assert.Equal(t, AuthorityHash(owner.certificate), AuthorityHash(found))
	assert.NotEqual(t, AuthorityHash(old.certificate), AuthorityHash(found))
	assert.True(t, IsAuthorityHash(AuthorityHash(found)))
	assert.Equal(t, []string{""}, s.logins)

	cluster.Config.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	_, err = cluster.Authority(t.Context())
	assert.ErrorContains(t, err, "does not check the certificate")
}
