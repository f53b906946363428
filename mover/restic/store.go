// Package restic carries contents of files through an object store, or a claim that both
// movers mount: the sender's restic saves files in a repository that this move alone has, and the receiver's fetches them
// from there. What restic does not keep is for others to mend, and whether both volumes
// are the same others find out: nothing rests on restic but how the bytes travel.
package restic

import (
	"context"
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

// Store is the repository of one claim's movers. Its methods may be called at once; one
// works at a time.
type Store struct {
	moverepository.Ticket
	// Self is the mover's own program, Authority the file with the store's authority, empty
	// if it has none of its own, Temporary a directory outside of the volume.
	Self, Authority, Temporary string
	// Root is where the claim is mounted, if the repository is in one.
	Root string

	turn sync.Mutex
	// known says that the repository is there, clean that nothing is in it.
	known, clean bool
	// part is the part of a repository in a claim that this sender has made last. filing is
	// held while something is done with the claim's files.
	part   string
	filing sync.Mutex
	// patience is how long restic may do nothing; 0: longestSilence.
	patience time.Duration
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

// Saved is what Save has put into the store.
type Saved struct {
	// Snapshot names it for Fetch, and Part the part of a repository in a claim.
	Snapshot, Part string
	// Bytes is how much travelled for it.
	Bytes int64
}

// Save saves files of a volume, whose relative paths are in list, each ended by NUL.
// What vanishes or cannot be read is left out. Told is told how many bytes of files are
// dealt with, and what keeps the store from going on. limit is in bytes a second.
func (s *Store) Save(ctx context.Context, volume string, list io.Reader, limit int64, told Told) (Saved, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	// What is saved at once has a part of its own.
	if err := s.open(ctx, true); err != nil {
		return Saved{}, err
	}
	s.clean = false
	c := call{verb: save, volume: volume, part: s.part, input: list, limit: limit, told: &told}
	err := s.run(ctx, c)
	if errors.Is(err, errLocked) {
		// A restic of this move that was killed has left its lock: nobody else writes here.
		if err = s.run(ctx, call{verb: unlock, part: s.part}); err == nil {
			err = &Error{Sentence: "it was locked by an earlier life of this mover"}
		}
	}
	if err == nil && told.summary.Snapshot == "" {
		err = &Error{Sentence: "restic saved nothing in it"}
	}
	return Saved{Snapshot: told.summary.Snapshot, Part: s.part, Bytes: told.summary.Packed}, err
}

// Fetch writes what was saved into a volume, over what is there. ErrFull says that the
// volume has no room, an *Error that the store cannot be used; a *Partial names what else
// restic did not do, and all other files are written.
func (s *Store) Fetch(ctx context.Context, volume string, saved Saved, limit int64, told Told) error {
	if !named.MatchString(saved.Snapshot) || s.inClaim() && !part.MatchString(saved.Part) {
		return fmt.Errorf("the sender named %.80q, which is no snapshot", saved.Part+saved.Snapshot)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.run(ctx, call{verb: fetch, volume: volume, part: saved.Part, snapshot: saved.Snapshot, limit: limit, told: &told})
}

// Clear removes all that was saved; the repository itself stays in an object store.
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
	if s.inClaim() {
		return s.erase(ctx)
	}
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

// run runs restic once, until it and all that it started have ended. It is stopped when it
// does nothing for too long.
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
	var given []*os.File
	if s.inClaim() {
		directory, err := s.openPart(ctx, c.part)
		if err != nil {
			return err
		}
		defer directory.Close()
		given = []*os.File{directory}
		access = append(access, confine.Access{Path: mounted, Write: c.verb != fetch && c.verb != look})
	}
	if c.told == nil {
		c.told = &Told{}
	}
	asked := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cmd := confine.Command(ctx, s.Self, access, program(), s.arguments(c)...)
	process.OwnGroup(cmd)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.ExtraFiles = s.Temporary, s.environment(), c.input, given
	heard := &ears{}
	cmd.Stderr = &watcher{line: c.told.complain, heard: heard}
	if c.volume != "" {
		cmd.Dir = c.volume
	}
	cmd.Stdout = &watcher{line: c.told.take, heard: heard}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start restic: %w", err)
	}
	var watching sync.WaitGroup
	watched, ended := context.WithCancel(ctx)
	watching.Go(func() {
		if err := s.watch(watched, cmd.Process.Pid, heard); err != nil {
			stop(err)
		}
	})
	code := process.Wait(cmd)
	ended()
	watching.Wait()
	switch {
	case errors.Is(asked.Err(), context.DeadlineExceeded):
		return judge(c.verb, code, strings.TrimSuffix("it does not answer: "+c.told.said(), ": "), false)
	case asked.Err() != nil:
		return asked.Err()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if err := judgeClaim(code, c.told.said()); s.inClaim() && err != nil {
		return err
	}
	return judge(c.verb, code, c.told.said(), c.told.done)
}
