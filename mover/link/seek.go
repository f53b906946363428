package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

const (
	// firstPause and longestPause are between attempts to dial the receiver.
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
	// useful is how long a connection lasts that was worth dialling.
	useful = time.Second
	// steady is how long after a loss another one is the first again. Where a second one
	// comes sooner, something between the movers may let small packets through and no
	// others, or end what lasts: no error tells that apart from a receiver that was
	// started again.
	steady = 2 * time.Minute
)

// Tell replaces the addresses at which the receiver may be. A connection that was
// dialled to another one ends: somebody else is the receiver now.
func (s *Sender) Tell(peers []string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if slices.Equal(peers, s.peers) {
		return
	}
	s.peers, s.missed = slices.Clone(peers), nil
	if s.conn != nil && s.at != "" && !slices.Contains(peers, s.at) {
		s.conn.Close()
	}
	close(s.told)
	s.told = make(chan struct{})
}

// Seek dials the receiver at the addresses that were told, one after another, whenever
// there is no connection, until ctx ends. A connection that works is left alone, also one
// that somebody joined.
func (s *Sender) Seek(ctx context.Context) {
	defer s.drop()
	pause, lost := firstPause, time.Time{}
	for ctx.Err() == nil {
		s.mutex.Lock()
		peers, told, conn := s.peers, s.told, s.live()
		s.mutex.Unlock()
		switch {
		case conn != nil:
			select {
			case <-conn.Done():
			case <-ctx.Done():
			}
			continue
		case len(peers) == 0:
			select {
			case <-told:
				pause = firstPause
			case <-ctx.Done():
			}
			continue
		}
		var rest time.Duration
		if rest, pause = s.try(ctx, peers, pause, &lost); rest == 0 {
			continue
		}
		select {
		case <-time.After(rest):
		case <-told:
			pause = firstPause
		case <-ctx.Done():
		}
	}
}

// try dials one peer after another, and returns when the connection that it made ends:
// how long to rest then, and how long after the next failure. lost is when the last
// connection ended.
func (s *Sender) try(ctx context.Context, peers []string, pause time.Duration, lost *time.Time) (rest, next time.Duration) {
	conn, err := s.dialAny(ctx, peers)
	if err != nil {
		return pause, min(2*pause, longestPause)
	}
	began := time.Now()
	select {
	case <-conn.Done():
	case <-ctx.Done():
	}
	before := *lost
	*lost = time.Now()
	s.mutex.Lock()
	joinable := s.joinable
	s.mutex.Unlock()
	switch {
	case joinable && conn.Silent():
		// Whatever is between the movers lets nothing through any more, or never did beyond
		// the greeting: somebody who can join them gets the time to.
		s.miss(fmt.Errorf("nothing came from %s any more", conn.RemoteAddr()))
		return longestPause, longestPause
	case joinable && !before.IsZero() && lost.Sub(before) < steady:
		s.miss(fmt.Errorf("the connection to %s ended again and again", conn.RemoteAddr()))
		return longestPause, longestPause
	case lost.Sub(began) < useful:
		s.miss(fmt.Errorf("the connection to %s ended at once", conn.RemoteAddr()))
		return pause, min(2*pause, longestPause)
	}
	// At once: the other end may have been replaced.
	return 0, firstPause
}

// dialAny makes a connection to the first peer that is the receiver.
func (s *Sender) dialAny(ctx context.Context, peers []string) (*stream.Conn, error) {
	var err error
	for _, peer := range peers {
		var conn *stream.Conn
		if conn, err = s.dial(ctx, peer); err == nil || errors.Is(err, errNeedless) {
			return conn, err
		}
		s.miss(err)
	}
	return nil, err
}

// errNeedless says that there was a connection before the receiver was dialled.
var errNeedless = errors.New("the receiver is connected meanwhile, or elsewhere")

// dial makes a connection to a peer the current one.
func (s *Sender) dial(ctx context.Context, peer string) (*stream.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, movecontrol.PeerTimeout)
	defer stop()
	dialer := net.Dialer{KeepAlive: 15 * time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", peer)
	if err != nil {
		return nil, fmt.Errorf("reach the receiver: %w", err)
	}
	if conn, _ := s.current(); conn != nil {
		_ = raw.Close()
		return nil, errNeedless
	}
	conn := tls.Client(stream.Gather(raw), s.config)
	if err := shake(ctx, conn); err != nil {
		return nil, fmt.Errorf("dial the receiver at %s: %w", peer, err)
	}
	taken := s.take(conn, peer)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !slices.Contains(s.peers, peer) {
		taken.Close()
		return nil, errNeedless
	}
	s.missed = nil
	return taken, nil
}

// miss remembers why the receiver was not reached where it was said to be.
func (s *Sender) miss(err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.why, s.missed = err, err
}
