package send

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/blocks"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

// choice tells which files are worth the way through the object store.
type choice struct {
	root int
}

func newChoice(volume string) (*choice, error) {
	root, err := unix.Open(volume, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the volume: %w", err)
	}
	return &choice{root: root}, nil
}

func (c *choice) close() { _ = unix.Close(c.root) }

// files gives the files whose content is to go through the store, under each of their
// names: what is one file at the source restic makes one at the target.
func (c *choice) files(target, source *tree.Manifest) func(func(*tree.Entry, error) bool) {
	return func(yield func(*tree.Entry, error) bool) {
		for change, err := range tree.Changes(target, source) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !hasOtherContent(change) {
				continue
			}
			worth, err := c.worth(change)
			if err != nil {
				yield(nil, err)
				return
			}
			if !worth {
				continue
			}
			if !yield(change.New, nil) {
				return
			}
		}
	}
}

// hasOtherContent says whether a change is a file with content that the target lacks.
func hasOtherContent(c *tree.Change) bool {
	if c.New == nil || c.New.Type != tree.File || c.New.Size == 0 {
		return false
	}
	return c.Old == nil || c.Differs&(tree.AspectType|tree.AspectContent|tree.AspectSize) != 0
}

// worth says whether a file is to go through the store as a whole. Restic reads all of a
// file, with its holes, and saves all of it anew: so a large one of which less than a
// quarter differs, or is there, goes over the connection, which carries parts.
func (c *choice) worth(change *tree.Change) (bool, error) {
	e := change.New
	if e.Size < blocks.LargeFrom {
		return true, nil
	}
	var differs uint64
	for r, err := range change.Ranges() {
		if err != nil {
			return false, err
		}
		differs += r.Length
	}
	var s unix.Stat_t
	err := unix.Fstatat(c.root, e.Path, &s, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil // It is left to the next pass.
	}
	if err != nil {
		return false, fmt.Errorf("look at %q at the source: %w", e.Path, err)
	}
	return quarter(min(differs, uint64(s.Blocks)*512), e.Size), nil
}

// quarter says whether a part is at least a quarter of the whole.
func quarter(part, whole uint64) bool { return part >= whole/4 }
