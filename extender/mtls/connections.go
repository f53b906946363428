package mtls

import (
	"context"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// maxAge is how long a connection serves. Then the client makes another one, with
// the certificate that its file holds by now, long before the last one expires.
const maxAge = 10 * time.Minute

// connection is what is known of one since it was accepted.
type connection struct {
	under *generation
	at    time.Time
}

type connectionKey struct{}

// Attach makes a server serve connections of Listener: its handler answers only
// those whose certificate holds at the time of the request, and its log of
// refused connections is kept short.
func (s *Server) Attach(ctx context.Context, server *http.Server) {
	server.Handler = s.recheck(server.Handler)
	server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, connection{under: s.current.Load(), at: s.now()})
	}
	server.ErrorLog = log.New(&refusals{logger: klog.FromContext(ctx), now: s.now, observer: s.observer}, "", 0)
}

// recheck lets a request be the last one of its connection if that is old or was
// accepted under other files. The latter, and one whose certificate has expired
// since, is judged again.
func (s *Server) recheck(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current, now := s.current.Load(), s.now()
		// Without a connection that is known, all of it is checked.
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

// quiet is how long further refusals are only counted after one was logged:
// anybody who reaches the port can cause them.
const quiet = 10 * time.Second

// refusals logs what the HTTP server says about connections, not more than one
// line in each quiet time.
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
