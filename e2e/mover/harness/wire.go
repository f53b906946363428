package harness

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

var dialer net.Dialer

// Wire joins the movers, and sees what an observer of the network sees.
type Wire struct {
	receiver, sender string
	listener         net.Listener
	stop             context.CancelFunc
	joining          sync.WaitGroup

	mutex sync.Mutex
	// cutAfter is after how many more bytes the connection is cut; negative: never. left is
	// after how many more pieces, as they come from one end; 0: never.
	cutAfter int64
	left     int
	// flip turns one bit of the byte that is so many bytes ahead; negative: none.
	flip    int64
	flipped bool
	conns   []net.Conn
	cuts    int
	bytes   int64
}

// NewWire makes a wire to the receiver: one that waits for the sender's connections,
// or, if there is an address of the sender, one that dials both.
func NewWire(ctx context.Context, receiver, sender string) (*Wire, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &Wire{receiver: receiver, sender: sender, stop: stop, cutAfter: -1, flip: -1}
	if sender != "" {
		w.joining.Go(func() {
			for ctx.Err() == nil {
				if from, err := dialer.DialContext(ctx, "tcp", sender); err == nil {
					w.join(ctx, from)
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
		return w, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		stop()
		return nil, err
	}
	w.listener = listener
	w.joining.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			w.joining.Go(func() { w.join(ctx, from) })
		}
	})
	return w, nil
}

// Address is where the sender dials.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// join joins a sender's connection with one to the receiver until one of them ends.
func (w *Wire) join(ctx context.Context, from net.Conn) {
	defer from.Close()
	to, err := dialer.DialContext(ctx, "tcp", w.receiver)
	if err != nil {
		return
	}
	defer to.Close()
	w.mutex.Lock()
	w.conns = append(w.conns, from, to)
	w.mutex.Unlock()
	defer context.AfterFunc(ctx, func() { from.Close(); to.Close() })()
	var both sync.WaitGroup
	both.Go(func() { w.copy(to, from); from.Close(); to.Close() })
	both.Go(func() { w.copy(from, to); from.Close(); to.Close() })
	both.Wait()
}

func (w *Wire) copy(to io.Writer, from io.Reader) {
	buffer := make([]byte, 256<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			pass, cut := w.spoil(buffer[:n])
			if _, err := to.Write(buffer[:pass]); err != nil || cut {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// spoil does to bytes what was asked for, and says how many of them still pass.
func (w *Wire) spoil(b []byte) (pass int, cut bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	n := int64(len(b))
	w.bytes += n
	if w.flip >= 0 {
		if w.flip < n {
			b[w.flip] ^= 1 << (w.flip % 8)
			w.flipped = true
		}
		w.flip -= n
	}
	if w.left > 0 {
		if w.left--; w.left == 0 {
			w.cuts++
			return len(b), true
		}
	}
	if w.cutAfter < 0 {
		return len(b), false
	}
	if w.cutAfter < n {
		pass = int(w.cutAfter)
		w.cutAfter = -1
		w.cuts++
		return pass, true
	}
	w.cutAfter -= n
	return len(b), false
}

// CutAfter cuts the connection once so many more bytes have passed.
func (w *Wire) CutAfter(bytes int64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.cutAfter = bytes
}

// CutAfterPieces cuts the connection right after so many more pieces have passed, in both
// directions together: an answer to the last of them does not pass. 0 cuts never. Cuts
// begins anew.
func (w *Wire) CutAfterPieces(n int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.left, w.cuts = n, 0
}

// FlipAfter turns one bit once so many more bytes have passed.
func (w *Wire) FlipAfter(bytes int64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.flip = bytes
}

// Flipped says whether FlipAfter has turned a bit.
func (w *Wire) Flipped() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.flipped
}

// Cuts is how often the connection was cut; Bytes is how much has passed.
func (w *Wire) Cuts() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.cuts
}

// Bytes is how many bytes have passed in both directions.
func (w *Wire) Bytes() int64 {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.bytes
}

// Close cuts everything for good.
func (w *Wire) Close() {
	w.stop()
	if w.listener != nil {
		_ = w.listener.Close()
	}
	w.joining.Wait()
}
