// Package kubelet serves the kubelet API of each virtual node, at a port of its
// own, for the URLs of kubelets do not name a node. Logs and streams are those of
// the pod in the remote cluster, passed on as they come.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// Config is what a Server needs. Informers are run by the caller.
type Config struct {
	Home kubernetes.Interface
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
	config Config

	mu        sync.Mutex
	endpoints map[string]*endpoint
}

// New returns a Server that serves nothing yet.
func New(config Config) *Server {
	return &Server{config: config, endpoints: map[string]*endpoint{}}
}

// endpoint is the kubelet API of one node.
type endpoint struct {
	server *Server
	node   string
	port   int
	http   *http.Server
	cancel context.CancelFunc

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
	serving, cancel := context.WithCancel(ctx)
	e := &endpoint{server: s, node: node, cancel: cancel}
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok {
		e.port = tcp.Port
	}
	e.http = &http.Server{Handler: e.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return serving }}
	s.endpoints[node] = e
	go func() {
		if err := e.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "The kubelet API is no longer served", "node", node)
		}
	}()
	return int32(e.port), nil //nolint:gosec // a port
}

func (e *endpoint) handler() http.Handler { return http.NotFoundHandler() }

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

// listen opens a port for a node: the one that it had last if that is free, so
// that connections are found again after a restart.
func (s *Server) listen(ctx context.Context, node string) (net.Listener, error) {
	taken := s.ports(node)
	try := func(port int) (net.Listener, error) {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(s.config.Listen, strconv.Itoa(port)))
	}
	if s.config.PortsFrom == 0 {
		return try(0)
	}
	if last := s.lastPort(node); last >= s.config.PortsFrom && !taken[last] {
		if listener, err := try(last); err == nil {
			return listener, nil
		}
	}
	var failed error
	for port := s.config.PortsFrom; port < s.config.PortsFrom+1000; port++ {
		if taken[port] {
			continue
		}
		listener, err := try(port)
		if err == nil {
			return listener, nil
		}
		failed = err
	}
	return nil, fmt.Errorf("no port is free for the kubelet API of node %s (--kubelet-ports-from): %w", node, failed)
}

// ports returns the ports that other nodes have.
func (s *Server) ports(node string) map[int]bool {
	taken := map[int]bool{}
	for _, e := range s.endpoints {
		taken[e.port] = true
	}
	for _, obj := range s.config.Nodes.GetStore().List() {
		if other, ok := obj.(*corev1.Node); ok && other.Name != node && address(other) == s.config.NodeIP {
			taken[int(other.Status.DaemonEndpoints.KubeletEndpoint.Port)] = true
		}
	}
	return taken
}

func (s *Server) lastPort(node string) int {
	obj, ok, err := s.config.Nodes.GetStore().GetByKey(node)
	if have, is := obj.(*corev1.Node); err == nil && ok && is {
		return int(have.Status.DaemonEndpoints.KubeletEndpoint.Port)
	}
	return 0
}

func address(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
