package tree

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// batchAtMost is how many names a worker is given at once.
	batchAtMost = 64
	// lostFound is the directory that some file systems keep at their root.
	lostFound = "lost+found"
)

// batch is some names of one directory, in order, for one worker.
type batch struct {
	dir *dir
	// names are to be looked at; "" is the directory itself, for the root only.
	names []string
	// before holds what an earlier manifest tells of each name.
	before []known
	// found is what the worker saw, in the same order.
	found []sight
	done  chan struct{}
}

// walk goes through the tree in canonical order and hands out batches.
type walk struct {
	root  stat
	names nameSorter
	// before and early read the earlier manifests, nil without one.
	before, early *previous
	// ordered and work get each batch: first the collector, then a worker.
	ordered, work chan<- *batch
	current       *batch
}

// run walks the whole tree below an open root, which it closes.
func (w *walk) run(ctx context.Context, root *dir) error {
	defer root.release()
	if err := w.add(ctx, root, ""); err != nil {
		return err
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	return w.children(ctx, root)
}

// children walks everything in a directory.
func (w *walk) children(ctx context.Context, d *dir) error {
	for n, err := range w.names.sorted(d) {
		if d.path != "" && gone(err) {
			// It was removed after it had been opened: the next scan sees what is there then.
			break
		}
		if err != nil {
			return err
		}
		if d.path == "" && n.name == lostFound {
			continue
		}
		if err := w.add(ctx, d, n.name); err != nil {
			return err
		}
		if n.kind != unix.DT_DIR && (n.kind != unix.DT_UNKNOWN || !isDirectory(d, n.name)) {
			continue
		}
		if err := w.flush(ctx); err != nil {
			return err
		}
		if err := w.descend(ctx, d, n.name); err != nil {
			return err
		}
	}
	return w.flush(ctx)
}

func isDirectory(d *dir, name string) bool {
	s, err := statAt(d.fd, name)
	return err == nil && s.Mode&unix.S_IFMT == unix.S_IFDIR
}

// descend walks a directory inside another. One that vanished or became something
// else meanwhile is left out: the next scan sees what is there then.
func (w *walk) descend(ctx context.Context, parent *dir, name string) error {
	path := parent.join(name)
	if len(path) > pathAtMost {
		return nil // The worker reports it; nothing below can be kept either.
	}
	fd, err := openDirAt(parent.fd, name)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open directory %q: %w", path, err)
	}
	d := newDir(fd, path)
	defer d.release()
	s, err := statAt(fd, "")
	if err != nil {
		return fmt.Errorf("look at directory %q: %w", path, err)
	}
	if s.foreign(&w.root) {
		return nil // The worker that looks at its name reports it.
	}
	return w.children(ctx, d)
}

// foreign says whether something is mounted here, or it is of another file system.
func (s *stat) foreign(root *stat) bool {
	return s.device() != root.device() || s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// add puts a name into the current batch.
func (w *walk) add(ctx context.Context, d *dir, name string) error {
	if w.current != nil && (w.current.dir != d || len(w.current.names) == batchAtMost) {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	if w.current == nil {
		w.current = &batch{dir: d, done: make(chan struct{})}
	}
	path := d.join(name)
	before, err := w.before.find(path)
	if err != nil {
		return err
	}
	early, err := w.early.find(path)
	if err != nil {
		return err
	}
	if early.entry != nil {
		// It is newer: where it does not hold any more, the other one does not either.
		before = early
	}
	w.current.names = append(w.current.names, name)
	w.current.before = append(w.current.before, before)
	return nil
}

// flush hands the current batch out.
func (w *walk) flush(ctx context.Context) error {
	b := w.current
	w.current = nil
	if b == nil {
		return nil
	}
	for _, to := range []chan<- *batch{w.ordered, w.work} {
		b.dir.retain() // Whoever gets the batch releases its directory.
		select {
		case to <- b:
		case <-ctx.Done():
			b.dir.release()
			return ctx.Err()
		}
	}
	return nil
}
