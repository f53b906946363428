// Package link makes the data connection between the two movers: TLS 1.3 over a
// connection that the sender dials, or that somebody else, who sees only what is
// encrypted, joins for it from one connection to each mover. The sender is the TLS
// client and the receiver the TLS server in both cases. There is one data
// connection at a time; a newer one replaces the older, which may be dead without
// anybody having told.
package link

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// handshake is how long a handshake may take.
	handshake = 30 * time.Second
	// strangers is how many connections may be in their handshake at once; more of
	// them are closed at once.
	strangers = 16
)

// shake makes a TLS connection of a raw one, or closes it.
func shake(ctx context.Context, conn *tls.Conn) error {
	ctx, stop := context.WithTimeout(ctx, handshake)
	defer stop()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return fmt.Errorf("authenticate the other mover: %w", err)
	}
	return nil
}

// Listen takes connections until ctx ends, makes TLS connections of them with wrap
// and gives each whose handshake succeeds to take, which must return soon. Failed
// tells of those that do not; it may be nil.
func Listen(ctx context.Context, listener net.Listener, wrap func(net.Conn) *tls.Conn, take func(*tls.Conn), failed func(error)) error {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	places := make(chan struct{}, strangers)
	var shaking sync.WaitGroup
	defer shaking.Wait()
	for {
		raw, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept connections: %w", err)
		}
		select {
		case places <- struct{}{}:
		default:
			_ = raw.Close()
			continue
		}
		shaking.Go(func() {
			defer func() { <-places }()
			conn := wrap(raw)
			if err := shake(ctx, conn); err != nil {
				klog.FromContext(ctx).V(2).Info("Refused a connection", "from", raw.RemoteAddr(), "reason", err.Error())
				if failed != nil {
					failed(err)
				}
				return
			}
			take(conn)
		})
	}
}
