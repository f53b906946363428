package restic

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"time"
)

const (
	// dialTimeout is how long the store may take to answer a greeting, askTimeout how long
	// a question, before it counts as out of reach. Restic itself would try for a quarter
	// of an hour.
	dialTimeout = 5 * time.Second
	askTimeout  = time.Minute
)

// Open makes the repository ready, with create also where there is none yet. An *Error
// says why the store cannot be used.
func (s *Store) Open(ctx context.Context, create bool) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.open(ctx, create)
}

// Part is the part of the repository that Open has made, for Reach; empty in an object
// store.
func (s *Store) Part() string {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.part
}

// Reopen is Open after a failure: nothing that was known counts. With anew, what is left
// of the repository is removed first, where that is possible: a part of one is of no use.
func (s *Store) Reopen(ctx context.Context, anew bool) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.known, s.clean = false, false
	if err := s.dial(ctx); err != nil {
		return err
	}
	if anew && (s.inClaim() || s.Plain()) {
		limited, stop := context.WithTimeout(ctx, askTimeout)
		defer stop()
		if err := s.erase(limited); err != nil && ctx.Err() == nil {
			return &Error{Sentence: err.Error()}
		}
	}
	return s.open(ctx, true)
}

func (s *Store) open(ctx context.Context, create bool) error {
	if s.known {
		return nil
	}
	if err := s.dial(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	if s.inClaim() {
		err := s.newPart(ctx)
		s.known, s.clean = err == nil, err == nil
		return err
	}
	err := s.run(ctx, call{verb: look})
	if errors.Is(err, errNoRepository) && create {
		err = s.run(ctx, call{verb: begin})
		s.clean = err == nil
	}
	s.known = err == nil
	return err
}

// dial asks whether the store answers at all: that is soon known, and said clearly.
func (s *Store) dial(ctx context.Context) error {
	if s.inClaim() {
		return s.files(ctx, dialTimeout, func(root *os.Root) error { _, err := root.Stat("."); return err })
	}
	limited, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	dialer := tls.Dialer{Config: s.tls()}
	conn, err := dialer.DialContext(limited, "tcp", s.Host())
	switch {
	case err == nil:
		return conn.Close()
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return judge(look, -1, "it cannot be reached: "+err.Error(), false)
}
