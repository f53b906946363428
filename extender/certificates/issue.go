package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Skew is how far the clocks of machines may differ: certificates are valid from
// that long before they are made.
const Skew = time.Hour

// Pair is a certificate and its private key.
type Pair struct {
	Certificate *x509.Certificate
	key         crypto.Signer
}

// ParsePair reads a certificate and the key that belongs to it, both in PEM.
func ParsePair(certificate, key []byte) (*Pair, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read a certificate and its key: %w", err)
	}
	private, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	return &Pair{Certificate: pair.Leaf, key: private}, nil
}

// CertificatePEM returns the certificate in PEM.
func (p *Pair) CertificatePEM() []byte {
	return encode(p.Certificate)
}

// KeyPEM returns the private key in PEM.
func (p *Pair) KeyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encode(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

// parseCertificate returns nil for what is no certificate in PEM.
func parseCertificate(content []byte) *x509.Certificate {
	block, _ := pem.Decode(content)
	if block == nil {
		return nil
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return certificate
}

// NewAuthority makes an authority that signs itself.
func NewAuthority(now time.Time, life time.Duration) (*Pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "lodestone-extender " + now.UTC().Format("2006-01-02 15:04:05")},
		NotAfter:              now.Add(life),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	return sign(now, template, nil)
}

// Leaf says what a certificate is for.
type Leaf struct {
	// Name is its common name.
	Name string
	// Usage tells servers from clients, so that neither can pass for the other.
	Usage x509.ExtKeyUsage
	// Hosts are the DNS names and addresses of a server.
	Hosts []string
	// Life is how long a certificate is valid, unless its authority ends before.
	Life time.Duration
}

// Issue makes a certificate signed by an authority.
func (p *Pair) Issue(now time.Time, leaf Leaf) (*Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: leaf.Name},
		NotAfter:    now.Add(leaf.Life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{leaf.Usage},
	}
	if last := p.Certificate.NotAfter; template.NotAfter.After(last) {
		template.NotAfter = last
	}
	for _, host := range leaf.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return sign(now, template, p)
}

// sign makes a key and completes the template; without parent it signs itself.
func sign(now time.Time, template *x509.Certificate, parent *Pair) (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a private key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template.NotBefore = now.Add(-Skew)
	signer := &Pair{Certificate: template, key: key}
	if parent != nil {
		signer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Certificate, &key.PublicKey, signer.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return &Pair{Certificate: certificate, key: key}, nil
}
