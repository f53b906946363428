package testbed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

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
		DNSNames:     []string{"localhost", "kubernetes.default.svc"},
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
	for name, key := range map[string]*ecdsa.PrivateKey{caKeyFile: caKey, servingKeyFile: servingKey, kubeletKeyFile: kubeletKey, accountKeyFile: accountKey} {
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
