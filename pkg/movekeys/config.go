package movekeys

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Read reads a role's files from the folder that its Secret is mounted at.
func Read(folder string) (Files, error) {
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

// Client is the configuration of a TLS client that holds files and talks to the
// role peer of the move, and to nobody else. TLS 1.3 only; no session is resumed.
func (f Files) Client(move string, peer Role) (*tls.Config, error) {
	config, authority, err := f.config()
	if err != nil {
		return nil, err
	}
	config.RootCAs = authority
	config.ServerName = Name(peer, move)
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
	name := Name(peer, move)
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
