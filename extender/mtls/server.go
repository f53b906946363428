package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// Kinds of certificates whose expiry is observed.
const (
	// ServerCertificate is the one that is served.
	ServerCertificate = "server"
	// ClientCA is the authority of clients that expires last.
	ClientCA = "client_ca"
	// ClientCertificate is that of the client that connected last.
	ClientCertificate = "client"
)

// Observer hears what happens, for metrics. Its methods are safe for concurrent
// use and do not block.
type Observer interface {
	// Expires is told of a kind of certificate whenever another one is used.
	Expires(kind string, at time.Time)
	// ReloadFailed is told of each change of the files that cannot be used.
	ReloadFailed()
	// HandshakeFailed is told of each connection that was refused.
	HandshakeFailed()
}

// Settings say how to serve.
type Settings struct {
	Files Files
	// Names are common names and DNS names of which a client certificate must
	// have one; none: any certificate of the client CA is accepted.
	Names []string
}

// Server serves with the latest usable content of its files. Its methods are safe
// for concurrent use, except Follow, which runs once.
type Server struct {
	settings Settings
	now      func() time.Time
	observer Observer
	current  atomic.Pointer[generation]
	// refused is the content that was last refused; only Follow uses it.
	refused *contents
}

// generation is what holds between two changes of the files.
type generation struct {
	contents    *contents
	credentials *credentials
	clients     *clients
	config      *tls.Config
}

// Open reads the files. It is an error if they cannot be used; a certificate that
// has expired can, see Problem.
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
		// kube-scheduler asks one thing at a time, so streams would gain nothing.
		NextProtos: []string{"http/1.1"},
		// A resumed session would be judged by the authorities of its beginning.
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

// Listener returns what accepts connections over TLS from listener.
func (s *Server) Listener(listener net.Listener) net.Listener {
	return tls.NewListener(listener, &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load().config, nil },
	})
}

// Problem returns, in one sentence, why kube-scheduler cannot connect; nil if
// nothing is known.
func (s *Server) Problem() error {
	in, now := s.current.Load().credentials, s.now()
	if expiry := in.expiry(); now.After(expiry) {
		return fmt.Errorf("the certificate in %s has expired at %s: renew it, kube-scheduler does not accept it any more", s.settings.Files.Certificate, expiry.UTC().Format(time.RFC3339))
	}
	if expiry := in.clientCAExpiry(); now.After(expiry) {
		return fmt.Errorf("the last authority in %s has expired at %s: renew it, no client certificate can be accepted any more", s.settings.Files.ClientCA, expiry.UTC().Format(time.RFC3339))
	}
	return nil
}

// Follow reads the files at each interval until ctx ends, and uses what it finds
// for new connections. Files that cannot be used leave the last ones in use, and
// are logged once.
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
		// A file that is missing is like an empty one: logged once.
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
