package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// Connector makes the sender's connection to the receiver, again whenever it is lost. It is safe
// for concurrent use.
type Connector struct {
	config *tls.Config
	timing Timing
	pace   func(int)

	mutex sync.Mutex
	conn  *Conn
	// dialledAt is the address that conn was dialled at; empty if the controller joined it.
	dialledAt string
	// lastError says why there is no connection.
	lastError error
	// connChanged is closed, and replaced, at each new connection; conns counts them.
	connChanged chan struct{}
	conns       int64
	// joinable says that the controller may join this end with the receiver.
	joinable bool
	// peers are the addresses at which the receiver may be, dialError says why it was not reached
	// there; peersChanged is closed, and replaced, when they change.
	peers        []string
	dialError    error
	peersChanged chan struct{}
}

// NewConnector makes one without a connection; DialPeers and Accept make connections.
func NewConnector(config *tls.Config, timing Timing, pace func(int)) *Connector {
	return &Connector{config: config, timing: timing, pace: pace, connChanged: make(chan struct{}), peersChanged: make(chan struct{})}
}

// Accept accepts connections that the controller joins to the receiver's, until ctx ends. While a
// dialled connection works they are closed before the handshake: the receiver would take them for
// the newer connection, and close the one that works.
func (c *Connector) Accept(ctx context.Context, listener net.Listener) error {
	c.mutex.Lock()
	c.joinable = true
	c.mutex.Unlock()
	defer c.closeCurrent()
	wrap := func(raw net.Conn) *tls.Conn { return tls.Client(NewBufferedConn(raw), c.config) }
	return AcceptTLS(ctx, rejectingListener{listener, c.connectedDirectly}, wrap, func(conn *tls.Conn) { c.setCurrent(conn, "") }, c.setError)
}

// rejectingListener closes accepted connections at once while reject returns true.
type rejectingListener struct {
	net.Listener
	reject func() bool
}

// Accept implements net.Listener.
func (l rejectingListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || !l.reject() {
			return conn, err
		}
		_ = conn.Close()
	}
}

// setCurrent makes a connection the current one; dialledAt is empty if the controller joined it.
func (c *Connector) setCurrent(raw *tls.Conn, dialledAt string) *Conn {
	conn := NewConn(raw, c.timing, c.pace)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.conn != nil {
		c.conn.Close()
	}
	c.conn, c.dialledAt, c.lastError = conn, dialledAt, nil
	c.conns++
	close(c.connChanged)
	c.connChanged = make(chan struct{})
	return conn
}

func (c *Connector) setError(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.lastError = err
}

func (c *Connector) closeCurrent() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.conn != nil {
		c.conn.Close()
	}
}

// Get waits for a connection that is not closed. All callers get the same one.
func (c *Connector) Get(ctx context.Context) (*Conn, error) {
	for {
		conn, changed := c.current()
		if conn != nil {
			return conn, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *Connector) current() (*Conn, <-chan struct{}) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.liveConn(), c.connChanged
}

// liveConn returns the connection unless it is closed. The caller holds the mutex.
func (c *Connector) liveConn() *Conn {
	if c.conn != nil {
		select {
		case <-c.conn.Done():
		default:
			return c.conn
		}
	}
	return nil
}

// connectedDirectly reports whether the current connection was dialled.
func (c *Connector) connectedDirectly() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.liveConn() != nil && c.dialledAt != ""
}

// errNeverReached is the reason before the first attempt.
var errNeverReached = errors.New("the receiver has not been reached yet")

// State returns whether there is a connection, how many there have been, and why there is none.
func (c *Connector) State() (connected bool, made int64, why error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.liveConn() != nil {
		return true, c.conns, nil
	}
	if c.lastError == nil && c.conns > 0 {
		return false, c.conns, ErrLost
	}
	if c.lastError == nil {
		return false, 0, errNeverReached
	}
	return false, c.conns, c.lastError
}

// Peers returns the addresses at which the receiver may be, whether the present connection was
// dialled there, and why the last dial there failed.
func (c *Connector) Peers() (peers []string, direct bool, missed error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.peers, c.liveConn() != nil && c.dialledAt != "", c.dialError
}

const (
	// Pauses between attempts to dial the receiver double from firstBackoff to maxBackoff.
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
	// minUseful is the least duration of a connection that counts as a success.
	minUseful = time.Second
	// lossWindow is the time within which a second loss counts as repeated. A network between the
	// movers may pass only small packets, or cut long connections: no error distinguishes that from
	// a receiver that was restarted.
	lossWindow = 2 * time.Minute
)

// SetPeers replaces the addresses at which the receiver may be. A connection that was dialled to an
// address that is no longer among them is closed: the receiver is another pod now.
func (c *Connector) SetPeers(peers []string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if slices.Equal(peers, c.peers) {
		return
	}
	c.peers, c.dialError = slices.Clone(peers), nil
	if c.conn != nil && c.dialledAt != "" && !slices.Contains(peers, c.dialledAt) {
		c.conn.Close()
	}
	close(c.peersChanged)
	c.peersChanged = make(chan struct{})
}

// DialPeers dials the receiver at its possible addresses, one after another, whenever there is no
// connection, until ctx ends. A connection that works is kept, also one that the controller joined.
func (c *Connector) DialPeers(ctx context.Context) {
	defer c.closeCurrent()
	pause, lost := firstBackoff, time.Time{}
	for ctx.Err() == nil {
		c.mutex.Lock()
		peers, changed, conn := c.peers, c.peersChanged, c.liveConn()
		c.mutex.Unlock()
		switch {
		case conn != nil:
			select {
			case <-conn.Done():
			case <-ctx.Done():
			}
			continue
		case len(peers) == 0:
			select {
			case <-changed:
				pause = firstBackoff
			case <-ctx.Done():
			}
			continue
		}
		var rest time.Duration
		if rest, pause = c.dialUntilLost(ctx, peers, pause, &lost); rest == 0 {
			continue
		}
		select {
		case <-time.After(rest):
		case <-changed:
			pause = firstBackoff
		case <-ctx.Done():
		}
	}
}

// dialUntilLost dials one peer after another, and returns when the connection that it made ends. It
// returns how long to pause then, and how long after the next failure. lost is when the last
// connection ended.
func (c *Connector) dialUntilLost(ctx context.Context, peers []string, pause time.Duration, lost *time.Time) (rest, next time.Duration) {
	conn, err := c.dialAny(ctx, peers)
	if err != nil {
		return pause, min(2*pause, maxBackoff)
	}
	began := time.Now()
	select {
	case <-conn.Done():
	case <-ctx.Done():
	}
	before := *lost
	*lost = time.Now()
	c.mutex.Lock()
	joinable := c.joinable
	c.mutex.Unlock()
	switch {
	case joinable && conn.TimedOut():
		// The network between the movers passes nothing any more, or never did beyond the first
		// frames: the pause gives the controller time to join them.
		c.setDialError(fmt.Errorf("nothing came from %s any more", conn.RemoteAddr()))
		return maxBackoff, maxBackoff
	case joinable && !before.IsZero() && lost.Sub(before) < lossWindow:
		c.setDialError(fmt.Errorf("the connection to %s ended again and again", conn.RemoteAddr()))
		return maxBackoff, maxBackoff
	case lost.Sub(began) < minUseful:
		c.setDialError(fmt.Errorf("the connection to %s ended at once", conn.RemoteAddr()))
		return pause, min(2*pause, maxBackoff)
	}
	// It dials at once: the other end may have been restarted.
	return 0, firstBackoff
}

// dialAny connects to the first peer that proves to be the receiver.
func (c *Connector) dialAny(ctx context.Context, peers []string) (*Conn, error) {
	var err error
	for _, peer := range peers {
		var conn *Conn
		if conn, err = c.dial(ctx, peer); err == nil || errors.Is(err, errNotNeeded) {
			return conn, err
		}
		c.setDialError(err)
	}
	return nil, err
}

// errNotNeeded means that there was another connection before the receiver was dialled.
var errNotNeeded = errors.New("the receiver is connected meanwhile, or elsewhere")

// dial dials a peer and makes that connection the current one.
func (c *Connector) dial(ctx context.Context, peer string) (*Conn, error) {
	ctx, stop := context.WithTimeout(ctx, moverapi.PeerTimeout)
	defer stop()
	dialer := net.Dialer{KeepAlive: 15 * time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", peer)
	if err != nil {
		return nil, fmt.Errorf("reach the receiver: %w", err)
	}
	if conn, _ := c.current(); conn != nil {
		_ = raw.Close()
		return nil, errNotNeeded
	}
	conn := tls.Client(NewBufferedConn(raw), c.config)
	if err := handshakeTLS(ctx, conn); err != nil {
		return nil, fmt.Errorf("dial the receiver at %s: %w", peer, err)
	}
	current := c.setCurrent(conn, peer)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !slices.Contains(c.peers, peer) {
		current.Close()
		return nil, errNotNeeded
	}
	c.dialError = nil
	return current, nil
}

// setDialError records why the receiver was not reached at a peer's address.
func (c *Connector) setDialError(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.lastError, c.dialError = err, err
}

const (
	// handshakeTimeout limits the time of a handshake.
	handshakeTimeout = 30 * time.Second
	// maxHandshakes is how many handshakes may run at the same time; further connections are closed
	// at once.
	maxHandshakes = 16
)

// handshakeTLS authenticates the other end, or closes the connection.
func handshakeTLS(ctx context.Context, conn *tls.Conn) error {
	ctx, stop := context.WithTimeout(ctx, handshakeTimeout)
	defer stop()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return fmt.Errorf("authenticate the other mover: %w", err)
	}
	return nil
}

// AcceptTLS accepts connections until ctx ends, makes TLS connections of them with wrap and passes
// each whose handshake succeeds to accept, which must return soon. Failed is called for the others;
// it may be nil.
func AcceptTLS(ctx context.Context, listener net.Listener, wrap func(net.Conn) *tls.Conn, accept func(*tls.Conn),
	failed func(error)) error {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	slots := make(chan struct{}, maxHandshakes)
	var handshakes sync.WaitGroup
	defer handshakes.Wait()
	for {
		raw, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept connections: %w", err)
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = raw.Close()
			continue
		}
		handshakes.Go(func() {
			defer func() { <-slots }()
			conn := wrap(raw)
			if err := handshakeTLS(ctx, conn); err != nil {
				klog.FromContext(ctx).V(2).Info("Refused a connection", "from", raw.RemoteAddr(), "reason", err.Error())
				if failed != nil {
					failed(err)
				}
				return
			}
			accept(conn)
		})
	}
}

// ServeConnections is the receiver's end: it accepts the sender's connections until ctx ends and
// calls serve for each, with a context that ends with the connection. A newer connection closes the
// older one, and serve of that has returned before serve of the newer one is called: so two
// senders, or an old and a new process of one, never write at the same time.
func ServeConnections(ctx context.Context, listener net.Listener, config *tls.Config, timing Timing,
	serve func(context.Context, *Conn) error) error {
	var mutex sync.Mutex
	var last *Conn
	// turn is locked while a serve runs.
	var turn sync.Mutex
	var serving sync.WaitGroup
	defer serving.Wait()
	accept := func(raw *tls.Conn) {
		conn := NewConn(raw, timing, nil)
		mutex.Lock()
		if last != nil {
			last.Close()
		}
		last = conn
		mutex.Unlock()
		serving.Go(func() {
			defer conn.Close()
			turn.Lock()
			defer turn.Unlock()
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			defer context.AfterFunc(ctx, conn.Close)()
			go func() {
				<-conn.Done()
				stop()
			}()
			logger := klog.FromContext(ctx)
			logger.Info("The sender is connected", "from", raw.RemoteAddr())
			if err := serve(ctx, conn); err != nil && ctx.Err() == nil {
				logger.Info("The sender's connection ended", "reason", err.Error())
			}
		})
	}
	return AcceptTLS(ctx, listener, func(raw net.Conn) *tls.Conn { return tls.Server(NewBufferedConn(raw), config) }, accept, nil)
}
