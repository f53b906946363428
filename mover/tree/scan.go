// This file scans a volume, and scans it again with what an earlier scan found. It is long because both are one pass
// over the same directories, and must agree.

package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
)

// Options say what to scan. Root, Manifest and Scratch are needed.
type Options struct {
	// Root is the directory of the volume. It must be a directory, not a symbolic link.
	Root string
	// Manifest is the file to write. It appears when the scan succeeds and replaces an existing
	// one; it may be the same as Previous.
	Manifest string
	// Scratch is a directory for temporary files outside the volume.
	Scratch string
	// Budget limits what may be written to Manifest and Scratch; nil: no limit.
	Budget *sandbox.ScratchBudget
	// Previous is an earlier manifest of the same volume. Entries that cannot have changed since
	// are copied from it and not read again. If it is empty everything is read.
	Previous string
	// Early is a manifest of large files that a scan with OnlyLarge has made after that of
	// Previous. Files that cannot have changed since are copied from it.
	Early string
	// OnlyLarge scans only files of LargeFrom and more that may have changed since Previous: the
	// manifest can be used only as Early of a later scan.
	OnlyLarge bool
	// Expect is what an earlier scan has found; a root that is another directory, or that has lost
	// nearly everything, is refused with a CollapseError.
	Expect *Expectation
	// Cold drops cached pages of each file before it is read, so that the disk is read and not
	// memory.
	Cold bool
	// Shallow reads no contents: the manifest has everything else, and cannot be Previous of
	// another scan.
	Shallow bool
	// Writer is who writes the target of the copy; nil: root.
	Writer *Writer
	// Length is how many bytes of a block volume ScanDevice reads; 0: all.
	Length uint64
	// Workers is how many files or segments are read at once; 0 chooses.
	Workers int
	// Progress, if not nil, is called from time to time by one goroutine.
	Progress func(Progress)
}

// workers is how many files or segments are read at once.
func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	workers := max(4, 2*runtime.GOMAXPROCS(0))
	if o.Cold {
		// Workers wait for the disk most of the time.
		workers = max(16, workers)
	}
	return min(workers, 32)
}

// Progress is the progress of a scan.
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
	s, err := beginScan(root, o)
	if err != nil {
		root.release()
		return Summary{}, err
	}
	partial := o.Manifest + ".partial"
	defer os.Remove(partial)
	summary, err := writeScan(ctx, root, s, o, partial)
	if err != nil {
		return Summary{}, err
	}
	if err := o.Expect.checkEntries(summary); err != nil {
		return Summary{}, err
	}
	if err := os.Rename(partial, o.Manifest); err != nil {
		return Summary{}, fmt.Errorf("put the manifest in its place: %w", err)
	}
	return summary, nil
}

// scanStart is what is known at the start of a scan.
type scanStart struct {
	stat    stat
	summary Summary
}

// beginScan checks the root, refuses a wrong one, and syncs the file system.
func beginScan(root *dir, o Options) (scanStart, error) {
	s, err := statAt(root.fd, "")
	if err != nil {
		return scanStart{}, fmt.Errorf("look at the volume at %s: %w", o.Root, err)
	}
	system, err := fileSystemOf(root.fd)
	if err != nil {
		return scanStart{}, err
	}
	begun := scanStart{stat: s, summary: Summary{
		Version: Version, Identity: identityOf(&s, system), Margin: system.margin(), SeesTrusted: seesTrusted(), Shallow: o.Shallow,
		OnlyLarge: o.OnlyLarge,
	}}
	if err := o.Expect.checkIdentity(begun.summary.Identity); err != nil {
		return scanStart{}, err
	}
	// The clock is read before the sync: the sync write-protects pages, so the next store to one
	// gets a change time after Started.
	if begun.summary.Started, err = kernelTime(); err != nil {
		return scanStart{}, err
	}
	if err := unix.Syncfs(root.fd); err != nil && !errors.Is(err, unix.EROFS) {
		return scanStart{}, fmt.Errorf("make the volume durable: %w", err)
	}
	return begun, nil
}

// writeScan runs walk, workers and collector until the manifest is complete.
func writeScan(ctx context.Context, root *dir, begun scanStart, o Options, path string) (Summary, error) {
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
			l := &worker{root: &begun.stat, options: &o, found: found}
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

// collector writes the observations of workers into the manifest, in canonical order.
type collector struct {
	options *Options
	writer  *writer
	parts   chan<- *part
	// ahead is the most segments of a large file that are being read.
	ahead    int
	summary  Summary
	linker   *linker
	found    *findings
	reported Progress
}

// run takes batches in order until the walk ends.
func (c *collector) run(ctx context.Context, ordered <-chan *batch) (err error) {
	for b := range ordered {
		if err == nil {
			err = c.await(ctx, b)
		}
		if err == nil {
			err = c.batch(ctx, b)
		}
		b.dir.release()
	}
	return err
}

// await waits until a worker is done with a batch. When the scan is to end, the batch may be
// incomplete.
func (c *collector) await(ctx context.Context, b *batch) error {
	select {
	case <-b.done:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *collector) batch(ctx context.Context, b *batch) error {
	for i := range b.names {
		seen := &b.names[i].seen
		if seen.err != nil {
			return seen.err
		}
		if seen.large {
			err := c.readLarge(ctx, b.dir, b.names[i].name, seen)
			if gone(err) {
				seen.entry, seen.unsettled = nil, true
				c.writer.firstBlocks = 0
			} else if err != nil {
				return fmt.Errorf("read %q: %w", seen.entry.Path, err)
			}
		}
		if seen.unsettled {
			c.summary.Unsettled++
		}
		if seen.entry == nil {
			continue
		}
		if err := c.entry(seen); err != nil {
			return err
		}
	}
	return nil
}

// entry writes one entry and counts it.
func (c *collector) entry(seen *observation) error {
	e := seen.entry
	switch {
	case seen.before.entry != nil:
		if err := c.writer.copyBlocks(seen.before.of.manifest, seen.before.entry); err != nil {
			return err
		}
	case len(seen.blocks) > HashSize:
		blocks := c.writer.newBlocks()
		if err := errors.Join(blocks.add(seen.blocks), blocks.end()); err != nil {
			return err
		}
	}
	if err := c.writer.entry(e); err != nil {
		return err
	}
	c.summary.Entries++
	c.summary.Inodes++
	c.summary.Allocated += e.Allocated
	if e.Type == File {
		c.summary.Files++
		c.summary.Bytes += e.Size
		c.summary.Hashes += maxHashBytes(e.Size, e.Allocated)
		if seen.before.entry == nil && !c.options.Shallow {
			c.summary.ReadFiles++
			c.summary.ReadBytes += seen.read
		}
	}
	c.found.addNeeds(e, c.options.Writer)
	if !seen.large {
		c.progress(seen.read)
	}
	return c.linker.add(e)
}

// progress reports the progress, not for every entry.
func (c *collector) progress(read uint64) {
	c.reported.ReadBytes += read
	if c.options.Progress == nil {
		return
	}
	if c.summary.Entries-c.reported.Entries >= 1000 || read > 0 {
		c.reported.Entries = c.summary.Entries
		c.options.Progress(c.reported)
	}
}

// finish writes links and summary.
func (c *collector) finish() (Summary, error) {
	firstLink := c.writer.at
	if err := c.linker.finish(c.writer, &c.summary); err != nil {
		return Summary{}, fmt.Errorf("find hard links: %w", err)
	}
	c.summary.LinkMembers = c.writer.members
	c.summary.Root = c.writer.root()
	c.summary.Needs, c.summary.Findings = c.found.list()
	if err := c.writer.finish(c.summary, firstLink); err != nil {
		return Summary{}, err
	}
	return c.summary, nil
}

// readLarge reads a large file: workers hash its segments, and their hashes are written to the
// manifest in order. Only a few segments are read at a time, so that memory does not depend on the
// size of the file. The hashes end at the real end of the file, if it grows or shrinks meanwhile.
func (c *collector) readLarge(ctx context.Context, d *dir, name string, seen *observation) error {
	e := seen.entry
	if e.Size > maxFileSize {
		return fmt.Errorf("it has %d bytes: %s", e.Size, reasons[FileTooLarge])
	}
	f, err := openFile(d, name, e, c.options.Cold)
	if err != nil {
		return err
	}
	defer f.close()
	if c.options.Cold {
		f.bypassCache()
	}
	total, err := c.hashParts(ctx, f, seen)
	if err != nil {
		return err
	}
	if c.options.Cold {
		// Pages that only this scan has read leave the memory to the applications of this node.
		if err := f.drop(); err != nil {
			return err
		}
	}
	seen.unsettled, err = f.checkSettled(e, total)
	return err
}

// hashParts hashes a file segment by segment, writes the hashes of its blocks, and
// returns how many bytes there were.
func (c *collector) hashParts(ctx context.Context, f *openedFile, seen *observation) (total uint64, err error) {
	e := seen.entry
	size := int64(e.Size)
	var under []*part
	// A file is not closed while a worker reads it.
	defer func() {
		for _, p := range under {
			<-p.done
		}
	}()
	content := newHasher(contentContext)
	pending := c.writer.newBlocks()
	var start int64
	for start < size || len(under) > 0 {
		if start < size && len(under) < c.ahead {
			if hole := f.wholeSegments(start, size, seen.sparse); hole > 0 {
				under = append(under, holeOf(start, hole))
				start += hole
				continue
			}
			p := &part{
				file: f, start: start, end: min(start+segment, size), sparse: seen.sparse, done: make(chan struct{}),
			}
			select {
			case c.parts <- p:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			under = append(under, p)
			start = p.end
			continue
		}
		p := under[0]
		<-p.done
		under = under[1:]
		if p.err != nil {
			return 0, p.err
		}
		if total != uint64(p.start) {
			continue // The file shrank before this segment.
		}
		total += p.read
		if p.zeros > 0 {
			if err := writeZeros(ctx, content, p.zeros); err != nil {
				return 0, err
			}
			pending.zeros += p.zeros
		}
		_, _ = content.Write(p.blocks)
		if err := pending.add(p.blocks); err != nil {
			return 0, err
		}
		c.progress(p.read)
	}
	e.Content, seen.read = sum(content), total
	return total, pending.end()
}

// wholeSegments returns how many bytes of whole segments, from start, are one hole.
func (f *openedFile) wholeSegments(start, size int64, sparse bool) int64 {
	if !sparse {
		return 0
	}
	hole := min(DataFrom(f.fd, start), size) - start
	return hole - hole%segment
}

// holeOf returns a part that nobody has to read.
func holeOf(start, length int64) *part {
	p := &part{start: start, end: start + length, zeros: uint64(length / BlockSize), read: uint64(length), done: make(chan struct{})}
	close(p.done)
	return p
}

// zeroHashes are hashes of blocks of zeros, in a row to be hashed many at once.
var zeroHashes = bytes.Repeat(zeroHash[:], 8<<10)

// writeZeros hashes the hashes of so many blocks of zeros.
func writeZeros(ctx context.Context, content *blake3.Hasher, blocks uint64) error {
	for blocks > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n := min(blocks, uint64(len(zeroHashes)/HashSize))
		_, _ = content.Write(zeroHashes[:n*HashSize])
		blocks -= n
	}
	return nil
}

// ScanDevice describes a block volume, or a file that is used as one, in a manifest with a single
// entry: a file without a name, with the size and the blocks of the device. Owner, mode and times
// of the device node belong to the machine and are not kept. Root is the device; the other Options
// are as for Scan, except Previous: a device does not record changes, so all of it is always read.
func ScanDevice(ctx context.Context, o Options) (Summary, error) {
	device, err := os.OpenFile(o.Root, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Summary{}, fmt.Errorf("open the block volume: %w", err)
	}
	defer device.Close()
	e, err := deviceEntry(device)
	if err != nil {
		return Summary{}, err
	}
	f := &openedFile{fd: int(device.Fd())}
	if o.Length > 0 {
		if e.Size < o.Length {
			return Summary{}, fmt.Errorf("read the block volume: it has %d bytes, %d are needed", e.Size, o.Length)
		}
		e.Size, e.Allocated = o.Length, o.Length
	}
	if err := o.Expect.checkSize(e.Size); err != nil {
		return Summary{}, err
	}
	if o.Cold {
		if err := retry(func() error { return unix.Fdatasync(f.fd) }); err != nil {
			return Summary{}, fmt.Errorf("make the block volume durable: %w", err)
		}
		if err := f.drop(); err != nil {
			return Summary{}, err
		}
	}
	started, err := kernelTime()
	if err != nil {
		return Summary{}, err
	}
	partial := o.Manifest + ".partial"
	defer os.Remove(partial)
	w, err := newWriter(partial, o.Budget)
	if err != nil {
		return Summary{}, err
	}
	defer w.file.Close()
	workers := o.workers()
	parts := make(chan *part)
	c := &collector{
		options: &o, writer: w, parts: parts, ahead: 2 * workers, linker: newLinker(&o), found: &findings{},
		summary: Summary{Version: Version, Started: started, Margin: never, Device: true},
	}
	group, ctx := errgroup.WithContext(ctx)
	for range workers {
		group.Go(func() error {
			(&worker{}).serve(ctx, nil, parts)
			return nil
		})
	}
	seen := &observation{entry: e, large: true}
	group.Go(func() error {
		defer close(parts)
		_, err := c.hashParts(ctx, f, seen)
		return err
	})
	if err := group.Wait(); err != nil {
		return Summary{}, fmt.Errorf("read the block volume: %w", err)
	}
	if seen.read != e.Size {
		return Summary{}, fmt.Errorf("read the block volume: it ends after %d of %d bytes", seen.read, e.Size)
	}
	if err := c.entry(seen); err != nil {
		return Summary{}, err
	}
	summary, err := c.finish()
	if err != nil {
		return Summary{}, err
	}
	if err := os.Rename(partial, o.Manifest); err != nil {
		return Summary{}, fmt.Errorf("put the manifest in its place: %w", err)
	}
	return summary, nil
}

// deviceEntry returns the one entry of a block volume's manifest.
func deviceEntry(device *os.File) (*Entry, error) {
	info, err := device.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at the block volume: %w", err)
	}
	if !info.Mode().IsRegular() && info.Mode()&os.ModeType != os.ModeDevice {
		return nil, errors.New("the block volume is neither a block device nor a file")
	}
	size, err := device.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("ask for the size of the block volume: %w", err)
	}
	return &Entry{Type: File, Size: uint64(size), Links: 1, Allocated: uint64(size)}, nil
}

// DeviceSize returns the size of a block volume, or of a file that is used as one, in bytes.
func DeviceSize(path string) (uint64, error) {
	device, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("open the block volume: %w", err)
	}
	defer device.Close()
	e, err := deviceEntry(device)
	if err != nil {
		return 0, err
	}
	return e.Size, nil
}

// Rescan scans a volume into the manifest at options.Manifest. A manifest that is there is used as
// the earlier one, unless full is set, or it is torn or that of another directory.
func Rescan(ctx context.Context, options Options, full bool) (Summary, error) {
	if previous, err := Open(options.Manifest); err == nil {
		before := previous.Summary()
		_ = previous.Close()
		same := before.Expect()
		same.AllowFewer = true
		if !full {
			incremental := options
			incremental.Previous = options.Manifest
			if incremental.Expect == nil {
				incremental.Expect = same
			}
			summary, err := Scan(ctx, incremental)
			var collapsed *CollapseError
			if err == nil || ctx.Err() != nil || options.Expect != nil || !errors.As(err, &collapsed) {
				return summary, err
			}
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		// It is written again; a torn one is no reason to fail.
		if err := os.Remove(options.Manifest); err != nil {
			return Summary{}, err
		}
	}
	options.Previous = ""
	return Scan(ctx, options)
}

// earlierManifest is a manifest of the same volume from which a scan copies unchanged entries.
type earlierManifest struct {
	manifest *Manifest
	// settled is the time before which its change times can be trusted.
	settled Time
}

// openEarlier opens an earlier manifest, of large files only or of everything; it returns nil
// without a path.
func openEarlier(path string, onlyLarge bool) (*earlierManifest, error) {
	if path == "" {
		return nil, nil
	}
	m, err := Open(path)
	if err != nil {
		return nil, fmt.Errorf("use the earlier manifest: %w", err)
	}
	s := m.Summary()
	switch {
	case s.Shallow:
		err = errors.New("use the earlier manifest: it knows nothing of contents")
	case s.OnlyLarge != onlyLarge:
		err = errors.New("use the earlier manifest: it tells of other files than are asked for")
	}
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	return &earlierManifest{manifest: m, settled: s.Started.minus(s.Margin)}, nil
}

func (e *earlierManifest) close() {
	if e != nil {
		_ = e.manifest.Close()
	}
}

// read returns a reader of the entries; nil if there are none.
func (e *earlierManifest) read() *earlierReader {
	if e == nil {
		return nil
	}
	return &earlierReader{of: e, entries: e.manifest.Entries()}
}

// earlierReader reads an earlier manifest in step with the walk.
type earlierReader struct {
	of      *earlierManifest
	entries *Reader
	ahead   *Entry
}

// earlierEntry is the entry of an earlier manifest at a path; its entry is nil if there is none.
type earlierEntry struct {
	entry *Entry
	of    *earlierManifest
}

// find returns the earlier entry at a path, if there is one. It must be called in canonical order.
// Without an earlier manifest there are none.
func (r *earlierReader) find(path string) (earlierEntry, error) {
	if r == nil {
		return earlierEntry{}, nil
	}
	for r.entries != nil {
		if r.ahead == nil {
			next, err := r.entries.Next()
			if errors.Is(err, io.EOF) {
				r.entries = nil
				break
			}
			if err != nil {
				return earlierEntry{}, fmt.Errorf("read the earlier manifest: %w", err)
			}
			r.ahead = next
		}
		switch order := comparePaths(r.ahead.Path, path); {
		case order > 0:
			return earlierEntry{}, nil
		case order == 0:
			found := r.ahead
			r.ahead = nil
			return earlierEntry{entry: found, of: r.of}, nil
		}
		r.ahead = nil
	}
	return earlierEntry{}, nil
}

// unchanged reports whether an entry is still as in the earlier manifest. The change time decides:
// no program can set it. One that is not clearly older than the earlier scan proves nothing, since
// the entry may have changed again within the same tick of the file system's clock.
func (e earlierEntry) unchanged(now *Entry) bool {
	before := e.entry
	return before != nil && before.Type == now.Type && before.Inode == now.Inode && before.Size == now.Size &&
		before.Mtime == now.Mtime && before.Ctime == now.Ctime && now.Ctime.Before(e.of.settled)
}

const (
	second = int64(1e9)
	// localMargin covers the coarsest clock of local file systems: whole seconds, and
	// the tick of the kernel's clock.
	localMargin = 2 * second
	// remoteMargin also covers a server whose clock differs from ours.
	remoteMargin = 600 * second
	// never means that change times of this file system prove nothing.
	never = int64(1) << 62
)

// F2FS and ZFS are missing in the list of golang.org/x/sys.
const zfsMagic = 0x2fc12fc1

// fileSystem is a file system's magic number.
type fileSystem int64

func fileSystemOf(fd int) (fileSystem, error) {
	var s unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(fd, &s) }); err != nil {
		return 0, fmt.Errorf("ask what file system the volume has: %w", err)
	}
	return fileSystem(s.Type), nil
}

// Settling returns how long files must not have been written before a scan so that later scans can
// trust its result for them. On network file systems that is minutes, and on some in memory it is
// for ever.
func Settling(root string) (time.Duration, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open the volume at %s: %w", root, err)
	}
	defer unix.Close(fd)
	system, err := fileSystemOf(fd)
	return time.Duration(system.margin()), err
}

// margin returns by how much a change time must be earlier than the start of a scan so that the
// entry counts as settled by that scan.
func (s fileSystem) margin() int64 {
	switch s {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, zfsMagic:
		return localMargin
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC:
		// On this file system a store through a memory mapping changes no time after the first one.
		return never
	}
	return remoteMargin
}

// Identity identifies a directory. Device numbers are not part of it: they change when a volume is
// mounted again.
type Identity struct {
	// Inode is the root's. Many file systems give every root the same number.
	Inode uint64 `json:"inode"`
	// Born is the creation time of the root, if the file system reports it; else zero. No program
	// can set it.
	Born Time `json:"born"`
	// System is the file system's magic number.
	System int64 `json:"system"`
}

func identityOf(s *stat, system fileSystem) Identity {
	id := Identity{Inode: s.Ino, System: int64(system)}
	if s.Mask&unix.STATX_BTIME != 0 {
		id.Born = timeOf(s.Btime)
	}
	return id
}

// Expectation is what a later scan must find again of an earlier one.
type Expectation struct {
	Identity Identity `json:"identity"`
	// Entries is how many there were.
	Entries uint64 `json:"entries"`
	// AllowFewer allows that nearly all entries are gone.
	AllowFewer bool `json:"allowFewer,omitempty"`
	// Copied says that a copy of the volume was scanned, for example one from a snapshot: it has
	// another root and may be larger, so only the entries are compared.
	Copied bool `json:"copied,omitempty"`
	// Device is the size of a block volume in bytes; 0 for a directory.
	Device uint64 `json:"device,omitempty"`
}

// Expect returns the expectation for later scans of the same volume.
func (s Summary) Expect() *Expectation {
	e := &Expectation{Identity: s.Identity, Entries: s.Entries}
	if s.Device {
		e.Device = s.Bytes
	}
	return e
}

// checkSize refuses a block volume that has another size: it has no other identity.
func (e *Expectation) checkSize(now uint64) error {
	if e == nil || e.Copied || e.Device == now {
		return nil
	}
	return &CollapseError{reason: fmt.Sprintf("it has %d bytes, and had %d; check which device it is", now, e.Device)}
}

// CollapseError means that the volume is another one or nearly empty: copying it would wipe the
// target.
type CollapseError struct{ reason string }

func (e *CollapseError) Error() string {
	return "the volume is not what the first pass saw, and is not copied: " + e.reason
}

// checkIdentity refuses a root that is another directory than expected.
func (e *Expectation) checkIdentity(now Identity) error {
	if e == nil || e.Copied || e.Identity == now {
		return nil
	}
	return &CollapseError{reason: fmt.Sprintf(
		"its root is another directory (inode %d of file system %#x, made at %s; before: inode %d of %#x, made at %s); "+
			"check what is mounted", now.Inode, now.System, now.Born, e.Identity.Inode, e.Identity.System, e.Identity.Born)}
}

const (
	// collapseFrom is the number of entries from which on the loss of nearly all is a collapse.
	collapseFrom = 100
	// collapseFraction is the part of them that must be left: one in so many.
	collapseFraction = 10
)

// checkEntries refuses a tree that has lost all entries, or nearly all.
func (e *Expectation) checkEntries(now Summary) error {
	if e == nil || e.AllowFewer {
		return nil
	}
	if e.Entries > 1 && now.Entries <= 1 {
		return &CollapseError{reason: fmt.Sprintf("it is empty, and had %d entries", e.Entries-1)}
	}
	if e.Entries >= collapseFrom && now.Entries < e.Entries/collapseFraction {
		return &CollapseError{reason: fmt.Sprintf("it has %d entries, and had %d", now.Entries-1, e.Entries-1)}
	}
	return nil
}
