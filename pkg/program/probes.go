package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/workqueue"  // queue metrics
	"k8s.io/klog/v2"
)

// Probes answer whether a program is ready. They are safe for concurrent use.
type Probes struct {
	mu      sync.Mutex
	waiting string
}

// NewProbes returns Probes of a program that is not ready.
func NewProbes() *Probes { return &Probes{waiting: "start"} }

// WaitFor makes the program not ready, and /readyz say what it waits for.
func (p *Probes) WaitFor(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = what
}

// Ready makes the program ready.
func (p *Probes) Ready() { p.WaitFor("") }

func (p *Probes) serveReady(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	waiting := p.waiting
	p.mu.Unlock()
	if waiting != "" {
		http.Error(w, "not ready: waiting for "+waiting, http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// Serve serves /healthz, /readyz and /metrics at an address until the returned
// function is called; nothing if the address is empty. The metrics are those of
// the registry and of client-go.
func (p *Probes) Serve(ctx context.Context, address string, registry *prometheus.Registry) (func(), error) {
	if address == "" {
		return func() {}, nil
	}
	registry.MustRegister(collectors.NewBuildInfoCollector())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", p.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{registry, legacyregistry.DefaultGatherer}, promhttp.HandlerOpts{}))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve health and metrics (--http-address): %w", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Health and metrics are no longer served")
		}
	}()
	return func() { _ = server.Close() }, nil
}
