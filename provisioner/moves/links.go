package moves

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// silence is how long a mover may say nothing before its connection counts as lost:
// one with nothing to say says so much more often. Without it a connection to a machine
// that is gone would be kept until the kernel gives it up.
const silence = 50 * time.Second

// links are the connections to the movers of one move.
type links struct {
	mu      sync.Mutex
	clients map[int]*movecontrol.Client
	splices map[int]context.CancelFunc
	// joined are the pods that a splice is between.
	joined map[int][2]types.UID
	// ended is why the last connection between the movers of a claim ended.
	ended map[int]string
}

// close ends all connections.
func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, client := range l.clients {
		client.Close()
		delete(l.clients, i)
	}
	for i, stop := range l.splices {
		stop()
		delete(l.splices, i)
		delete(l.joined, i)
		delete(l.ended, i)
	}
}

// why returns why the last connection between the movers of a claim ended, empty if
// nothing is known.
func (l *links) why(i int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended[i]
}

// note remembers why a connection between the movers of a claim ended.
func (l *links) note(i int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = map[int]string{}
	}
	l.ended[i] = err.Error()
}

// splice joins the data ports of both movers again and again until ctx ends. It sees
// only what is encrypted. Note is told why each connection ended.
func splice(ctx context.Context, source, target func(context.Context) (net.Conn, error), note func(error)) {
	for ctx.Err() == nil {
		began := time.Now()
		if err := joined(ctx, source, target, silence); err != nil && ctx.Err() == nil {
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

// joined joins one connection to each mover until either ends, or says nothing for a
// while, or ctx ends. It always returns an error.
func joined(ctx context.Context, source, target func(context.Context) (net.Conn, error), silent time.Duration) error {
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
	// Whatever waits in one of them ends with it.
	defer context.AfterFunc(ctx, func() { _ = a.Close(); _ = b.Close() })()
	var piping sync.WaitGroup
	pipe := func(to net.Conn, from *heard, name string) {
		if _, err := io.CopyBuffer(struct{ io.Writer }{to}, from, make([]byte, 64<<10)); err != nil {
			stop(fmt.Errorf("the connection from the mover at the %s broke: %w", name, err))
		} else {
			// What one end has closed the other must learn of.
			stop(fmt.Errorf("the mover at the %s closed the connection", name))
		}
	}
	fromA, fromB := listen(a), listen(b)
	piping.Go(func() { pipe(a, fromB, "target") })
	piping.Go(func() { pipe(b, fromA, "source") })
	piping.Go(func() { attend(ctx, stop, silent, fromA, fromB) })
	piping.Wait()
	return context.Cause(ctx)
}

// heard is a connection that knows when it was last heard of.
type heard struct {
	net.Conn
	last atomic.Int64
}

func listen(conn net.Conn) *heard {
	h := &heard{Conn: conn}
	h.last.Store(time.Now().UnixNano())
	return h
}

// Read implements io.Reader.
func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 {
		h.last.Store(time.Now().UnixNano())
	}
	return n, err
}

var errSilent = errors.New("one of the movers has not been heard of for a while")

// attend stops a splice of which one end has become silent; it returns when ctx ends.
func attend(ctx context.Context, stop context.CancelCauseFunc, silent time.Duration, ends ...*heard) {
	ticker := time.NewTicker(silent / 10)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, end := range ends {
			if time.Since(time.Unix(0, end.last.Load())) > silent {
				stop(errSilent)
			}
		}
	}
}
