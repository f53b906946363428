package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/klog/v2"
)

const (
	// approvalTime is how long a certificate request waits for approval before another one is made:
	// kube-controller-manager deletes pending ones after a day.
	approvalTime = 24 * time.Hour
	// refusalTime is how soon after a refusal the next request is made.
	refusalTime = 24 * time.Hour
	// selfSignedTime is how long a self-signed certificate is valid.
	selfSignedTime = 365 * 24 * time.Hour
)

// certificate is the serving certificate of one endpoint. It begins self-signed, and is replaced by
// one that the cluster has signed as soon as somebody approves the request.
type certificate struct {
	home    kubernetes.Interface
	node    string
	address net.IP
	current atomic.Pointer[tls.Certificate]
}

func newCertificate(home kubernetes.Interface, node, address string) (*certificate, error) {
	c := &certificate{home: home, node: node, address: net.ParseIP(address)}
	return c, c.signSelf(time.Now())
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// subject returns the subject that the signer of kubelet certificates requires.
func (c *certificate) subject() pkix.Name {
	return pkix.Name{CommonName: "system:node:" + c.node, Organization: []string{"system:nodes"}}
}

func (c *certificate) signSelf(now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fmt.Errorf("make a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: c.subject(),
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedTime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{c.node}, IPAddresses: []net.IP{c.address},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return fmt.Errorf("sign a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("read a certificate: %w", err)
	}
	c.current.Store(&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf})
	return nil
}

// renew requests certificates of the cluster until ctx ends, each before the last one expires.
// Until the first is issued, and if none is, the self-signed one is served.
func (c *certificate) renew(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for {
		pause := refusalTime
		err := c.request(ctx)
		leaf := c.current.Load().Leaf
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			lifetime := leaf.NotAfter.Sub(leaf.NotBefore)
			pause = max(time.Until(leaf.NotBefore.Add(lifetime*8/10)), time.Minute)
		case time.Until(leaf.NotAfter) < 2*refusalTime+approvalTime:
			if err := c.signSelf(time.Now()); err != nil {
				logger.Error(err, "The certificate could not be renewed", "node", c.node)
			}
		}
		if err != nil {
			logger.V(2).Info("No certificate of the cluster was given, so the last one serves", "node", c.node, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// request makes a certificate request in the cluster, and waits for its approval.
func (c *certificate) request(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: c.subject(), DNSNames: []string{c.node}, IPAddresses: []net.IP{c.address}}, key)
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	request := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	ctx, cancel := context.WithTimeout(ctx, approvalTime)
	defer cancel()
	name, uid, err := csr.RequestCertificateWithContext(ctx, c.home, request, "", certificatesv1.KubeletServingSignerName, nil,
		[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}, key)
	if err != nil {
		return fmt.Errorf("request a certificate: %w", err)
	}
	klog.FromContext(ctx).Info("A serving certificate was requested: approve it (kubectl certificate approve) to have it used", "node", c.node,
		"request", name)
	chain, err := csr.WaitForCertificate(ctx, c.home, name, uid)
	if err != nil {
		return fmt.Errorf("wait for certificate %s: %w", name, err)
	}
	given, err := pair(chain, key)
	if err != nil {
		return fmt.Errorf("read certificate %s: %w", name, err)
	}
	c.current.Store(given)
	klog.FromContext(ctx).Info("A certificate of the cluster serves", "node", c.node, "request", name)
	return nil
}

func pair(chain []byte, key *ecdsa.PrivateKey) (*tls.Certificate, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	given, err := tls.X509KeyPair(chain, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	return &given, err
}
