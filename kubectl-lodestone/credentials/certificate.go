package credentials

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

// NewKey returns a new private key in PEM. It is stored only in the home cluster.
func NewKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a private key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// Request returns a certificate request in PEM for a user of a group, signed
// with a private key in PEM, and a short name that belongs to that key.
func Request(keyPEM []byte, user, group string) (request []byte, name string, err error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, "", errors.New("the private key is not in PEM")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, "", fmt.Errorf("read the private key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: user, Organization: []string{group}},
	}, key)
	if err != nil {
		return nil, "", fmt.Errorf("make the certificate request: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, "", fmt.Errorf("encode the public key: %w", err)
	}
	sum := sha256.Sum256(public)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), hex.EncodeToString(sum[:5]), nil
}

// Difference says in what two certificate requests in PEM ask for different certificates; empty if
// they ask for the same.
func Difference(have, want []byte) string {
	other, err := parse(have)
	if err != nil {
		return "its certificate request cannot be read"
	}
	own, err := parse(want)
	switch {
	case err != nil:
		return err.Error()
	case !bytes.Equal(other.RawSubjectPublicKeyInfo, own.RawSubjectPublicKeyInfo):
		return "it is for another key"
	case !bytes.Equal(other.RawSubject, own.RawSubject):
		return fmt.Sprintf("it is for another subject, %q", other.Subject)
	case len(other.Extensions) != len(own.Extensions):
		return "it asks for extensions"
	case other.CheckSignature() != nil:
		return "it is not signed with its key"
	}
	return ""
}

func parse(content []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("the certificate request is not in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the certificate request: %w", err)
	}
	return request, nil
}
