package link

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"github.com/lodestone-storage/lodestone/mover/stream"
)

// Sender is the sender's end of the data connection.
type Sender struct {
	config *tls.Config
	timing stream.Timing
	pace   func(int)

	mutex sync.Mutex
	conn  *stream.Conn
	// at is the address that conn was dialled at; empty: somebody joined it.
	at  string
	why error
	// made is closed, and made anew, with each new connection.
	made  chan struct{}
	count int64
	// joinable: somebody may join this end with the receiver.
	joinable bool
	// peers are where the receiver may be, missed is why it was not reached there; told
	// is closed, and made anew, when they change.
	peers  []string
	missed error
	told   chan struct{}
}

// NewSender makes an end without a connection; Seek and Accept make connections.
func NewSender(config *tls.Config, timing stream.Timing, pace func(int)) *Sender {
	return &Sender{config: config, timing: timing, pace: pace, made: make(chan struct{}), told: make(chan struct{})}
}

// Accept takes connections that somebody joins to the receiver's, until ctx ends. While
// the receiver was dialled and is connected they are closed before anything is said: the
// receiver would take them for the newer connection, and end the one that works.
func (s *Sender) Accept(ctx context.Context, listener net.Listener) error {
	s.mutex.Lock()
	s.joinable = true
	s.mutex.Unlock()
	defer s.drop()
	return Listen(ctx, shy{listener, s.dialled}, func(raw net.Conn) *tls.Conn { return tls.Client(stream.Gather(raw), s.config) },
		func(conn *tls.Conn) { s.take(conn, "") }, s.failed)
}

// shy is a listener that closes what comes while it is busy.
type shy struct {
	net.Listener
	busy func() bool
}

// Accept implements net.Listener.
func (l shy) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || !l.busy() {
			return conn, err
		}
		_ = conn.Close()
	}
}

// take makes a connection the current one; at is where it was dialled, empty where
// somebody joined it.
func (s *Sender) take(raw *tls.Conn, at string) *stream.Conn {
	conn := stream.New(raw, s.timing, s.pace)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.conn != nil {
		s.conn.Close()
	}
	s.conn, s.at, s.why = conn, at, nil
	s.count++
	close(s.made)
	s.made = make(chan struct{})
	return conn
}

func (s *Sender) failed(err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.why = err
}

func (s *Sender) drop() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.conn != nil {
		s.conn.Close()
	}
}

// Get waits for a connection that is not closed. The caller has it alone only if
// nobody else gets it.
func (s *Sender) Get(ctx context.Context) (*stream.Conn, error) {
	for {
		conn, made := s.current()
		if conn != nil {
			return conn, nil
		}
		select {
		case <-made:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Sender) current() (*stream.Conn, <-chan struct{}) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.live(), s.made
}

// live returns the connection unless it is closed, for who holds the lock.
func (s *Sender) live() *stream.Conn {
	if s.conn != nil {
		select {
		case <-s.conn.Done():
		default:
			return s.conn
		}
	}
	return nil
}

// dialled says whether there is a connection to the receiver that was dialled.
func (s *Sender) dialled() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.live() != nil && s.at != ""
}

// errNone is the reason while nothing was tried yet.
var errNone = errors.New("the receiver has not been reached yet")

// State says whether there is a connection, how many there have been, and why there
// is none.
func (s *Sender) State() (connected bool, made int64, why error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.live() != nil {
		return true, s.count, nil
	}
	if s.why == nil && s.count > 0 {
		return false, s.count, stream.ErrLost
	}
	if s.why == nil {
		return false, 0, errNone
	}
	return false, s.count, s.why
}

// Peers says where the receiver may be, whether the present connection leads there, and
// why it was not reached there the last time.
func (s *Sender) Peers() (peers []string, direct bool, missed error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.peers, s.live() != nil && s.at != "", s.missed
}
