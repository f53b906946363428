package cli

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// authorityHash is how AuthorityHash writes.
var authorityHash = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// AuthorityHash names a certificate authority: the SHA-256 of its public key, as kubeadm writes it.
func AuthorityHash(authority *x509.Certificate) string {
	sum := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// IsAuthorityHash says whether a text can be one.
func IsAuthorityHash(text string) bool { return authorityHash.MatchString(text) }

// Authority returns the certificate authority that the API server of the cluster is known by: the one that its certificate leads to.
func (c *Cluster) Authority(ctx context.Context) (*x509.Certificate, error) {
	config, err := rest.TLSConfigFor(c.Config)
	if err != nil {
		return nil, Misuse("context %q cannot be used: %w; correct the kubeconfig", c.Context, err)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12} // with the authorities of the system
	}
	if config.InsecureSkipVerify {
		return nil, Misuse("the kubeconfig does not check the certificate of context %q, so nobody knows its certificate authority: put "+
			"certificate-authority-data into it", c.Context)
	}
	// No credentials are needed for that.
	config.Certificates, config.GetClientCertificate = nil, nil
	response, err := visit(ctx, strings.TrimSuffix(c.Config.Host, "/")+"/version", config)
	if err != nil {
		return nil, c.Explain("see its certificate", err)
	}
	response.Body.Close()
	if response.TLS == nil || len(response.TLS.VerifiedChains) == 0 {
		return nil, Misuse("the address %q of context %q is not one of https: correct the kubeconfig", c.Config.Host, c.Context)
	}
	chain := response.TLS.VerifiedChains[0]
	return chain[len(chain)-1], nil
}

// visit sends one GET request without credentials. It follows no redirections.
func visit(ctx context.Context, address string, config *tls.Config) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := &http.Client{
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		},
	}
	return client.Do(request)
}

// clusterInfo is where kubeadm leaves the certificate authority of a cluster, for everybody to read.
const clusterInfo = "/api/v1/namespaces/" + metav1.NamespacePublic + "/configmaps/cluster-info"

// maxClusterInfo is how much of an answer is read of a server that nobody vouches for.
const maxClusterInfo = 256 << 10

// FindAuthority returns, in PEM, the certificate authority of the API server at an address, https://<host>:<port>, that nobody vouches
// for. It must have the hash that AuthorityHash gives, and the server's certificate must be signed with it for that host. It is looked
// for in known (PEM; may be nil), in what the server shows in the TLS handshake, and in the ConfigMap cluster-info of namespace
// kube-public, which clusters of kubeadm show to everybody. The server gets no credentials.
func FindAuthority(ctx context.Context, address, hash string, known []byte) ([]byte, error) {
	// Nothing is believed of this connection but what has the hash.
	unchecked := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	response, err := visit(ctx, strings.TrimSuffix(address, "/")+clusterInfo, unchecked)
	if err != nil {
		var request *url.Error
		if errors.As(err, &request) { // the rest of it is a long address
			err = request.Err
		}
		return nil, fmt.Errorf("the API server at %q does not answer (%w): see whether you reach it from here, and ask its owner whether the "+
			"address is right", address, err)
	}
	defer response.Body.Close()
	shown := response.TLS.PeerCertificates
	content, err := io.ReadAll(io.LimitReader(response.Body, maxClusterInfo))
	if err != nil {
		content = nil // the handshake may do
	}
	candidates := slices.Concat(certificates(known), shown, certificates(authorityIn(content)))
	i := slices.IndexFunc(candidates, func(c *x509.Certificate) bool { return AuthorityHash(c) == hash })
	if i < 0 {
		return nil, Refuse("the server at %q shows no certificate authority with the hash that its owner handed out, so the token was not sent: "+
			"compare --remote-ca-hash with what \"kubectl lodestone announce\" says to the owner; if it is the same, the address may be somebody "+
			"else's, or the server does not show its authority: then ask the owner for the file, and give it with --remote-ca-file", address)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(candidates[i])
	for _, certificate := range shown[1:] {
		between.AddCert(certificate)
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: response.Request.URL.Hostname()}
	if _, err := shown[0].Verify(options); err != nil {
		return nil, Refuse("the server at %q has a certificate that the authority of --remote-ca-hash has not signed for it (%w), so the token "+
			"was not sent: ask the owner of the cluster whether the address is right", address, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: candidates[i].Raw}), nil
}

// authorityIn returns the certificate authority in a ConfigMap cluster-info, nil if there is none.
func authorityIn(content []byte) []byte {
	var object corev1.ConfigMap
	if json.Unmarshal(content, &object) != nil {
		return nil
	}
	config, err := clientcmd.Load([]byte(object.Data["kubeconfig"]))
	if err != nil {
		return nil
	}
	for _, cluster := range config.Clusters {
		return cluster.CertificateAuthorityData
	}
	return nil
}

// certificates returns the certificates in PEM; what cannot be read is left out.
func certificates(content []byte) (all []*x509.Certificate) {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, certificate)
		}
	}
	return all
}

// ConnectAnnounced returns the cluster at an address, https://<host>:<port>, that nobody vouches for, under a name for messages. It logs
// in with a token once FindAuthority has found the authority, so that nobody else gets that.
func ConnectAnnounced(ctx context.Context, name, address, hash, token string, known []byte) (*Cluster, error) {
	authority, err := FindAuthority(ctx, address, hash, known)
	if err != nil {
		return nil, err
	}
	cluster, err := newCluster(name, &rest.Config{Host: address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: authority}})
	if err != nil {
		return nil, Misuse("the address %q of cluster %q cannot be used: %w; ask its owner", address, name, err)
	}
	cluster.handedOut = true
	return cluster, nil
}
