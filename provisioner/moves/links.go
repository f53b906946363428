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
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// silence is how long a mover may say nothing before its connection counts as lost:
// one with nothing to say says so much more often. Without it a connection to a machine
// that is gone would be kept until the kernel gives it up.
const silence = 50 * time.Second

// reader is the mover that reads a claim at an end.
type reader struct {
	claim int
	end   record.End
}

// links are the connections to the movers of one move.
type links struct {
	mu      sync.Mutex
	clients map[reader]*movecontrol.Client
	splices map[int]context.CancelFunc
	// joined are the pods that a splice is between.
	joined map[int][2]types.UID
	// ended is why the last connection between the movers of a claim ended.
	ended map[int]string
	// apart is since when it is awaited that one mover dials the other.
	apart map[int]time.Time
}

// close ends all connections.
func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for of, client := range l.clients {
		client.Close()
		delete(l.clients, of)
	}
	for i := range l.splices {
		l.end(i)
	}
	clear(l.apart)
}

// end ends the splice of a claim, for who holds the lock.
func (l *links) end(i int) {
	if stop, ok := l.splices[i]; ok {
		stop()
	}
	delete(l.splices, i)
	delete(l.joined, i)
	delete(l.ended, i)
}

// between says whether two pods of a claim are being joined, and since when it is awaited
// that one dials the other. What was between other pods is ended.
func (l *links) between(i int, pods [2]types.UID) (splicing bool, apart time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.splices[i]; ok && l.joined[i] != pods {
		l.end(i)
	}
	_, splicing = l.splices[i]
	return splicing, l.apart[i]
}

// await remembers since when it is awaited that one mover dials the other, while it is.
func (l *links) await(i int, now time.Time, awaited bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.apart[i]; known && awaited {
		return
	}
	delete(l.apart, i)
	if awaited {
		if l.apart == nil {
			l.apart = map[int]time.Time{}
		}
		l.apart[i] = now
	}
}

// keep remembers a splice between two pods, and ends the one before it.
func (l *links) keep(i int, pods [2]types.UID, stop context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(i)
	if l.splices == nil {
		l.splices, l.joined = map[int]context.CancelFunc{}, map[int][2]types.UID{}
	}
	l.splices[i], l.joined[i] = stop, pods
}

// cut ends the splice of a claim.
func (l *links) cut(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(i)
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

// heard is a connection that knows when it was last heard of, and whether anybody listens:
// while what it said is being handed on to an end that takes its time, nobody does.
type heard struct {
	net.Conn
	last      atomic.Int64
	listening atomic.Bool
}

func listen(conn net.Conn) *heard {
	h := &heard{Conn: conn}
	h.last.Store(time.Now().UnixNano())
	return h
}

// Read implements io.Reader.
func (h *heard) Read(p []byte) (int, error) {
	h.last.Store(time.Now().UnixNano())
	h.listening.Store(true)
	defer h.listening.Store(false)
	return h.Conn.Read(p)
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
			if end.listening.Load() && time.Since(time.Unix(0, end.last.Load())) > silent {
				stop(errSilent)
			}
		}
	}
}
