package copying

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// splice joins the data ports of both movers again and again until ctx ends. All data that
// passes is encrypted. It calls note with the error of each connection.
func splice(ctx context.Context, source, target func(context.Context) (net.Conn, error), note func(error)) {
	for ctx.Err() == nil {
		began := time.Now()
		if err := joinOnce(ctx, source, target, idleTimeout); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(3).Info("The connection between the movers ended", "reason", err.Error())
			note(err)
		}
		if time.Since(began) < time.Second {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}

// joinOnce opens a connection to each mover and joins them, until either ends or is idle
// for too long, or ctx ends. It always returns an error.
func joinOnce(ctx context.Context, source, target func(context.Context) (net.Conn, error), silent time.Duration) error {
	a, err := source(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := target(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Closing also ends reads and writes that are blocked.
	defer context.AfterFunc(ctx, func() { _ = a.Close(); _ = b.Close() })()
	var piping sync.WaitGroup
	pipe := func(to net.Conn, from *idleConn, name string) {
		if _, err := io.CopyBuffer(struct{ io.Writer }{to}, from, make([]byte, 64<<10)); err != nil {
			stop(fmt.Errorf("the connection from the mover at the %s broke: %w", name, err))
		} else {
			// If one end has closed, close the other too.
			stop(fmt.Errorf("the mover at the %s closed the connection", name))
		}
	}
	fromA, fromB := newIdleConn(a), newIdleConn(b)
	piping.Go(func() { pipe(a, fromB, "target") })
	piping.Go(func() { pipe(b, fromA, "source") })
	piping.Go(func() { closeWhenIdle(ctx, stop, silent, fromA, fromB) })
	piping.Wait()
	return context.Cause(ctx)
}

// idleConn is a connection that knows when its last read began and whether one is blocked
// now. While data is written to a slow peer no read is blocked, and that is not idleness.
type idleConn struct {
	net.Conn
	lastRead atomic.Int64
	reading  atomic.Bool
}

func newIdleConn(conn net.Conn) *idleConn {
	h := &idleConn{Conn: conn}
	h.lastRead.Store(time.Now().UnixNano())
	return h
}

// Read implements io.Reader.
func (h *idleConn) Read(p []byte) (int, error) {
	h.lastRead.Store(time.Now().UnixNano())
	h.reading.Store(true)
	defer h.reading.Store(false)
	return h.Conn.Read(p)
}

// idleTimeout is for how long a mover may send nothing before its connection counts as
// lost: an idle mover sends keepalives much more often. Without it a connection to a dead
// machine would stay until the kernel gives it up.
const idleTimeout = 50 * time.Second

var errIdle = errors.New("one of the movers has not been heard of for a while")

// closeWhenIdle stops a splice if one end has been idle for too long; it returns when ctx
// ends.
func closeWhenIdle(ctx context.Context, stop context.CancelCauseFunc, silent time.Duration, ends ...*idleConn) {
	ticker := time.NewTicker(silent / 10)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, end := range ends {
			if end.reading.Load() && time.Since(time.Unix(0, end.lastRead.Load())) > silent {
				stop(errIdle)
			}
		}
	}
}
