package mtls

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// clients says whose certificates are accepted.
type clients struct {
	authorities *x509.CertPool
	// names are common names and DNS names, of which the certificate must have
	// one; none: any.
	names []string
}

// admit judges the certificates that a client has shown, its own first.
func (c *clients) admit(shown []*x509.Certificate, now time.Time) error {
	if len(shown) == 0 {
		return errors.New("no client certificate: set certFile and keyFile in the scheduler's tlsConfig")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range shown[1:] {
		intermediates.AddCert(certificate)
	}
	if _, err := shown[0].Verify(x509.VerifyOptions{
		Roots: c.authorities, Intermediates: intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return fmt.Errorf("the client certificate is not accepted: give kube-scheduler one of the CA in --client-ca-file: %w", err)
	}
	return c.named(shown[0])
}

// named judges the name of a verified certificate.
func (c *clients) named(certificate *x509.Certificate) error {
	if len(c.names) == 0 {
		return nil
	}
	for _, name := range c.names {
		if certificate.Subject.CommonName == name {
			return nil
		}
		for _, other := range certificate.DNSNames {
			if other == name {
				return nil
			}
		}
	}
	return fmt.Errorf("the client certificate is for %q, not for one of --client-name (%s)", certificate.Subject.CommonName, strings.Join(c.names, ", "))
}
