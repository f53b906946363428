// Package kubelet serves the kubelet API of each virtual node. Each node has a port of its own,
// since the URLs of a kubelet do not name the node. Logs and streams are forwarded to the API
// server of the remote cluster unchanged. Read server.go first: a request passes admit (access.go),
// then serveCall and forward (forward.go), or serveMetrics (metrics.go).
package kubelet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// Config is what a Server needs. Informers are run by the caller.
type Config struct {
	Home kubernetes.Interface
	// Judge reviews credentials and rights in the home cluster. It should have a rate limit of its
	// own, since callers without credentials can cause reviews. Nil: Home.
	Judge kubernetes.Interface
	// Nodes and Pods are those of the home cluster.
	Nodes cache.SharedIndexInformer
	Pods  cache.SharedIndexInformer
	// NodeIP is the address of all virtual nodes; Listen is the address to listen on, empty: all.
	NodeIP, Listen string
	// PortsFrom is the first port to use; 0: any.
	PortsFrom int
}

// Server serves the kubelet APIs of virtual nodes. It is safe for concurrent use.
type Server struct {
	config      Config
	authorities *authorities
	tokens      *tokenCache
	tokenChecks chan struct{} // has an element for each token that is being reviewed

	mu        sync.Mutex
	endpoints map[string]*endpoint
}

// New returns a Server that serves no node yet.
func New(config Config) *Server {
	if config.Judge == nil {
		config.Judge = config.Home
	}
	return &Server{
		config: config, authorities: &authorities{home: config.Judge}, tokens: newTokenCache(),
		tokenChecks: make(chan struct{}, maxTokenChecks), endpoints: map[string]*endpoint{},
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

// Serve begins to serve the kubelet API of a node and returns its port.
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
	// Reading and writing have no time limit: logs are followed, and streams last, for hours.
	e.http = &http.Server{
		Handler: e.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return e.serving }, ConnContext: withConnection,
		ErrorLog:  log.New(io.Discard, "", 0), // strangers' failed handshakes
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: shown.get, ClientAuth: tls.RequestClientCert},
	}
	// Streams hijack their connection, which is impossible with HTTP/2.
	e.http.Protocols = new(http.Protocols)
	e.http.Protocols.SetHTTP1(true)
	s.endpoints[node] = e
	go func() {
		if err := e.http.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "The kubelet API is no longer served", "node", node)
		}
	}()
	go shown.renew(e.serving)
	return int32(e.port), nil //nolint:gosec // a port
}

// Use sends requests for a node to a session's cluster from now on.
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

// askTimeout limits the requests to the home cluster before a call is served.
const askTimeout = 10 * time.Second

// connectionKey is the context key of a request's connection.
type connectionKey struct{}

func withConnection(ctx context.Context, connection net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connection)
}

// handler serves requests that are admitted.
func (e *endpoint) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") })
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) { e.servePods(w, nil) })
	mux.HandleFunc("GET /runningpods/", func(w http.ResponseWriter, _ *http.Request) { e.servePods(w, running) })
	mux.HandleFunc("GET /metrics/resource", e.serveMetrics)
	mux.HandleFunc("/", e.serveCall)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.admit(w, r) {
			mux.ServeHTTP(w, r)
		}
	})
}

// admit checks whether the sender of a request may do that, and answers the request if not. Only a
// limited number of tokens is reviewed at once: anybody can send tokens, and callers with a
// certificate of the cluster, such as its API server, must not wait for them.
func (e *endpoint) admit(w http.ResponseWriter, r *http.Request) bool {
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		select {
		case e.server.tokenChecks <- struct{}{}:
			defer func() { <-e.server.tokenChecks }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many tokens are being checked: try again", http.StatusServiceUnavailable)
			return false
		}
	}
	who, err := e.server.authenticate(r.WithContext(ctx))
	if err != nil {
		w.Header().Set("WWW-Authenticate", `Bearer realm="kubelet"`)
		http.Error(w, "Unauthorized: "+err.Error(), http.StatusUnauthorized)
		return false
	}
	allowed, err := e.server.allowed(ctx, who, attributes(e.node, r.Method, r.URL.Path))
	switch {
	case err != nil:
		klog.FromContext(ctx).Error(err, "A request could not be judged", "node", e.node)
		http.Error(w, "the home cluster did not say whether this is allowed: try again", http.StatusInternalServerError)
	case !allowed:
		http.Error(w, fmt.Sprintf("Forbidden: %s may not do this on node %s", who.name, e.node), http.StatusForbidden)
	}
	return err == nil && allowed
}

func (e *endpoint) pods() []*corev1.Pod {
	var found []*corev1.Pod
	for pod := range controller.EachMentioning[corev1.Pod](e.server.config.Pods, e.node) {
		if pod.Spec.NodeName == e.node {
			found = append(found, pod)
		}
	}
	return found
}

func running(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

func (e *endpoint) servePods(w http.ResponseWriter, only func(*corev1.Pod) bool) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	for _, pod := range e.pods() {
		if only == nil || only(pod) {
			list.Items = append(list.Items, *pod)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&list)
}

// serveCall serves a request that is about one pod.
func (e *endpoint) serveCall(w http.ResponseWriter, r *http.Request) {
	c, ok, err := translate(r.URL.Path, r.URL.Query())
	switch {
	case !ok:
		http.Error(w, fmt.Sprintf("node %s stands for a remote cluster, which has no such page", e.node), http.StatusNotFound)
		return
	case r.Method != http.MethodGet && !(c.stream && r.Method == http.MethodPost):
		http.Error(w, fmt.Sprintf("method %s means nothing here", r.Method), http.StatusMethodNotAllowed)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := e.current()
	if s == nil {
		http.Error(w, fmt.Sprintf("there is no connection to cluster %s: see condition VirtualNode of RemoteCluster %s", e.node, e.node),
			http.StatusServiceUnavailable)
		return
	}
	if status, err := e.find(r.Context(), s, &c); err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	e.forward(w, r, s, &c)
}

// current returns the session of the node's cluster, nil if there is none.
func (e *endpoint) current() *session.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.session
}

// find checks that a call is for a home pod of this node, and that the pod of its name in the
// remote cluster belongs to that very pod. The error is a sentence for the user, the status that of
// HTTP.
func (e *endpoint) find(ctx context.Context, s *session.Session, c *call) (status int, _ error) {
	pod := controller.Get[corev1.Pod](e.server.config.Pods, c.namespace+"/"+c.pod)
	if pod == nil || pod.Spec.NodeName != e.node || c.uid != "" && c.uid != pod.UID {
		return http.StatusNotFound, fmt.Errorf("pod %s/%s is not on node %s", c.namespace, c.pod, e.node)
	}
	if c.container != "" && !slices.Contains(containers(pod), c.container) {
		return http.StatusNotFound, fmt.Errorf("pod %s/%s has no container %s", c.namespace, c.pod, c.container)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	remote, err := s.Client.CoreV1().Pods(s.Namespace(c.namespace)).Get(ctx, c.pod, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return http.StatusNotFound, fmt.Errorf("pod %s/%s is not there in cluster %s yet, or not any more", c.namespace, c.pod, s.Cluster)
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return http.StatusServiceUnavailable, fmt.Errorf("cluster %s does not let this cluster see its pods there: see condition VirtualNode "+
			"of RemoteCluster %s", s.Cluster, s.Cluster)
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, fmt.Errorf("cluster %s gave no answer within %v", s.Cluster, askTimeout)
	case err != nil:
		return http.StatusServiceUnavailable, fmt.Errorf("cluster %s does not answer: try again when node %s is Ready", s.Cluster, e.node)
	case remote.Labels[keys.HomeID] != s.HomeID || remote.Labels[keys.PodUID] != string(pod.UID):
		return http.StatusNotFound, fmt.Errorf("the pod named %s in namespace %s of cluster %s is not that of pod %s/%s", c.pod,
			s.Namespace(c.namespace), s.Cluster, c.namespace, c.pod)
	}
	return 0, nil
}

func containers(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}

// listen opens a port for a node: the port that it had before if that is free, so that clients find
// it again after a restart.
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
	for _, other := range controller.All[corev1.Node](s.config.Nodes) {
		if other.Name != node && address(other) == s.config.NodeIP {
			taken[int(other.Status.DaemonEndpoints.KubeletEndpoint.Port)] = true
		}
	}
	return taken
}

func (s *Server) lastPort(node string) int {
	if have := controller.Get[corev1.Node](s.config.Nodes, node); have != nil {
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
