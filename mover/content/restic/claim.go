package restic

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// A repository in a claim consists of parts: each is a repository of restic's with the content of
// one Save. A network file system that both ends mount caches directory listings and missing names
// for a while, so the other end only ever opens names that it has not opened before.

// partDescriptor is the path by which restic gets the part that it works on: the first file that it
// inherits. Somebody else may write in that storage and replace the part's name meanwhile; the
// descriptor stays.
const partDescriptor = "/proc/self/fd/3"

// partName is the form of the name of a part.
var partName = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// abandonedAfter is the time after its last change from which on a repository is not needed any
// more: no move lasts as long.
const abandonedAfter = 31 * 24 * time.Hour

// withClaim calls do with the claim's root directory and waits until limit for it to return. One
// call runs at a time, and a call that was given up counts until it returns. An *Error says what is
// wrong. Access through root cannot leave the claim, whatever links are in it.
func (s *Store) withClaim(ctx context.Context, limit time.Duration, do func(root *os.Root) error) error {
	limited, stop := context.WithTimeout(ctx, limit)
	defer stop()
	done := make(chan error, 1)
	go func() {
		s.claimMutex.Lock()
		defer s.claimMutex.Unlock()
		root, err := os.OpenRoot(s.Root)
		if err == nil {
			err = errors.Join(do(root), root.Close())
		}
		done <- err
	}()
	select {
	case err := <-done:
		var unusable *Error
		if err == nil || errors.As(err, &unusable) {
			return err
		}
		return &Error{Sentence: explainClaimError(err.Error())}
	case <-limited.Done():
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &Error{Sentence: "its storage does not answer"}
	}
}

// newPart creates a part. It removes all others of this move, and repositories that moves of the
// past have left.
func (s *Store) newPart(ctx context.Context) error {
	if _, err := sandbox.LandlockVersion(); err != nil {
		return &Error{Sentence: "the kernel of this node confines no program (Landlock is missing), and whoever may write to that storage " +
			"could have restic write elsewhere: have moves use an object store, or none"}
	}
	s.part = rand.Text()
	err := s.withClaim(ctx, askTimeout, func(root *os.Root) error {
		if err := root.RemoveAll(s.Folder); err != nil {
			return err
		}
		if err := root.MkdirAll(path.Join(s.Folder, s.part), 0o700); err != nil {
			return err
		}
		return s.removeAbandoned(root)
	})
	if err != nil {
		return err
	}
	return s.run(ctx, call{operation: initRepository, part: s.part})
}

// removeAbandoned removes repositories of other moves of this namespace whose movers could not
// remove them. Ages are by the clock of the storage.
func (s *Store) removeAbandoned(root *os.Root) error {
	own, err := root.Stat(s.Folder)
	if err != nil {
		return err
	}
	directory, err := root.Open(".")
	if err != nil {
		return err
	}
	defer directory.Close()
	// There should be very few entries, but others may write there.
	all, _ := directory.ReadDir(1000)
	for _, entry := range all {
		info, err := entry.Info()
		if err != nil || !info.IsDir() || !moverapi.Named(entry.Name()) || own.ModTime().Sub(info.ModTime()) < abandonedAfter {
			continue
		}
		// A later move tries again to remove what cannot be removed now.
		_ = root.RemoveAll(entry.Name())
	}
	return nil
}

// openPart opens the directory of a part.
func (s *Store) openPart(ctx context.Context, name string) (*os.File, error) {
	var directory *os.File
	err := s.withClaim(ctx, askTimeout, func(root *os.Root) (err error) {
		directory, err = root.OpenFile(path.Join(s.Folder, name), os.O_RDONLY|unix.O_DIRECTORY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return errNoRepository
		}
		return err
	})
	if err != nil {
		return nil, err // The open may still succeed when nobody waits for it.
	}
	return directory, nil
}

// Check returns an error unless this end can read what the sender has made: in a claim, the part of
// a random name, so that two volumes are never mistaken for one.
func (s *Store) Check(ctx context.Context, name string) error {
	if !s.inClaim() {
		return s.Open(ctx, false)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !partName.MatchString(name) {
		return fmt.Errorf("the sender named %.80q, which is no part of a repository", name)
	}
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	err := s.run(ctx, call{operation: checkRepository, part: name})
	if errors.Is(err, errNoRepository) {
		return &Error{Sentence: "what the mover at the source has just written there is not in it, so the claims of this name lead to " +
			"different storage: make both of the same"}
	}
	return err
}
