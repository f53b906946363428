package app

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

// probes answer whether the program is ready.
type probes struct {
	mu      sync.Mutex
	waiting string
}

func newProbes() *probes { return &probes{waiting: "start"} }

func (p *probes) waitFor(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = what
}

func (p *probes) ready() { p.waitFor("") }

func (p *probes) serveReady(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	waiting := p.waiting
	p.mu.Unlock()
	if waiting != "" {
		http.Error(w, "not ready: waiting for "+waiting, http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// serveHTTP serves health and metrics until the returned function is called.
func serveHTTP(ctx context.Context, address string, registry *prometheus.Registry, p *probes) (func(), error) {
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
