// Package mtls restricts the verbs to clients that the administrator has named: they are served
// over TLS 1.3, to holders of a certificate of the client CA. Open reads certificate, key and CA
// from files, and Server.Follow reads them again when they change, as Secret volumes do. Read
// server.go first.
//
// New files apply to new connections. A connection that was accepted with older files is checked
// again at its next request and closed after it, so that a removed authority does not remain
// accepted in an open connection. Every connection is closed after a while, so that the client
// shows its latest certificate.
//
// RunCertificateJob (certificates.go) makes and renews the certificates: an authority, the
// extender's certificate and kube-scheduler's. They are in three Secrets, which exist before,
// empty: so nobody needs the right to create Secrets. Both sides trust the bundle ca.crt. The next
// authority is added to the bundle long before it signs anything, and an authority stays in the
// bundle until it expires:
//
//	life of the authority   0 ......... 2/3 ........ 5/6 ......... 1
//	signs                   this one               | the next one
//	in the bundle           this one   | both                      | the next one
//
// The job may run at any time, also twice at the same time.
package mtls

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// Kinds of certificates whose expiry is observed.
const (
	// ServerCertificate is the certificate that is served.
	ServerCertificate = "server"
	// ClientCA is the client authority that expires last.
	ClientCA = "client_ca"
	// ClientCertificate is the certificate of the client that connected last.
	ClientCertificate = "client"
)

// Observer gets events for metrics. Its methods are safe for concurrent use and do not block.
type Observer interface {
	// Expires is called whenever another certificate of a kind is used.
	Expires(kind string, at time.Time)
	// ReloadFailed is called for each change of the files that is not usable.
	ReloadFailed()
	// HandshakeFailed is called for each connection that was refused.
	HandshakeFailed()
}

// Settings configure a Server.
type Settings struct {
	Files Files
	// Names are common names and DNS names of which a client certificate must
	// have one; none: any certificate of the client CA is accepted.
	Names []string
}

// Server serves with the latest usable content of its files. Its methods are safe for concurrent
// use, except Follow, which runs once.
type Server struct {
	settings Settings
	now      func() time.Time
	observer Observer
	current  atomic.Pointer[generation]
	// refused is the content that was last rejected; only Follow uses it.
	refused *contents
}

// generation is what applies between two changes of the files.
type generation struct {
	contents    *contents
	credentials *credentials
	clients     *clients
	config      *tls.Config
}

// Open reads the files. It returns an error if they are not usable; an expired certificate is
// usable, but see Problem.
func Open(settings Settings, now func() time.Time, observer Observer) (*Server, error) {
	s := &Server{settings: settings, now: now, observer: observer}
	read, err := settings.Files.read()
	if err != nil {
		return nil, err
	}
	first, err := s.generation(read)
	if err != nil {
		return nil, err
	}
	s.use(first)
	return s, nil
}

func (s *Server) generation(read *contents) (*generation, error) {
	parsed, err := s.settings.Files.parse(read)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, authority := range parsed.clientCAs {
		pool.AddCert(authority)
	}
	accepted := &clients{authorities: pool, names: s.settings.Names}
	return &generation{contents: read, credentials: parsed, clients: accepted, config: &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{parsed.pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		// kube-scheduler sends one request at a time, so HTTP/2 would gain nothing.
		NextProtos: []string{"http/1.1"},
		// A resumed session would be checked with the authorities of its first handshake.
		SessionTicketsDisabled: true,
		Time:                   s.now,
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := accepted.named(state.PeerCertificates[0]); err != nil {
				return err
			}
			s.observer.Expires(ClientCertificate, state.PeerCertificates[0].NotAfter)
			return nil
		},
	}}, nil
}

func (s *Server) use(g *generation) {
	s.current.Store(g)
	s.observer.Expires(ServerCertificate, g.credentials.expiry())
	s.observer.Expires(ClientCA, g.credentials.clientCAExpiry())
}

// Listener returns a listener that accepts TLS connections from listener.
func (s *Server) Listener(listener net.Listener) net.Listener {
	return tls.NewListener(listener, &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load().config, nil },
	})
}

// Problem returns, in one sentence, why kube-scheduler cannot connect; nil if no reason is known.
func (s *Server) Problem() error {
	in, now := s.current.Load().credentials, s.now()
	if expiry := in.expiry(); now.After(expiry) {
		return fmt.Errorf("the certificate in %s has expired at %s: renew it, kube-scheduler does not accept it any more",
			s.settings.Files.Certificate, expiry.UTC().Format(time.RFC3339))
	}
	if expiry := in.clientCAExpiry(); now.After(expiry) {
		return fmt.Errorf("the last authority in %s has expired at %s: renew it, no client certificate can be accepted any more",
			s.settings.Files.ClientCA, expiry.UTC().Format(time.RFC3339))
	}
	return nil
}

// Follow reads the files at each interval until ctx ends, and uses changed content for new
// connections. If the content is not usable the last one stays in use, and that is logged once.
func (s *Server) Follow(ctx context.Context, interval time.Duration) {
	logger := klog.FromContext(ctx)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	problem := ""
	for {
		if err := s.Problem(); err != nil && err.Error() != problem {
			logger.Error(err, "The extender cannot be asked")
			problem = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.reload(logger)
		}
	}
}

func (s *Server) reload(logger klog.Logger) {
	read, err := s.settings.Files.read()
	if err != nil {
		// A missing file is handled like an empty one: logged once.
		read = &contents{certificate: []byte(err.Error())}
	}
	if read.equal(s.current.Load().contents) {
		s.refused = nil
		return
	}
	if s.refused != nil && read.equal(s.refused) {
		return
	}
	var next *generation
	if err == nil {
		next, err = s.generation(read)
	}
	if err == nil && s.now().After(next.credentials.expiry()) {
		err = fmt.Errorf("%s expired at %s", s.settings.Files.Certificate, next.credentials.expiry().UTC().Format(time.RFC3339))
	}
	if err != nil {
		s.refused = read
		s.observer.ReloadFailed()
		logger.Error(err, "The changed certificates cannot be used, so the last ones stay in use")
		return
	}
	s.refused = nil
	s.use(next)
	logger.Info("Changed certificates are in use", "expiry", next.credentials.expiry())
}

// maxAge is how long a connection serves. Then the client opens another one, with the certificate
// that its file has by then, long before the last one expires.
const maxAge = 10 * time.Minute

// connection is what is known of a connection since it was accepted.
type connection struct {
	under *generation
	at    time.Time
}

type connectionKey struct{}

// Attach makes a server serve connections of Listener: its handler answers only those whose
// certificate is valid at the time of the request, and it logs few of the refused connections.
func (s *Server) Attach(ctx context.Context, server *http.Server) {
	server.Handler = s.recheck(server.Handler)
	server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, connection{under: s.current.Load(), at: s.now()})
	}
	server.ErrorLog = log.New(&refusals{logger: klog.FromContext(ctx), now: s.now, observer: s.observer}, "", 0)
}

// recheck closes a connection after a request if the connection is old or was accepted with other
// files. In the latter case, and if the client's certificate has expired since, the certificate is
// checked again before the request.
func (s *Server) recheck(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current, now := s.current.Load(), s.now()
		// For an unknown connection everything is checked.
		accepted, _ := r.Context().Value(connectionKey{}).(connection)
		changed := accepted.under != current
		if changed || now.Sub(accepted.at) > maxAge {
			w.Header().Set("Connection", "close")
		}
		if changed || now.After(r.TLS.PeerCertificates[0].NotAfter) {
			if err := current.clients.admit(r.TLS.PeerCertificates, now); err != nil {
				w.Header().Set("Connection", "close")
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// quiet is how long refusals are only counted after one was logged: anybody who reaches the port
// can cause them.
const quiet = 10 * time.Second

// refusals logs the HTTP server's messages about connections, at most one line per quiet time.
type refusals struct {
	logger   klog.Logger
	now      func() time.Time
	observer Observer
	// next is when a line may be logged again, in nanoseconds since 1970.
	next    atomic.Int64
	omitted atomic.Int64
}

func (l *refusals) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "TLS handshake error") {
		l.observer.HandshakeFailed()
	}
	now, next := l.now(), l.next.Load()
	if now.UnixNano() < next || !l.next.CompareAndSwap(next, now.Add(quiet).UnixNano()) {
		l.omitted.Add(1)
		return len(line), nil
	}
	l.logger.Info("Refused a connection", "problem", text, "refusedBefore", l.omitted.Swap(0))
	return len(line), nil
}

// clients decides whose certificates are accepted.
type clients struct {
	authorities *x509.CertPool
	// names are common names and DNS names, of which the certificate must have
	// one; none: any.
	names []string
}

// admit checks the certificates that a client has sent, its own first.
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

// named checks the name of a verified certificate.
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
	return fmt.Errorf("the client certificate is for %q, not for one of --client-name (%s)", certificate.Subject.CommonName,
		strings.Join(c.names, ", "))
}

// maxFile limits a file in bytes; bundles of authorities take a few thousand.
const maxFile = 1 << 20

// Files are paths of PEM files.
type Files struct {
	// Certificate is the server's, followed by intermediates if there are any;
	// Key is its private key.
	Certificate, Key string
	// ClientCA holds the authorities whose client certificates are accepted.
	ClientCA string
}

// contents is what the files contained at one moment.
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

// credentials is what was parsed from the contents.
type credentials struct {
	pair      tls.Certificate
	clientCAs []*x509.Certificate
}

// parse returns an error for contents that are broken or half written: it skips no certificate that
// cannot be read.
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

// expiry returns the time from which kube-scheduler no longer accepts the server's certificate.
func (c *credentials) expiry() time.Time {
	return c.pair.Leaf.NotAfter
}

// clientCAExpiry returns the time from which no client certificate can be accepted any more.
func (c *credentials) clientCAExpiry() time.Time {
	var last time.Time
	for _, authority := range c.clientCAs {
		if authority.NotAfter.After(last) {
			last = authority.NotAfter
		}
	}
	return last
}
