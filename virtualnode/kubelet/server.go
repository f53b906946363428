// Package kubelet serves the kubelet API of each virtual node, at a port of its
// own, for the URLs of kubelets do not name a node. Logs and streams are those of
// the pod in the remote cluster, passed on as they come.
package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// Config is what a Server needs. Informers are run by the caller.
type Config struct {
	Home kubernetes.Interface
	// Judge asks the home cluster who sends a request and what they may do: a client
	// with a rate of its own, for strangers decide how much is asked. Nil: Home.
	Judge kubernetes.Interface
	// Nodes and Pods are those of the home cluster.
	Nodes cache.SharedIndexInformer
	Pods  corelisters.PodLister
	// NodeIP is the address of all virtual nodes; Listen is where to listen, empty:
	// everywhere.
	NodeIP, Listen string
	// PortsFrom is the first port to use; 0: any.
	PortsFrom int
}

// Server serves the kubelet APIs of virtual nodes. It is safe for concurrent use.
type Server struct {
	config      Config
	authorities *authorities
	answers     *answers
	strangers   chan struct{} // has an element for each token that is being judged

	mu        sync.Mutex
	endpoints map[string]*endpoint
}

// New returns a Server that serves nothing yet.
func New(config Config) *Server {
	if config.Judge == nil {
		config.Judge = config.Home
	}
	return &Server{
		config: config, authorities: &authorities{home: config.Judge}, answers: newAnswers(),
		strangers: make(chan struct{}, maxStrangers), endpoints: map[string]*endpoint{},
	}
}

// endpoint is the kubelet API of one node.
type endpoint struct {
	server *Server
	node   string
	port   int
	http   *http.Server
	usage  usage
	// serving ends with the endpoint.
	serving context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex
	session *session.Session
}

// Serve begins to serve for a node and returns the port.
func (s *Server) Serve(ctx context.Context, node string) (int32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endpoints[node] != nil {
		return 0, fmt.Errorf("the kubelet API of node %s is served already", node)
	}
	listener, err := s.listen(ctx, node)
	if err != nil {
		return 0, err
	}
	shown, err := newCertificate(s.config.Home, node, s.config.NodeIP)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("make the serving certificate of node %s: %w", node, err), listener.Close())
	}
	e := &endpoint{server: s, node: node, usage: usage{containers: map[containerKey]*consumption{}}}
	e.serving, e.cancel = context.WithCancel(ctx)
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok {
		e.port = tcp.Port
	}
	// No limit on reading and writing: logs are followed, and streams last, for
	// hours.
	e.http = &http.Server{
		Handler: e.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return e.serving }, ConnContext: withConnection,
		ErrorLog:  log.New(io.Discard, "", 0), // strangers' failed handshakes
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: shown.get, ClientAuth: tls.RequestClientCert},
	}
	// Streams take over their connection, which HTTP/2 cannot.
	e.http.Protocols = new(http.Protocols)
	e.http.Protocols.SetHTTP1(true)
	s.endpoints[node] = e
	go func() {
		if err := e.http.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "The kubelet API is no longer served", "node", node)
		}
	}()
	go shown.keep(e.serving)
	return int32(e.port), nil //nolint:gosec // a port
}

// Use has requests for a node go to a session's cluster from now on.
func (s *Server) Use(node string, session *session.Session) {
	s.mu.Lock()
	e := s.endpoints[node]
	s.mu.Unlock()
	if e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.session = session
	}
}

// Close ends the service for a node, and all its streams.
func (s *Server) Close(node string) {
	s.mu.Lock()
	e := s.endpoints[node]
	delete(s.endpoints, node)
	s.mu.Unlock()
	if e != nil {
		e.cancel()
		_ = e.http.Close()
	}
}
