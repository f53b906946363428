package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/lodestone-storage/lodestone/mover/stream"
)

// Sender is the sender's end of the data connection.
type Sender struct {
	config *tls.Config
	timing stream.Timing
	pace   func(int)

	mutex sync.Mutex
	conn  *stream.Conn
	why   error
	// made is closed, and made anew, with each new connection.
	made  chan struct{}
	count int64
}

// NewSender makes an end without a connection; Dial or Accept makes connections.
func NewSender(config *tls.Config, timing stream.Timing, pace func(int)) *Sender {
	return &Sender{config: config, timing: timing, pace: pace, made: make(chan struct{})}
}

// Dial keeps a connection to address until ctx ends.
func (s *Sender) Dial(ctx context.Context, address string) {
	pause := 100 * time.Millisecond
	for ctx.Err() == nil {
		conn, err := s.dial(ctx, address)
		if err == nil {
			pause = 100 * time.Millisecond
			select {
			case <-s.take(conn).Done():
			case <-ctx.Done():
			}
			// At once the first time: the other end may have been replaced.
			continue
		}
		s.failed(err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestPause)
	}
	s.drop()
}

func (s *Sender) dial(ctx context.Context, address string) (*tls.Conn, error) {
	dialer := net.Dialer{Timeout: handshake, KeepAlive: 15 * time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("reach the receiver: %w", err)
	}
	conn := tls.Client(raw, s.config)
	return conn, shake(ctx, conn)
}

// Accept takes connections that somebody joins to the receiver's, until ctx ends.
func (s *Sender) Accept(ctx context.Context, listener net.Listener) error {
	defer s.drop()
	return Listen(ctx, listener, func(raw net.Conn) *tls.Conn { return tls.Client(raw, s.config) },
		func(conn *tls.Conn) { s.take(conn) }, s.failed)
}

// take makes a connection the current one.
func (s *Sender) take(raw *tls.Conn) *stream.Conn {
	conn := stream.New(raw, s.timing, s.pace)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.conn != nil {
		s.conn.Close()
	}
	s.conn, s.why = conn, nil
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
	if s.conn != nil {
		select {
		case <-s.conn.Done():
		default:
			return s.conn, s.made
		}
	}
	return nil, s.made
}

// errNone is the reason while nothing was tried yet.
var errNone = errors.New("the receiver has not been reached yet")

// State says whether there is a connection, how many there have been, and why there
// is none.
func (s *Sender) State() (connected bool, made int64, why error) {
	conn, _ := s.current()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if conn != nil {
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
