package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// askTimeout bounds what is asked of the home cluster before a request is served.
const askTimeout = 10 * time.Second

// connectionKey is the context key of a request's connection.
type connectionKey struct{}

func withConnection(ctx context.Context, connection net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connection)
}

// handler serves those who may.
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

// admit finds out whether who sent a request may do that, and answers it if not.
// Only so many tokens are judged at once: anybody can send any, and what shows
// a certificate of the cluster, as its API server does, must not wait for them.
func (e *endpoint) admit(w http.ResponseWriter, r *http.Request) bool {
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		select {
		case e.server.strangers <- struct{}{}:
			defer func() { <-e.server.strangers }()
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
	allowed, err := e.server.may(ctx, who, attributes(e.node, r.Method, r.URL.Path))
	switch {
	case err != nil:
		klog.FromContext(ctx).Error(err, "A request could not be judged", "node", e.node)
		http.Error(w, "the home cluster did not say whether this is allowed: try again", http.StatusInternalServerError)
	case !allowed:
		http.Error(w, fmt.Sprintf("Forbidden: %s may not do this on node %s", who.name, e.node), http.StatusForbidden)
	}
	return err == nil && allowed
}

// pods returns the pods of the node.
func (e *endpoint) pods() ([]*corev1.Pod, error) {
	all, err := e.server.config.Pods.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return slices.DeleteFunc(all, func(pod *corev1.Pod) bool { return pod.Spec.NodeName != e.node }), nil
}

func running(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

func (e *endpoint) servePods(w http.ResponseWriter, only func(*corev1.Pod) bool) {
	pods, err := e.pods()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	for _, pod := range pods {
		if only == nil || only(pod) {
			list.Items = append(list.Items, *pod)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&list)
}

// serveCall serves what concerns one pod.
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
		http.Error(w, fmt.Sprintf("there is no connection to cluster %s: see condition VirtualNode of RemoteCluster %s", e.node, e.node), http.StatusServiceUnavailable)
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
