package testbed

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

const directoryPrefix = "lodestone-testbed-"

// directory holds the files of one cluster: data, keys and logs.
type directory struct {
	path string
	lock *os.File
}

// newDirectory makes a directory in the system's temporary folder. Its lock tells
// sweepDirectories that the owner is alive.
func newDirectory(name string) (*directory, error) {
	path, err := os.MkdirTemp("", directoryPrefix+name+"-")
	if err != nil {
		return nil, fmt.Errorf("make the directory of cluster %s: %w", name, err)
	}
	d := &directory{path: path}
	if err := d.takeLock(); err != nil {
		_ = os.RemoveAll(path)
		return nil, fmt.Errorf("lock the directory of cluster %s: %w", name, err)
	}
	if err := os.Mkdir(d.file("logs"), 0o755); err != nil {
		d.remove()
		return nil, fmt.Errorf("make the log directory of cluster %s: %w", name, err)
	}
	return d, nil
}

// takeLock locks the file before it gets its name, so that nobody sees it unlocked.
func (d *directory) takeLock() error {
	lock, err := os.Create(d.file("lock.new"))
	if err != nil {
		return err
	}
	d.lock = lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	return os.Rename(lock.Name(), d.file("lock"))
}

func (d *directory) file(elements ...string) string {
	return filepath.Join(append([]string{d.path}, elements...)...)
}

func (d *directory) write(name string, content []byte) error {
	if err := os.WriteFile(d.file(name), content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (d *directory) remove() {
	_ = os.RemoveAll(d.path)
	_ = d.lock.Close()
}

// removeAllButLogs keeps the logs and returns their directory.
func (d *directory) removeAllButLogs() string {
	logs := d.file("logs")
	entries, _ := os.ReadDir(d.path)
	for _, entry := range entries {
		if path := d.file(entry.Name()); path != logs {
			_ = os.RemoveAll(path)
		}
	}
	_ = d.lock.Close()
	return logs
}

// sweepDirectories removes what test beds left behind whose process was killed.
func sweepDirectories() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), directoryPrefix+"*", "lock"))
	for _, path := range locks {
		lock, err := os.Open(path)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		_ = lock.Close()
	}
}

const (
	caCertificateFile      = "ca.crt"
	caKeyFile              = "ca.key"
	servingCertificateFile = "apiserver.crt"
	servingKeyFile         = "apiserver.key"
	kubeletCertificateFile = "apiserver-kubelet-client.crt"
	kubeletKeyFile         = "apiserver-kubelet-client.key"
	accountKeyFile         = "service-accounts.key"
	tokensFile             = "tokens.csv"
)

// writeKeys writes a new certificate authority, the API server's serving
// certificate, the one that it shows to kubelets, and the key of service account
// tokens. It returns the authority's
// certificate in PEM.
func writeKeys(d *directory, cluster string) ([]byte, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the certificate authority: %w", err)
	}
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "lodestone test bed " + cluster},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caPEM, err := sign(ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	servingKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the API server: %w", err)
	}
	serving := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:    ca.NotBefore,
		NotAfter:     ca.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost", "kubernetes", "kubernetes.default.svc"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	servingPEM, err := sign(serving, ca, &servingKey.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	kubeletKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key that the API server shows to kubelets: %w", err)
	}
	client := &x509.Certificate{
		SerialNumber: big.NewInt(3),
		Subject:      pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
		NotBefore:    ca.NotBefore,
		NotAfter:     ca.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	kubeletPEM, err := sign(client, ca, &kubeletKey.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	accountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of service account tokens: %w", err)
	}
	for name, key := range map[string]*ecdsa.PrivateKey{caKeyFile: caKey, servingKeyFile: servingKey, kubeletKeyFile: kubeletKey,
		accountKeyFile: accountKey} {
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		if err := d.write(name, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})); err != nil {
			return nil, err
		}
	}
	if err := d.write(caCertificateFile, caPEM); err != nil {
		return nil, err
	}
	if err := d.write(kubeletCertificateFile, kubeletPEM); err != nil {
		return nil, err
	}
	return caPEM, d.write(servingCertificateFile, servingPEM)
}

func sign(certificate, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, certificate, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", certificate.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// tokenLifetime is longer than any test run or demo.
const tokenLifetime = 7 * 24 * time.Hour

// identity is a user that the API server knows by a token.
type identity struct {
	user, groups, token string
}

func newIdentity(user, groups string) identity {
	return identity{user: user, groups: groups, token: rand.Text()}
}

// tokenFile is the content of the API server's --token-auth-file.
func tokenFile(identities ...identity) []byte {
	var lines strings.Builder
	for _, id := range identities {
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", id.token, id.user, id.user, id.groups)
	}
	return []byte(lines.String())
}

// UserAgent is what clients of the test bed call themselves, whoever's token they have.
const UserAgent = "lodestone-testbed"

// config returns a client configuration for the bearer of token, with rates that
// never throttle a test.
func (c *Cluster) config(token string) *rest.Config {
	return &rest.Config{
		Host:            c.server(),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
		QPS:             1000,
		Burst:           2000,
		UserAgent:       UserAgent,
	}
}

// kubeconfig returns a self-contained kubeconfig for the bearer of token.
func (c *Cluster) kubeconfig(user, token string) ([]byte, error) {
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{c.Name(): {Server: c.server(), CertificateAuthorityData: c.ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{c.Name(): {Cluster: c.Name(), AuthInfo: user}},
		CurrentContext: c.Name(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode a kubeconfig for %s: %w", user, err)
	}
	return content, nil
}

// AdminConfig returns a new client configuration with all rights.
func (c *Cluster) AdminConfig() *rest.Config { return c.config(c.admin.token) }

// Client returns a client with all rights.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// UserConfig returns a client configuration that acts as the user name in the given
// groups and system:authenticated, with the rights that RBAC gives them.
func (c *Cluster) UserConfig(name string, groups ...string) *rest.Config {
	config := c.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: name,
		Groups:   append([]string{"system:authenticated"}, groups...),
	}
	return config
}

// ServiceAccountConfig returns a client configuration with a token of an existing
// service account.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	token, err := c.serviceAccountToken(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return c.config(token), nil
}

// ServiceAccountKubeconfig returns a self-contained kubeconfig with a token of an
// existing service account.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) ([]byte, error) {
	token, err := c.serviceAccountToken(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return c.kubeconfig(name, token)
}

func (c *Cluster) serviceAccountToken(ctx context.Context, namespace, name string) (string, error) {
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds()))},
	}
	response, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token of service account %s/%s: %w", namespace, name, err)
	}
	return response.Status.Token, nil
}

// writeKubectl writes a command that runs kubectl with all rights on this cluster.
func (c *Cluster) writeKubectl() error {
	// A call is over before there is much to collect.
	script := fmt.Sprintf("#!/bin/sh\nGOGC=off GOMEMLIMIT=1GiB KUBECACHEDIR='%s' exec '%s' kubectl --kubeconfig '%s' \"$@\"\n",
		c.dir.file("kubectl-cache"), c.binary, c.Kubeconfig())
	if err := os.WriteFile(c.KubectlPath(), []byte(script), 0o755); err != nil {
		return fmt.Errorf("write the kubectl command: %w", err)
	}
	return nil
}

// KubectlPath returns the path of a command that runs kubectl with all rights on
// this cluster.
func (c *Cluster) KubectlPath() string { return c.dir.file("kubectl") }

// Program returns the path of the program whose subcommand kubectl is kubectl.
func (c *Cluster) Program() string { return c.binary }

// Kubectl runs kubectl with all rights on this cluster, with stdin as its standard
// input, and returns its standard output. The error holds what it wrote to standard
// error.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.KubectlPath(), args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s in cluster %s: %w: %s",
			strings.Join(args, " "), c.Name(), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
