package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/scratch"
)

// Version is that of the root's definition.
const Version = 1

// Options say what to scan. Root, Manifest and Scratch are needed.
type Options struct {
	// Root is the directory of the volume. It must be a directory, not a symbolic link.
	Root string
	// Manifest is the file to write. It appears when the scan succeeds and replaces
	// one that is there; it may be the same as Previous.
	Manifest string
	// Scratch is a directory for temporary files outside the volume.
	Scratch string
	// Budget is what may be written to Manifest and Scratch; nil: anything.
	Budget *scratch.Budget
	// Previous is an earlier manifest of the same volume. What cannot have changed
	// since is taken over from it and not read again. Empty reads everything.
	Previous string
	// Early is a manifest of large files that a scan with OnlyLarge has made after that of
	// Previous. Where one of them cannot have changed since, it is taken over from there.
	Early string
	// OnlyLarge reads and tells files of LargeFrom and more alone that may have changed since
	// Previous: the manifest is good as Early of a later scan, and for nothing else.
	OnlyLarge bool
	// Expect is what an earlier scan saw; a root that is another directory, or that has
	// lost nearly everything, is refused with a CollapseError.
	Expect *Expectation
	// Cold drops cached pages of each file before it is read, so that the disk is read
	// and not memory.
	Cold bool
	// Shallow reads no contents: the manifest tells all but those, and is no Previous of
	// another scan.
	Shallow bool
	// Length is how many bytes of a block volume ScanDevice describes; 0: all.
	Length uint64
	// Workers is how many files or segments are read at once; 0 chooses.
	Workers int
	// Progress is called now and then from one goroutine, if it is not nil.
	Progress func(Progress)
}

// workers is how many files or segments are read at once.
func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	workers := max(4, 2*runtime.GOMAXPROCS(0))
	if o.Cold {
		// They wait for the disk most of the time.
		workers = max(16, workers)
	}
	return min(workers, 32)
}

// Progress is how far a scan is.
type Progress struct {
	Entries   uint64
	ReadBytes uint64
}

// Scan describes the tree below a directory in a manifest. It stays inside the
// volume: symbolic links are not followed, what is mounted below is a finding and
// not entered. It makes the file system durable first, so that a later store through
// a memory mapping shows in the change time. lost+found at the root is left out.
//
// An application may write meanwhile: the manifest is then no snapshot, but a later
// scan with it as Previous reads all that changed since this one began. Errors are
// those of the file system, with the path; the manifest is then not written.
func Scan(ctx context.Context, o Options) (Summary, error) {
	fd, err := unix.Open(o.Root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Summary{}, fmt.Errorf("open the volume at %s: %w", o.Root, err)
	}
	root := newDir(fd, "")
	s, err := begin(root, o)
	if err != nil {
		root.release()
		return Summary{}, err
	}
	partial := o.Manifest + ".partial"
	defer os.Remove(partial)
	summary, err := scanTo(ctx, root, s, o, partial)
	if err != nil {
		return Summary{}, err
	}
	if err := o.Expect.check(summary); err != nil {
		return Summary{}, err
	}
	if err := os.Rename(partial, o.Manifest); err != nil {
		return Summary{}, fmt.Errorf("put the manifest in its place: %w", err)
	}
	return summary, nil
}

// start is what is known when a scan begins.
type start struct {
	stat    stat
	summary Summary
}

// begin looks at the root, refuses a wrong one, and makes the file system durable.
func begin(root *dir, o Options) (start, error) {
	s, err := statAt(root.fd, "")
	if err != nil {
		return start{}, fmt.Errorf("look at the volume at %s: %w", o.Root, err)
	}
	system, err := systemOf(root.fd)
	if err != nil {
		return start{}, err
	}
	begun := start{stat: s, summary: Summary{
		Version: Version, Identity: identityOf(&s, system), Margin: system.margin(), SeesTrusted: seesTrusted(), Shallow: o.Shallow, OnlyLarge: o.OnlyLarge,
	}}
	if err := o.Expect.recognize(begun.summary.Identity); err != nil {
		return start{}, err
	}
	// First the clock, then the sync: a page that is written later is written-protected
	// by the sync, so its next store gets a change time after Started.
	if begun.summary.Started, err = clock(); err != nil {
		return start{}, err
	}
	if err := unix.Syncfs(root.fd); err != nil && !errors.Is(err, unix.EROFS) {
		return start{}, fmt.Errorf("make the volume durable: %w", err)
	}
	return begun, nil
}

// scanTo runs walk, workers and collector until the manifest is whole.
func scanTo(ctx context.Context, root *dir, begun start, o Options, path string) (Summary, error) {
	w, err := newWriter(path, o.Budget)
	if err != nil {
		root.release()
		return Summary{}, err
	}
	defer w.file.Close()
	before, err := openEarlier(o.Previous, false)
	if err != nil {
		root.release()
		return Summary{}, err
	}
	defer before.close()
	early, err := openEarlier(o.Early, true)
	if err != nil {
		root.release()
		return Summary{}, err
	}
	defer early.close()
	workers := o.workers()
	found := &findings{}
	ordered, work, parts := make(chan *batch, 2*workers), make(chan *batch, 2*workers), make(chan *part)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(ordered)
		defer close(work)
		walk := &walk{
			root: begun.stat, names: nameSorter{scratch: o.Scratch, budget: o.Budget}, before: before.read(), early: early.read(),
			ordered: ordered, work: work,
		}
		return walk.run(ctx, root)
	})
	for range workers {
		group.Go(func() error {
			l := &looker{root: &begun.stat, options: &o, found: found}
			l.serve(ctx, work, parts)
			return nil
		})
	}
	c := &collector{
		options: &o, writer: w, parts: parts, ahead: 2 * workers,
		summary: begun.summary, linker: newLinker(&o), found: found,
	}
	group.Go(func() error {
		defer close(parts)
		return c.run(ctx, ordered)
	})
	if err := group.Wait(); err != nil {
		return Summary{}, err
	}
	return c.finish()
}
