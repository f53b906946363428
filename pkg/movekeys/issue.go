// Package movekeys makes the keys of one move, and the TLS configurations that use
// them. A move has an authority of its own, whose private key is dropped as soon as
// it has signed three leaves: one for the sender, one for the receiver, one for the
// controller. A leaf's name is bound to its role and to the move, so neither a
// certificate of another move nor that of another role of this one is accepted.
package movekeys

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"time"
)

// Role is what a certificate's holder is in a move.
type Role string

// The roles of a move.
const (
	// Sender reads the source volume.
	Sender Role = "sender"
	// Receiver writes the target volume.
	Receiver Role = "receiver"
	// Controller tells the sender what to do.
	Controller Role = "controller"
)

// Keys of the Secret that a role's pod mounts.
const (
	AuthorityFile   = "ca.crt"
	CertificateFile = "tls.crt"
	PrivateKeyFile  = "tls.key"
)

// early is how long before they are made keys are valid: clocks differ.
const early = time.Hour

// Files are what one role needs, in PEM, by the names of the keys of its Secret.
type Files map[string][]byte

// uid is what a move's UID may look like: it becomes part of a DNS name.
var uid = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Name is the DNS name of a role in the move with a UID.
func Name(role Role, move string) string {
	return string(role) + "." + move + ".move.lodestone.dev"
}

// Issue makes new keys for the move with a UID, valid from one hour before now until
// validity later. Each call makes an authority of its own: files of two calls do not
// fit together, so whoever has lost a part of them issues all anew. An error means
// that the UID cannot be part of a name, or that the machine gave no random numbers.
func Issue(move string, now time.Time, validity time.Duration) (map[Role]Files, error) {
	if !uid.MatchString(move) {
		return nil, fmt.Errorf("issue keys: %q cannot be a move's UID", move)
	}
	if validity <= 0 {
		return nil, errors.New("issue keys: they would never be valid")
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "move " + move},
		NotBefore: now.Add(-early), NotAfter: now.Add(validity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{move + ".move.lodestone.dev"},
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of the move's authority: %w", err)
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, signer.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign the move's authority: %w", err)
	}
	usages := map[Role][]x509.ExtKeyUsage{
		// The sender is the client of the data connection, and serves the controller.
		Sender:     {x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		Receiver:   {x509.ExtKeyUsageServerAuth},
		Controller: {x509.ExtKeyUsageClientAuth},
	}
	issued := map[Role]Files{}
	for role, usage := range usages {
		files, err := leaf(role, move, usage, authority, signer)
		if err != nil {
			return nil, err
		}
		files[AuthorityFile] = encode("CERTIFICATE", authorityDER)
		issued[role] = files
	}
	return issued, nil
}

// leaf makes the key and the certificate of a role.
func leaf(role Role, move string, usage []x509.ExtKeyUsage, authority *x509.Certificate, signer *ecdsa.PrivateKey) (Files, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of the %s: %w", role, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	name := Name(role, move)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: string(role)}, DNSNames: []string{name},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usage, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of the %s: %w", role, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key of the %s: %w", role, err)
	}
	return Files{CertificateFile: encode("CERTIFICATE", der), PrivateKeyFile: encode("PRIVATE KEY", private)}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
