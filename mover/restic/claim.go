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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/confine"
	"github.com/lodestone-storage/lodestone/pkg/moverepository"
)

// A repository in a claim is made of parts, each a repository of restic's for what is saved
// at once. A file system that both ends share over a network remembers for a while what it
// has seen of a directory, so the other end gets to see only names that it never asked for.

// mounted is where restic finds the part that it works on: the first file that it is given,
// whatever somebody makes of the part's name meanwhile. Others may write in that storage.
const mounted = "/proc/self/fd/3"

// part is what the name of a part looks like.
var part = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// outdated is how long after its last change nobody needs a repository any more: no move
// lasts as long.
const outdated = 31 * 24 * time.Hour

// inClaim says whether the repository is in a claim.
func (s *Store) inClaim() bool { return s.Claim != "" }

// files does something with the files of the claim, as long as that answers; one thing at a
// time, also when nobody waits for it any more. An *Error says what is wrong. Nothing that
// is done through root leaves the claim, whatever links are in it.
func (s *Store) files(ctx context.Context, limit time.Duration, do func(root *os.Root) error) error {
	limited, stop := context.WithTimeout(ctx, limit)
	defer stop()
	done := make(chan error, 1)
	go func() {
		s.filing.Lock()
		defer s.filing.Unlock()
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
		return &Error{Sentence: meaning(err.Error())}
	case <-limited.Done():
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &Error{Sentence: "its storage does not answer"}
	}
}

// meanings are parts of what a file system says, and what they mean.
var meanings = []struct{ part, means string }{
	{unix.ENOSPC.Error(), "it is full: make room in it"},
	{unix.EDQUOT.Error(), "it is full: make room in it"},
	{unix.EROFS.Error(), "its storage lets nobody write: let the nodes of both clusters do so"},
	{unix.EACCES.Error(), "its storage does not let root in: let root of the nodes of both clusters read and write there"},
	{unix.EPERM.Error(), "its storage does not let root in: let root of the nodes of both clusters read and write there"},
}

// meaning is a sentence for what a file system, or restic of one, said.
func meaning(said string) string {
	said = strings.ReplaceAll(said, mounted, "the repository")
	for _, m := range meanings {
		if strings.Contains(said, m.part) {
			return fmt.Sprintf("%s (%s)", m.means, said)
		}
	}
	return said
}

// judgeClaim makes an error of how restic ended with a repository in a claim, where that is
// what it complains of; nil otherwise.
func judgeClaim(code int, said string) error {
	if code == 0 || code == noRepository || code == isLocked || code == wrongPassword || !strings.Contains(said, mounted) {
		return nil
	}
	return &Error{Sentence: meaning(said)}
}

// newPart makes a part, and removes all others of this move, and what moves that are long
// over have left.
func (s *Store) newPart(ctx context.Context) error {
	if _, err := confine.Version(); err != nil {
		return &Error{Sentence: "the kernel of this node confines no program (Landlock is missing), and whoever may write to that storage could have restic write elsewhere: have moves use an object store, or none"}
	}
	s.part = rand.Text()
	err := s.files(ctx, askTimeout, func(root *os.Root) error {
		if err := root.RemoveAll(s.Folder); err != nil {
			return err
		}
		if err := root.MkdirAll(path.Join(s.Folder, s.part), 0o700); err != nil {
			return err
		}
		return s.removeOutdated(root)
	})
	if err != nil {
		return err
	}
	return s.run(ctx, call{verb: begin, part: s.part})
}

// removeOutdated removes repositories of other moves of this namespace whose movers could
// not do so themselves. What time it is, only the storage tells.
func (s *Store) removeOutdated(root *os.Root) error {
	own, err := root.Stat(s.Folder)
	if err != nil {
		return err
	}
	directory, err := root.Open(".")
	if err != nil {
		return err
	}
	defer directory.Close()
	// There is next to nothing, and others may write there.
	all, _ := directory.ReadDir(1000)
	for _, entry := range all {
		info, err := entry.Info()
		if err != nil || !info.IsDir() || !moverepository.Named(entry.Name()) || own.ModTime().Sub(info.ModTime()) < outdated {
			continue
		}
		// What cannot be removed now, a later move tries again.
		_ = root.RemoveAll(entry.Name())
	}
	return nil
}

// openPart opens the directory of a part.
func (s *Store) openPart(ctx context.Context, name string) (*os.File, error) {
	var directory *os.File
	err := s.files(ctx, askTimeout, func(root *os.Root) (err error) {
		directory, err = root.OpenFile(path.Join(s.Folder, name), os.O_RDONLY|unix.O_DIRECTORY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return errNoRepository
		}
		return err
	})
	if err != nil {
		return nil, err // It may be opened yet, when nobody wants it any more.
	}
	return directory, nil
}

// Reach asks whether what the sender has made can be read here: in a claim, the part of a
// name that nobody could guess, so that two volumes are never taken for one.
func (s *Store) Reach(ctx context.Context, name string) error {
	if !s.inClaim() {
		return s.Open(ctx, false)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	if !part.MatchString(name) {
		return fmt.Errorf("the sender named %.80q, which is no part of a repository", name)
	}
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	err := s.run(ctx, call{verb: look, part: name})
	if errors.Is(err, errNoRepository) {
		return &Error{Sentence: "what the mover at the source has just written there is not in it, so the claims of this name lead to different storage: make both of the same"}
	}
	return err
}
