package lane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// every is how often each side says that it is there. A connection on which nothing came for lost of these times
	// counts for nothing until something comes again.
	every = 100 * time.Millisecond
	lost  = 3
	// given is how long a connection may be silent before it is closed, and made anew by the side that dials.
	given = 10 * time.Second
	// unsent bounds what waits in a connection for its turn: more would only make packets late.
	unsent = 256 << 10
)

// connection is one TLS connection to a gateway of the other cluster.
type connection struct {
	peer string
	// key is that of the other side, own is that of this one.
	key, own Key
	// beside is what both sides say of the WireGuard between the two gateways.
	beside *beside
	// congestion is what controls its rate.
	congestion string
	tcp        *net.TCPConn
	below      *batched
	tls        *tls.Conn

	// sent and received are the bytes of packets, without what TLS and TCP add; dropped those that were more than the limit, or that no
	// kernel makes.
	sent, received, dropped atomic.Uint64

	heard   atomic.Int64 // when something came, in nanoseconds of start
	heardBy atomic.Bool  // the other side hears us
	leaving atomic.Bool  // it is to be used no more, by neither side
	// accepts are the keys that the other side takes for those of this one, as it said last.
	accepts atomic.Pointer[[]Key]
	writing atomic.Int64 // since when a write lasts; 0: none
	mu      sync.Mutex   // held while frames are written
	ended   sync.Once
	end     error
	done    chan struct{}
}

// started is what times are counted from: they need no wall clock.
var started = time.Now()

func now() int64 { return max(1, int64(time.Since(started))) }

// secure makes a connection of a TCP connection, which it closes if that fails. own is the key that wrap shows to the other side.
func secure(ctx context.Context, tcp *net.TCPConn, own Key, wrap func(net.Conn) *tls.Conn) (*connection, error) {
	c := &connection{own: own, tcp: tcp, below: newBatched(tcp), done: make(chan struct{})}
	c.accepts.Store(&[]Key{})
	c.tls = wrap(c.below)
	err := errors.Join(c.tune(), tcp.SetDeadline(time.Now().Add(5*time.Second)))
	if err == nil {
		err = c.tls.HandshakeContext(ctx)
	}
	if err == nil {
		err = tcp.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = tcp.Close()
		return nil, err
	}
	c.below.batch()
	c.key = keyOf(c.tls.ConnectionState().PeerCertificates[0])
	return c, nil
}

// tune sets what TCP needs to carry TCP. With loss-based congestion control each loss would stop all connections
// inside; BBR goes on.
func (c *connection) tune() error {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(err, raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "bbr") // where the kernel has it: Status says so
		c.congestion, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(given/time.Millisecond))
	}))
}

// rtt is the kernel's smoothed round trip time.
func (c *connection) rtt() (rtt time.Duration) {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			rtt = time.Duration(info.Rtt) * time.Microsecond
		}
	})
	return rtt
}

// hears says that something came of late.
func (c *connection) hears() bool {
	heard := c.heard.Load()
	return heard != 0 && now()-heard < int64(lost*every)
}

// up says that packets go through in both directions.
func (c *connection) up() bool {
	return c.hears() && c.heardBy.Load() && !c.leaving.Load()
}

// send writes what next returns, until that is nothing, and then hands it to the kernel.
func (c *connection) send(next func() ([]byte, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing.Store(now())
	defer c.writing.Store(0)
	for {
		frame, err := next()
		if err != nil {
			return err
		}
		if frame == nil {
			break
		}
		if _, err := c.tls.Write(frame); err != nil {
			c.close(err)
			return nil
		}
	}
	if err := c.below.flush(); err != nil {
		c.close(err)
	}
	return nil
}

// run ticks and gives each packet that comes to deliver, until the connection ends; it returns why. Expected are the keys that the other
// side may have.
func (c *connection) run(changed func(), expected func() []Key, deliver func([]byte) error) error {
	go c.watch(changed, expected)
	buffer := make([]byte, packetLimit)
	for {
		kind, content, err := readFrame(c.tls, buffer)
		if err == nil {
			c.heard.Store(now())
			if kind == kindPacket {
				c.received.Add(uint64(len(content)))
				err = deliver(content)
			} else {
				said, accepts := readTick(content)
				c.accepts.Store(&accepts)
				c.beside.said(said&tickBeside != 0)
				if by := said&tickHears != 0; c.heardBy.Swap(by) != by {
					changed()
				}
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the other side closed the connection")
			}
			c.close(err)
			return c.end
		}
	}
}

// watch says to the other side what it should know, and closes a connection that is of no more use.
func (c *connection) watch(changed func(), expected func() []Key) {
	began := now()
	clock := time.NewTicker(every / 4)
	defer clock.Stop()
	ticking := make(chan bool)
	defer close(ticking)
	go func() {
		for hears := range ticking {
			c.tick(hears, expected())
		}
	}()
	var ticked int64
	var was bool
	for {
		hears := c.hears() && !c.leaving.Load()
		if hears != was {
			changed()
		}
		if hears != was || now()-ticked >= int64(every) {
			select {
			case ticking <- hears:
				ticked = now()
			default: // the last one still waits for its turn
			}
		}
		was = hears
		if err := c.useless(began); err != nil {
			c.close(err)
		}
		select {
		case <-c.done:
			return
		case <-clock.C:
		}
	}
}

// useless says why a connection should end: it was silent for long, or its writer waits for one that is silent, and
// could write to another.
func (c *connection) useless(began int64) error {
	if c.hears() {
		return nil
	}
	if silent := now() - max(began, c.heard.Load()); silent > int64(given) {
		return fmt.Errorf("%w for %v", errSilent, given)
	}
	if since := c.writing.Load(); since != 0 && now()-since > int64(lost*every) {
		return fmt.Errorf("%w, and took nothing, for %v", errSilent, lost*every)
	}
	return nil
}

func (c *connection) tick(hears bool, keys []Key) {
	var say byte
	if hears {
		say |= tickHears
	}
	if c.old() {
		keys = nil
	} else if c.beside.hears.Load() {
		say |= tickBeside
	}
	frame := newTick(say, keys)
	_ = c.send(func() (next []byte, err error) {
		next, frame = frame, nil
		return next, nil
	})
}

// old says that the other side knows no ticks of more than tickHears.
func (c *connection) old() bool { return c.tls.ConnectionState().NegotiatedProtocol == protocols[1] }

// farewell is how long a connection that is used no more stays open: what is under way arrives in it.
const farewell = time.Second

// leave has both sides use the connection no more, and ends it once what is under way has arrived.
func (c *connection) leave(changed func()) {
	c.leaving.Store(true)
	changed()
	select {
	case <-c.done:
	case <-time.After(farewell):
		c.close(errRenewed)
	}
}

// close ends the connection; the first call says why.
func (c *connection) close(why error) {
	c.ended.Do(func() {
		c.end = why
		close(c.done)
		_ = c.tcp.Close() // without a word of TLS, which could wait
	})
}
