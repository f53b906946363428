package moves

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
)

const (
	// direct is how long it is tried to reach a pod by its address: where that does not
	// work the way through the API server does.
	direct = 2 * time.Second
	// doubt is how soon a new connection means that the last way was of no use: where
	// clusters give out the same addresses, somebody else may have answered.
	doubt = 10 * time.Second
	// remember is how long it is known which way led to a pod.
	remember = time.Hour
)

// ways remembers how the ports of pods were reached. Its zero value is ready.
type ways struct {
	mu   sync.Mutex
	last map[door]taken
}

// door is a port of a pod, taken the way that was taken to it last.
type (
	door struct {
		pod  types.UID
		port int
	}
	taken struct {
		forwarded bool
		at        time.Time
	}
)

// forwardFirst says whether to go through the API server before trying the address.
func (w *ways) forwardFirst(to door, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.last[to]
	if known && now.Sub(last.at) < doubt {
		return !last.forwarded
	}
	return known && last.forwarded
}

// took remembers a way that was taken.
func (w *ways) took(to door, forwarded bool, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[door]taken{}
	}
	for other, last := range w.last {
		if now.Sub(last.at) > remember {
			delete(w.last, other)
		}
	}
	w.last[to] = taken{forwarded, now}
}

// leg returns the way that was taken to a port of a pod last; empty: none that is known.
func (w *ways) leg(to door) v1alpha1.MoveLeg {
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

// dial opens a connection to a port of a pod: by its address, if it has one that may be
// dialled, or through the API server of its cluster. Whoever answers, only the move's own
// keys count.
func (w *ways) dial(ctx context.Context, at site, pod *corev1.Pod, port uint16, address string) (net.Conn, error) {
	var byAddress func() (net.Conn, error)
	if address != "" {
		byAddress = func() (net.Conn, error) {
			dialer := net.Dialer{Timeout: direct}
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	byServer := func() (net.Conn, error) { return forward(ctx, at, pod, int(port)) }
	return w.choose(door{pod.UID, int(port)}, byAddress, byServer)
}

// choose tries both ways, in the order that promises more. Without byAddress there is one.
func (w *ways) choose(to door, byAddress, byServer func() (net.Conn, error)) (net.Conn, error) {
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
				w.took(to, forwarded, time.Now())
				return conn, nil
			}
			errs = append(errs, err)
		}
		forwarded = !forwarded
	}
	return nil, fmt.Errorf("reach port %d of the mover: %w", to.port, errors.Join(errs...))
}
