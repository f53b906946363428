package tree

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// maxBatch is the most names that a worker gets at once.
	maxBatch = 64
	// lostFound is the directory that some file systems have at their root.
	lostFound = "lost+found"
)

// batch has some names of one directory, in order, for one worker.
type batch struct {
	dir   *dir
	names []batchName
	// done is closed when the worker has examined the names.
	done chan struct{}
}

// batchName is one name of a batch.
type batchName struct {
	// name is empty for the directory itself; only the root's batch has that.
	name string
	// before is its entry in an earlier manifest.
	before earlierEntry
	// seen is what the worker found; empty until then.
	seen observation
}

// walk walks the tree in canonical order and distributes batches.
type walk struct {
	root  stat
	names nameSorter
	// before and early read the earlier manifests; nil without one.
	before, early *earlierReader
	// ordered and work get each batch: first ordered, for the collector, then work, for a worker.
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
			// It was removed after it had been opened: the next scan will find what is there then.
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

// descend walks a directory inside another. One that vanished or was replaced meanwhile is left
// out: the next scan will find what is there then.
func (w *walk) descend(ctx context.Context, parent *dir, name string) error {
	path := parent.join(name)
	if len(path) > maxPath {
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
		return nil // The worker that examines its name reports it.
	}
	return w.children(ctx, d)
}

// add adds a name to the current batch.
func (w *walk) add(ctx context.Context, d *dir, name string) error {
	if w.current != nil && (w.current.dir != d || len(w.current.names) == maxBatch) {
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
		// It is newer: if it is outdated, so is the other one.
		before = early
	}
	w.current.names = append(w.current.names, batchName{name: name, before: before})
	return nil
}

// flush sends the current batch to collector and workers.
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

// dir is an open directory, shared by the walk and by workers; the last of them
// closes it.
type dir struct {
	fd   int
	path string
	refs atomic.Int32
}

func newDir(fd int, path string) *dir {
	d := &dir{fd: fd, path: path}
	d.refs.Store(1)
	return d
}

func (d *dir) retain() { d.refs.Add(1) }

func (d *dir) release() {
	if d.refs.Add(-1) == 0 {
		_ = unix.Close(d.fd)
	}
}

// join returns the path of a name in the directory.
func (d *dir) join(name string) string {
	if d.path == "" {
		return name
	}
	if name == "" {
		return d.path
	}
	return d.path + "/" + name
}

// Offsets in a struct linux_dirent64: inode, offset, length of the record, type, name.
const (
	direntLength = 16
	direntType   = 18
	direntName   = 19
)

// names returns the names in a directory in the order of the file system, each followed by a NUL
// and its type as DT_*. One is valid until the next.
func names(d *dir) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		buffer := make([]byte, 32<<10)
		var record []byte
		for {
			var n int
			err := retry(func() (err error) {
				n, err = unix.Getdents(d.fd, buffer)
				return err
			})
			if err != nil {
				yield(nil, fmt.Errorf("read directory %q: %w", d.path, err))
				return
			}
			if n == 0 {
				return
			}
			for rest := buffer[:n]; len(rest) > direntName; {
				length := int(binary.NativeEndian.Uint16(rest[direntLength:]))
				name, _, _ := bytes.Cut(rest[direntName:length], []byte{0})
				record = append(append(record[:0], name...), 0, rest[direntType])
				rest = rest[length:]
				if string(name) == "." || string(name) == ".." {
					continue
				}
				if !yield(record, nil) {
					return
				}
			}
		}
	}
}
