// Package restic carries contents of files through an object store: the sender's restic
// saves files in a repository that this move alone has, and the receiver's fetches them
// from there. What restic does not keep is for others to mend, and whether both volumes
// are the same others find out: nothing rests on restic but how the bytes travel.
package restic

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/lodestone-storage/lodestone/mover/confine"
	"github.com/lodestone-storage/lodestone/mover/process"
	"github.com/lodestone-storage/lodestone/pkg/moverepository"
)

const (
	// dialTimeout is how long the store may take to answer a greeting, askTimeout how long
	// a question, before it counts as out of reach. Restic itself would try for a quarter
	// of an hour.
	dialTimeout = 5 * time.Second
	askTimeout  = time.Minute
)

// Store is the repository of one claim's movers. Its methods may be called at once; one
// works at a time.
type Store struct {
	moverepository.Ticket
	// Self is the mover's own program, Authority the file with the store's authority, empty
	// if it has none of its own, Temporary a directory outside of the volume.
	Self, Authority, Temporary string

	turn sync.Mutex
	// known says that the repository is there, clean that nothing is in it.
	known, clean bool
}

// program is where restic is.
func program() string {
	if path, err := exec.LookPath("restic"); err == nil {
		return path
	}
	return "/usr/bin/restic"
}

// Installed returns an error unless there is a restic.
func Installed() error {
	if _, err := os.Stat(program()); err != nil {
		return fmt.Errorf("restic is not installed beside the mover: %w", err)
	}
	return nil
}

// Open makes the repository ready, with create also where there is none yet. An *Error
// says why the store cannot be used.
func (s *Store) Open(ctx context.Context, create bool) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.known {
		return nil
	}
	return s.open(ctx, create)
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
	if anew && s.Plain() {
		limited, stop := context.WithTimeout(ctx, askTimeout)
		defer stop()
		if err := s.erase(limited); err != nil && ctx.Err() == nil {
			return &Error{Sentence: err.Error()}
		}
	}
	return s.open(ctx, true)
}

func (s *Store) open(ctx context.Context, create bool) error {
	if err := s.dial(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
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

// Saved is what Save has put into the store.
type Saved struct {
	// Snapshot names it for Fetch.
	Snapshot string
	// Bytes is how much travelled for it.
	Bytes int64
}

// Save saves files of a volume, whose relative paths are in list, each ended by NUL.
// What vanishes or cannot be read is left out. Told is told how many bytes of files are
// dealt with, and what keeps the store from going on. limit is in bytes a second.
func (s *Store) Save(ctx context.Context, volume string, list io.Reader, limit int64, told Told) (Saved, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.clean = false
	c := call{verb: save, volume: volume, input: list, limit: limit, told: &told}
	err := s.run(ctx, c)
	if errors.Is(err, errLocked) {
		// A restic of this move that was killed has left its lock: nobody else writes here.
		if err = s.run(ctx, call{verb: unlock}); err == nil {
			err = &Error{Sentence: "it was locked by an earlier life of this mover"}
		}
	}
	if err == nil && told.summary.Snapshot == "" {
		err = &Error{Sentence: "restic saved nothing in it"}
	}
	return Saved{Snapshot: told.summary.Snapshot, Bytes: told.summary.Packed}, err
}

// Fetch writes what a snapshot holds into a volume, over what is there. ErrFull says that
// the volume has no room, an *Error that the store cannot be used; a *Partial names what
// else restic did not do, and all other files are written.
func (s *Store) Fetch(ctx context.Context, volume, snapshot string, limit int64, told Told) error {
	if !named.MatchString(snapshot) {
		return fmt.Errorf("the sender named %.80q, which is no snapshot", snapshot)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.run(ctx, call{verb: fetch, volume: volume, snapshot: snapshot, limit: limit, told: &told})
}

// Clear removes all that was saved; the repository itself stays.
func (s *Store) Clear(ctx context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.clean {
		return nil
	}
	return s.clear(ctx)
}

// clear forgets all snapshots, and removes what belongs to none: a restic that was killed
// has left that.
func (s *Store) clear(ctx context.Context) error {
	err := s.run(ctx, call{verb: forget})
	if errors.Is(err, errLocked) {
		if err = s.run(ctx, call{verb: unlock}); err == nil {
			err = s.run(ctx, call{verb: forget})
		}
	}
	if err == nil {
		err = s.run(ctx, call{verb: prune})
	}
	s.clean = err == nil
	return err
}

// run runs restic once, until it and all that it started have ended.
func (s *Store) run(ctx context.Context, c call) error {
	if err := Installed(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Temporary, 0o700); err != nil {
		return fmt.Errorf("make a directory for restic: %w", err)
	}
	access := []confine.Access{{Path: program(), Execute: true}, {Path: s.Temporary, Write: true}}
	if s.Authority != "" {
		access = append(access, confine.Access{Path: s.Authority})
	}
	if c.volume != "" {
		access = append(access, confine.Access{Path: c.volume, Write: c.verb == fetch})
	}
	if c.told == nil {
		c.told = &Told{}
	}
	asked := ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := confine.Command(ctx, s.Self, access, program(), s.arguments(c)...)
	process.OwnGroup(cmd)
	cmd.Dir, cmd.Env, cmd.Stdin = s.Temporary, s.environment(), c.input
	cmd.Stderr = &watcher{line: c.told.complain}
	if c.volume != "" {
		cmd.Dir = c.volume
	}
	cmd.Stdout = &watcher{line: c.told.take}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start restic: %w", err)
	}
	code := process.Wait(cmd)
	switch {
	case errors.Is(asked.Err(), context.DeadlineExceeded):
		return judge(c.verb, code, strings.TrimSuffix("it does not answer: "+c.told.said(), ": "), false)
	case asked.Err() != nil:
		return asked.Err()
	}
	return judge(c.verb, code, c.told.said(), c.told.done)
}
