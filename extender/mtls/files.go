package mtls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// maxFile bounds a file in bytes; bundles of authorities take a few thousand.
const maxFile = 1 << 20

// Files are paths of PEM files.
type Files struct {
	// Certificate is the server's, followed by intermediates if there are any;
	// Key is its private key.
	Certificate, Key string
	// ClientCA holds the authorities whose client certificates are accepted.
	ClientCA string
}

// contents are what the files held at one moment.
type contents struct {
	certificate, key, clientCA []byte
}

func (c *contents) equal(other *contents) bool {
	return bytes.Equal(c.certificate, other.certificate) && bytes.Equal(c.key, other.key) && bytes.Equal(c.clientCA, other.clientCA)
}

func (f Files) read() (*contents, error) {
	read := &contents{}
	for path, into := range map[string]*[]byte{f.Certificate: &read.certificate, f.Key: &read.key, f.ClientCA: &read.clientCA} {
		content, err := readFile(path)
		if err != nil {
			return nil, err
		}
		*into = content
	}
	return read, nil
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open a file of the certificates: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d KiB: it is no file of certificates", path, maxFile>>10)
	}
	return content, nil
}

// credentials are what the contents mean.
type credentials struct {
	pair      tls.Certificate
	clientCAs []*x509.Certificate
}

// parse refuses contents that are broken or half written: of certificates that
// cannot be read none is skipped.
func (f Files) parse(read *contents) (*credentials, error) {
	if _, err := parseBundle(read.certificate); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Certificate, err)
	}
	pair, err := tls.X509KeyPair(read.certificate, read.key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s are no pair of certificate and key: %w", f.Certificate, f.Key, err)
	}
	authorities, err := parseBundle(read.clientCA)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.ClientCA, err)
	}
	for _, authority := range authorities {
		if !authority.IsCA {
			return nil, fmt.Errorf("%s holds the certificate %q, which is not that of an authority", f.ClientCA, authority.Subject)
		}
	}
	return &credentials{pair: pair, clientCAs: authorities}, nil
}

func parseBundle(content []byte) ([]*x509.Certificate, error) {
	var bundle []*x509.Certificate
	for rest := content; ; {
		block, after := pem.Decode(rest)
		if block == nil {
			if len(bundle) == 0 || bytes.Contains(rest, []byte("-----BEGIN")) {
				return nil, errors.New("no certificates in PEM, or only a part of them")
			}
			return bundle, nil
		}
		rest = after
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a %q where only certificates belong", block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read a certificate: %w", err)
		}
		bundle = append(bundle, certificate)
	}
}

// expiry returns when kube-scheduler no longer accepts the server's certificate.
func (c *credentials) expiry() time.Time {
	return c.pair.Leaf.NotAfter
}

// clientCAExpiry returns when no client certificate can be accepted any more.
func (c *credentials) clientCAExpiry() time.Time {
	var last time.Time
	for _, authority := range c.clientCAs {
		if authority.NotAfter.After(last) {
			last = authority.NotAfter
		}
	}
	return last
}
