package copying

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

const (
	// dialTimeout limits the attempt to reach a pod by its address; if it fails, the API
	// server is used.
	dialTimeout = 2 * time.Second
	// routeDoubt: if a new connection is needed within this time, the last route was
	// useless: where clusters use the same addresses, another machine may have answered.
	routeDoubt = 10 * time.Second
	// routeLifetime is for how long the route to a pod is remembered.
	routeLifetime = time.Hour
)

// routes remembers by which route ports of pods were reached. Its zero value is ready
// to use.
type routes struct {
	mu   sync.Mutex
	last map[podPort]lastRoute
}

// podPort is a port of a pod; lastRoute is its last route.
type (
	podPort struct {
		pod  types.UID
		port int
	}
	lastRoute struct {
		forwarded bool
		at        time.Time
	}
)

// dial opens a connection to a port of a pod: to its address, if there is one that may be
// dialled, or through the API server of its cluster. The peer is not trusted: only the
// move's own keys authenticate it.
func (w *routes) dial(ctx context.Context, at site.Site, pod *corev1.Pod, port uint16, address string) (net.Conn, error) {
	var byAddress func() (net.Conn, error)
	if address != "" {
		byAddress = func() (net.Conn, error) {
			dialer := net.Dialer{Timeout: dialTimeout}
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	byServer := func() (net.Conn, error) { return dialPodPort(ctx, at, pod, int(port)) }
	return w.choose(podPort{pod.UID, int(port)}, byAddress, byServer)
}

// choose tries both routes, the more promising one first. If byAddress is nil there is only
// one.
func (w *routes) choose(to podPort, byAddress, byServer func() (net.Conn, error)) (net.Conn, error) {
	forwarded := w.forwardFirst(to, time.Now())
	var errs []error
	for range 2 {
		open := byAddress
		if forwarded {
			open = byServer
		}
		if open != nil {
			conn, err := open()
			if err == nil {
				w.noteRoute(to, forwarded, time.Now())
				return conn, nil
			}
			errs = append(errs, err)
		}
		forwarded = !forwarded
	}
	return nil, fmt.Errorf("reach port %d of the mover: %w", to.port, errors.Join(errs...))
}

// forwardFirst says whether to try the API server before the address.
func (w *routes) forwardFirst(to podPort, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.last[to]
	if known && now.Sub(last.at) < routeDoubt {
		return !last.forwarded
	}
	return known && last.forwarded
}

func (w *routes) noteRoute(to podPort, forwarded bool, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[podPort]lastRoute{}
	}
	for other, last := range w.last {
		if now.Sub(last.at) > routeLifetime {
			delete(w.last, other)
		}
	}
	w.last[to] = lastRoute{forwarded, now}
}

// leg returns the last route to a port; empty if none is known.
func (w *routes) leg(to podPort) v1alpha1.MoveLeg {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.last[to]
	switch {
	case !known:
		return ""
	case last.forwarded:
		return v1alpha1.LegAPIServer
	}
	return v1alpha1.LegAddress
}
