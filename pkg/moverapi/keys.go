package moverapi

import (
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
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Role is the part that the holder of a certificate has in a move.
type Role string

// The roles of a move.
const (
	// Sender reads the source volume.
	Sender Role = "sender"
	// Receiver writes the target volume.
	Receiver Role = "receiver"
	// Controller is the client of the sender's control port: it starts and stops tasks.
	Controller Role = "controller"
)

// Keys of the Secret that a role's pod mounts.
const (
	AuthorityFile   = "ca.crt"
	CertificateFile = "tls.crt"
	PrivateKeyFile  = "tls.key"
)

// Files are what one role needs, in PEM, by the names of the keys of its Secret.
type Files map[string][]byte

// ReadKeys reads a role's files from the folder that its Secret is mounted at.
func ReadKeys(folder string) (Files, error) {
	files := Files{}
	for _, name := range []string{AuthorityFile, CertificateFile, PrivateKeyFile} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, fmt.Errorf("read the move's keys: %w", err)
		}
		files[name] = content
	}
	return files, nil
}

// uid is the form that a move's UID must have, since it becomes part of a DNS name.
var uid = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// HostName is the DNS name of a role in the move with a UID.
func HostName(role Role, move string) string {
	return string(role) + "." + move + ".move.lodestone.dev"
}

// IssueKeys makes new keys for the move with a UID, valid from one hour before now until validity
// later. Each call makes a new authority, so files of two calls do not fit together: if a part is
// lost, all must be issued again. An error means that the UID cannot be part of a DNS name, or that
// no random numbers could be read.
func IssueKeys(move string, now time.Time, validity time.Duration) (map[Role]Files, error) {
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

// early is how long before their creation keys are valid, since clocks differ.
const early = time.Hour

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
	name := HostName(role, move)
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

// Client is the configuration of a TLS client that holds files and talks to the
// role peer of the move, and to nobody else. TLS 1.3 only; no session is resumed.
func (f Files) Client(move string, peer Role) (*tls.Config, error) {
	config, authority, err := f.config()
	if err != nil {
		return nil, err
	}
	config.RootCAs = authority
	config.ServerName = HostName(peer, move)
	return config, nil
}

// Server is the configuration of a TLS server that holds files and lets in the role
// peer of the move, and nobody else. TLS 1.3 only; no session is resumed.
func (f Files) Server(move string, peer Role) (*tls.Config, error) {
	config, authority, err := f.config()
	if err != nil {
		return nil, err
	}
	config.ClientCAs = authority
	config.ClientAuth = tls.RequireAndVerifyClientCert
	name := HostName(peer, move)
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("the client has no certificate")
		}
		if err := state.PeerCertificates[0].VerifyHostname(name); err != nil {
			return fmt.Errorf("the client is not the %s of this move: %w", peer, err)
		}
		return nil
	}
	return config, nil
}

func (f Files) config() (*tls.Config, *x509.CertPool, error) {
	certificate, err := tls.X509KeyPair(f[CertificateFile], f[PrivateKeyFile])
	if err != nil {
		return nil, nil, fmt.Errorf("read the move's keys: %w", err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(f[AuthorityFile]) {
		return nil, nil, fmt.Errorf("read the move's keys: %s holds no certificate", AuthorityFile)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true,
	}, authority, nil
}
