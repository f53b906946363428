// This file writes and reads a manifest, and computes its root. It is long because the form of a record is best seen where it
// is written and read: entries, hashes of blocks, hard links, the summary.

package tree

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"

	"github.com/zeebo/blake3"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
)

// Summary describes the whole tree of a manifest.
type Summary struct {
	// Version is that of the root's definition.
	Version int `json:"version"`
	// Root is the hash over everything that a copy must keep.
	Root Hash `json:"root"`
	// Identity identifies the directory that was scanned.
	Identity Identity `json:"identity"`
	// Started is when the scan began, by the clock of the machine that scanned.
	Started Time `json:"started"`
	// Margin is by how many nanoseconds a change time must be earlier than Started so that the
	// entry counts as settled.
	Margin int64 `json:"margin"`
	// Entries counts all entries, the root among them; Files only files.
	Entries uint64 `json:"entries"`
	Files   uint64 `json:"files"`
	// Inodes counts what the target needs: hard links count once.
	Inodes uint64 `json:"inodes"`
	// Bytes are the sizes of all files, Allocated what they take where they are; a
	// file with several names counts once in both.
	Bytes     uint64 `json:"bytes"`
	Allocated uint64 `json:"allocated"`
	// Hashes is the most bytes that the hashes of all blocks take in the manifest, as far as sizes
	// show.
	Hashes uint64 `json:"hashes"`
	// LinkMembers counts names that are hard links to a name earlier in the tree.
	LinkMembers uint64 `json:"linkMembers"`
	// ReadFiles and ReadBytes are how much content this scan has read; the rest was copied from the
	// earlier manifest.
	ReadFiles uint64 `json:"readFiles"`
	ReadBytes uint64 `json:"readBytes"`
	// Unsettled counts entries that changed or vanished while they were scanned.
	Unsettled uint64 `json:"unsettled"`
	// Device says that this is a block volume.
	Device bool `json:"device,omitempty"`
	// Shallow says that contents were not read: Root is not that of a copy.
	Shallow bool `json:"shallow,omitempty"`
	// OnlyLarge says that it has only files of LargeFrom and more, and not all of them.
	OnlyLarge bool `json:"onlyLarge,omitempty"`
	// SeesTrusted says that the scan could read attributes named trusted.*, for which Linux
	// requires CAP_SYS_ADMIN.
	SeesTrusted bool `json:"seesTrusted"`
	// Needs are the abilities the target must have.
	Needs []Need `json:"needs,omitempty"`
	// Findings are what no copy can keep, the first of each kind.
	Findings []Finding `json:"findings,omitempty"`
}

// A manifest is magic, records, and a footer with the position of the last record. Each record is a
// type, the length and the CRC-32C of its payload, the CRC-32C of these three, and the payload. The
// format may change with any release; only the root is defined for others.
const (
	magic      = "lodestone tree 2"
	footer     = "lodestone end 1\n"
	headLength = 1 + 4 + 4 + 4

	recordBlocks  = 'B' // hashes of blocks
	recordZeros   = 'Z' // how many blocks of zeros follow one another, holes or not: 64 bits
	recordEntry   = 'E'
	recordLinks   = 'L'
	recordSummary = 'S'

	// maxBlocksPerRecord is the most block hashes in one record.
	maxBlocksPerRecord = 4096
	// maxPayload is the longest payload that a reader accepts.
	maxPayload = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writer writes a manifest and computes its root.
type writer struct {
	file    *os.File
	buffer  *bufio.Writer
	at      int64
	entries *blake3.Hasher
	links   *blake3.Hasher
	count   uint64
	members uint64
	scratch []byte
	budget  *sandbox.ScratchBudget
	// firstBlocks is the position of the next entry's blocks.
	firstBlocks int64
}

// newWriter begins a manifest in a new file. It can be read only after finish.
func newWriter(path string, budget *sandbox.ScratchBudget) (*writer, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create a manifest: %w", err)
	}
	w := &writer{
		file: file, buffer: bufio.NewWriterSize(file, 256<<10),
		entries: newHasher(entriesContext), links: newHasher(linksContext), budget: budget,
	}
	if _, err := w.buffer.WriteString(magic); err != nil {
		return nil, fmt.Errorf("write a manifest: %w", err)
	}
	w.at = int64(len(magic))
	return w, nil
}

func (w *writer) record(kind byte, payload []byte) error {
	if err := w.budget.Reserve(uint64(headLength + len(payload))); err != nil {
		return err
	}
	var head [headLength]byte
	head[0] = kind
	big.PutUint32(head[1:], uint32(len(payload)))
	big.PutUint32(head[5:], crc32.Checksum(payload, castagnoli))
	big.PutUint32(head[9:], crc32.Checksum(head[:9], castagnoli))
	if _, err := w.buffer.Write(head[:]); err != nil {
		return fmt.Errorf("write a manifest: %w", err)
	}
	if _, err := w.buffer.Write(payload); err != nil {
		return fmt.Errorf("write a manifest: %w", err)
	}
	w.at += int64(headLength + len(payload))
	return nil
}

// entry writes the next entry in canonical order; its blocks must be written before it.
func (w *writer) entry(e *Entry) error {
	e.Ordinal, e.blocks = w.count, w.firstBlocks
	w.count++
	w.firstBlocks = 0
	b := appendCanonical(append(w.scratch[:0], 0, 0, 0, 0), e)
	big.PutUint32(b, uint32(len(b)-4))
	_, _ = w.entries.Write(b)
	b = appendPrivate(b, e)
	w.scratch = b
	return w.record(recordEntry, b)
}

// link writes that the entry at ordinal is a hard link of an earlier one. Links come after all
// entries, by rising ordinals.
func (w *writer) link(l link) error {
	var b [linkLength]byte
	big.PutUint64(b[:], l.ordinal)
	big.PutUint64(b[8:], l.leader)
	_, _ = w.links.Write(b[:16])
	copy(b[16:], l.leaderPath[:])
	w.members++
	return w.record(recordLinks, b[:])
}

// root returns the hash over everything written.
func (w *writer) root() Hash {
	h := newHasher(rootContext)
	entries, links := sum(w.entries), sum(w.links)
	var b []byte
	b = big.AppendUint64(b, w.count)
	b = append(b, entries[:]...)
	b = big.AppendUint64(b, w.members)
	b = append(b, links[:]...)
	_, _ = h.Write(b)
	return sum(h)
}

// finish writes the summary and syncs the manifest to the disk.
func (w *writer) finish(s Summary, firstLink int64) error {
	payload, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write a manifest's summary: %w", err)
	}
	at := w.at
	if err := w.record(recordSummary, payload); err != nil {
		return err
	}
	var end []byte
	end = big.AppendUint64(end, uint64(at))
	end = big.AppendUint64(end, uint64(firstLink))
	end = append(end, footer...)
	if _, err := w.buffer.Write(end); err != nil {
		return fmt.Errorf("write a manifest: %w", err)
	}
	if err := w.buffer.Flush(); err != nil {
		return fmt.Errorf("write a manifest: %w", err)
	}
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("make a manifest durable: %w", err)
	}
	return nil
}

// Manifest is a complete manifest. Several readers may read it at the same time.
type Manifest struct {
	file      *os.File
	summary   Summary
	firstLink int64
	end       int64
}

// Open opens a manifest that Scan has completed; a torn one is an error.
func Open(path string) (*Manifest, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open a manifest: %w", err)
	}
	m := &Manifest{file: file}
	if err := m.readEnd(); err != nil {
		file.Close()
		return nil, fmt.Errorf("open manifest %s: %w", path, err)
	}
	return m, nil
}

func (m *Manifest) readEnd() error {
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	end := make([]byte, 16+len(footer))
	start := make([]byte, len(magic))
	if _, err := m.file.ReadAt(start, 0); err != nil || string(start) != magic {
		return errors.New("it is no manifest")
	}
	if _, err := m.file.ReadAt(end, info.Size()-int64(len(end))); err != nil || string(end[16:]) != footer {
		return errors.New("it is not finished")
	}
	m.end, m.firstLink = int64(big.Uint64(end)), int64(big.Uint64(end[8:]))
	r := m.reader(m.end)
	kind, payload, err := r.record()
	if err != nil {
		return err
	}
	if kind != recordSummary {
		return errors.New("its summary is not where it should be")
	}
	if err := json.Unmarshal(payload, &m.summary); err != nil {
		return fmt.Errorf("read its summary: %w", err)
	}
	if m.summary.Version != Version {
		return fmt.Errorf("it is of version %d, this program reads version %d", m.summary.Version, Version)
	}
	return nil
}

// Summary returns the description of the whole tree.
func (m *Manifest) Summary() Summary { return m.summary }

// Close closes the manifest's file.
func (m *Manifest) Close() error { return m.file.Close() }

// Entries returns a reader of the entries, in canonical order.
func (m *Manifest) Entries() *Reader {
	return &Reader{manifest: m, records: m.reader(int64(len(magic)))}
}

// Reader reads entries one after another.
type Reader struct {
	manifest *Manifest
	records  *recordReader
	ordinal  uint64
}

// Next returns the next entry, and io.EOF after the last one.
func (r *Reader) Next() (*Entry, error) {
	for {
		if r.records.at >= r.manifest.firstLink {
			if r.ordinal != r.manifest.summary.Entries {
				return nil, fmt.Errorf("read a manifest: it has %d entries and says %d", r.ordinal, r.manifest.summary.Entries)
			}
			return nil, io.EOF
		}
		kind, payload, err := r.records.next(true)
		if err != nil {
			return nil, err
		}
		switch kind {
		case recordBlocks, recordZeros:
		case recordEntry:
			e, err := decodeEntry(payload)
			if err != nil {
				return nil, err
			}
			e.Ordinal = r.ordinal
			r.ordinal++
			return e, nil
		default:
			return nil, fmt.Errorf("read a manifest: a record of type %q among the entries", kind)
		}
	}
}

// recordReader reads records from a position in the file.
type recordReader struct {
	file   *os.File
	at     int64
	buffer *bufio.Reader
	// payload is the buffer of each record.
	payload []byte
}

func (m *Manifest) reader(at int64) *recordReader {
	section := io.NewSectionReader(m.file, at, 1<<62)
	return &recordReader{file: m.file, at: at, buffer: bufio.NewReaderSize(section, 64<<10)}
}

// record reads the next record; the payload is valid until the next call.
func (r *recordReader) record() (kind byte, payload []byte, err error) { return r.next(false) }

// next reads the next record, or skips the payload of block hashes.
func (r *recordReader) next(skipBlocks bool) (kind byte, payload []byte, err error) {
	var head [headLength]byte
	if _, err := io.ReadFull(r.buffer, head[:]); err != nil {
		return 0, nil, fmt.Errorf("read a manifest: %w", err)
	}
	if crc32.Checksum(head[:9], castagnoli) != big.Uint32(head[9:]) {
		return 0, nil, errors.New("read a manifest: the head of a record does not have its checksum")
	}
	kind = head[0]
	n := int(big.Uint32(head[1:]))
	if n > maxPayload {
		return 0, nil, fmt.Errorf("read a manifest: a record of %d bytes", n)
	}
	r.at += int64(headLength + n)
	if skipBlocks && kind == recordBlocks {
		if n > r.buffer.Buffered() {
			r.buffer.Reset(io.NewSectionReader(r.file, r.at, 1<<62))
			return kind, nil, nil
		}
		_, err := r.buffer.Discard(n)
		return kind, nil, err
	}
	if cap(r.payload) < n {
		r.payload = make([]byte, n)
	}
	payload = r.payload[:n]
	if _, err := io.ReadFull(r.buffer, payload); err != nil {
		return 0, nil, fmt.Errorf("read a manifest: %w", err)
	}
	if crc32.Checksum(payload, castagnoli) != big.Uint32(head[5:]) {
		return 0, nil, errors.New("read a manifest: a record does not have its checksum")
	}
	return kind, payload, nil
}

var big = binary.BigEndian

// appendCanonical appends the properties of the entry that are in the root hash. Its form is
// defined in docs/move-verification.md and must never change under the same version.
func appendCanonical(b []byte, e *Entry) []byte {
	b = append(b, byte(e.Type))
	b = appendString(b, e.Path)
	b = big.AppendUint32(b, e.Mode)
	b = big.AppendUint32(b, e.UID)
	b = big.AppendUint32(b, e.GID)
	b = appendTime(b, e.Mtime)
	switch e.Type {
	case File:
		b = big.AppendUint64(b, e.Size)
		b = append(b, e.Content[:]...)
	case Symlink:
		b = appendString(b, e.Target)
	case CharDevice, BlockDevice:
		b = big.AppendUint32(b, e.Major)
		b = big.AppendUint32(b, e.Minor)
	case Directory, Fifo, Socket:
	}
	b = big.AppendUint32(b, uint32(len(e.Xattrs)))
	for _, x := range e.Xattrs {
		b = appendString(b, x.Name)
		b = big.AppendUint64(b, x.Length)
		b = append(b, x.Hash[:]...)
	}
	return b
}

// appendPrivate appends the properties that are only in the manifest.
func appendPrivate(b []byte, e *Entry) []byte {
	b = big.AppendUint64(b, e.Inode)
	b = appendTime(b, e.Ctime)
	b = big.AppendUint32(b, e.Links)
	b = big.AppendUint64(b, e.Allocated)
	return big.AppendUint64(b, uint64(e.blocks))
}

func appendString(b []byte, s string) []byte {
	return append(big.AppendUint32(b, uint32(len(s))), s...)
}

func appendTime(b []byte, t Time) []byte {
	return big.AppendUint32(big.AppendUint64(b, uint64(t.Sec)), t.Nsec)
}

// decodeEntry reads a record of an entry: the length of its canonical part, that
// part, and the private part.
func decodeEntry(record []byte) (*Entry, error) {
	d := &decoder{rest: record}
	canonical := int(d.uint32())
	e := &Entry{Type: Type(d.take(1)[0])}
	e.Path = d.string()
	e.Mode, e.UID, e.GID = d.uint32(), d.uint32(), d.uint32()
	e.Mtime = d.time()
	switch e.Type {
	case File:
		e.Size = d.uint64()
		copy(e.Content[:], d.take(HashSize))
	case Symlink:
		e.Target = d.string()
	case CharDevice, BlockDevice:
		e.Major, e.Minor = d.uint32(), d.uint32()
	case Directory, Fifo, Socket:
	default:
		return nil, fmt.Errorf("read a manifest: unknown type %q of an entry", byte(e.Type))
	}
	for n := d.uint32(); n > 0 && d.err == nil; n-- {
		x := Xattr{Name: d.string(), Length: d.uint64()}
		copy(x.Hash[:], d.take(HashSize))
		e.Xattrs = append(e.Xattrs, x)
	}
	if d.err == nil && len(record)-len(d.rest) != 4+canonical {
		return nil, errors.New("read a manifest: an entry has another length than it says")
	}
	e.Inode = d.uint64()
	e.Ctime = d.time()
	e.Links = d.uint32()
	e.Allocated = d.uint64()
	e.blocks = int64(d.uint64())
	if d.err != nil {
		return nil, fmt.Errorf("read an entry of a manifest: %w", d.err)
	}
	return e, nil
}

// decoder reads fields from the front of a record; after the first incomplete one it returns zeros
// and keeps the error.
type decoder struct {
	rest []byte
	err  error
}

var errShort = errors.New("it ends early")

var zeros [HashSize]byte

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.rest) {
		d.err = errShort
		return zeros[:min(max(n, 0), len(zeros))]
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) uint32() uint32 { return big.Uint32(d.take(4)) }

func (d *decoder) uint64() uint64 { return big.Uint64(d.take(8)) }

func (d *decoder) string() string { return string(d.take(int(d.uint32()))) }

func (d *decoder) time() Time { return Time{Sec: int64(d.uint64()), Nsec: d.uint32()} }

// zeroRun is from how many consecutive blocks of zeros on they are one record: it takes less than
// their hashes and the head of another record of hashes.
const zeroRun = 4

// maxHashBytes returns the most bytes that the block hashes of a file take, from its size and what
// it takes on its file system. If content is scattered, each part takes 4 KiB there, and here a
// record of one hash and one of zeros. A file that its file system compresses to a tiny part is not
// foreseen.
func maxHashBytes(size, allocated uint64) uint64 {
	const least, apart = 4 << 10, 2*headLength + HashSize + 8
	return min(size/BlockSize*(HashSize+1), (allocated/least+1)*apart) + apart
}

// DeviceHashes returns the most bytes that the block hashes of a block volume take.
func DeviceHashes(size uint64) uint64 { return maxHashBytes(size, size) }

// blockWriter writes the block hashes of one entry, in order: full records of hashes, and one small
// record for each run of zeros, however long. So holes take almost no room.
type blockWriter struct {
	writer  *writer
	pending []byte
	zeros   uint64
}

func (w *writer) newBlocks() *blockWriter { return &blockWriter{writer: w} }

// add adds the next hashes.
func (b *blockWriter) add(hashes []byte) error {
	for len(hashes) > 0 {
		if bytes.Equal(hashes[:HashSize], zeroHash[:]) {
			b.zeros++
			hashes = hashes[HashSize:]
			continue
		}
		if err := b.endZeros(); err != nil {
			return err
		}
		n := HashSize
		for n < len(hashes) && !bytes.Equal(hashes[n:n+HashSize], zeroHash[:]) {
			n += HashSize
		}
		if err := b.addPending(hashes[:n]); err != nil {
			return err
		}
		hashes = hashes[n:]
	}
	return nil
}

// endZeros writes the last run of zeros.
func (b *blockWriter) endZeros() error {
	n := b.zeros
	b.zeros = 0
	if n < zeroRun {
		for range n {
			if err := b.addPending(zeroHash[:]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := b.flushPending(); err != nil {
		return err
	}
	return b.writer.blocks(recordZeros, big.AppendUint64(nil, n))
}

// addPending collects hashes into full records.
func (b *blockWriter) addPending(hashes []byte) error {
	b.pending = append(b.pending, hashes...)
	for len(b.pending) >= maxBlocksPerRecord*HashSize {
		if err := b.writer.blocks(recordBlocks, b.pending[:maxBlocksPerRecord*HashSize]); err != nil {
			return err
		}
		b.pending = append(b.pending[:0], b.pending[maxBlocksPerRecord*HashSize:]...)
	}
	return nil
}

func (b *blockWriter) flushPending() error {
	if len(b.pending) == 0 {
		return nil
	}
	err := b.writer.blocks(recordBlocks, b.pending)
	b.pending = b.pending[:0]
	return err
}

// end writes the rest.
func (b *blockWriter) end() error {
	if err := b.endZeros(); err != nil {
		return err
	}
	return b.flushPending()
}

// blocks writes a record of the next entry's blocks.
func (w *writer) blocks(kind byte, payload []byte) error {
	if w.firstBlocks == 0 {
		w.firstBlocks = w.at
	}
	return w.record(kind, payload)
}

// copyBlocks copies the block hashes of an entry whose content has not changed.
func (w *writer) copyBlocks(from *Manifest, e *Entry) error {
	if e.blocks == 0 {
		return nil
	}
	b := from.blocksOf(e)
	for b.left > 0 {
		kind, payload, err := b.record()
		if err == nil {
			err = w.blocks(kind, payload)
		}
		if err != nil {
			return fmt.Errorf("take over block hashes of %q: %w", e.Path, err)
		}
		b.left -= b.available()
	}
	return nil
}

// blockReader returns the block hashes of one entry one after another.
type blockReader struct {
	records *recordReader
	// hashes and zeros are the rest of the last record: one of them.
	hashes []byte
	zeros  uint64
	left   uint64
}

// blocksOf begins to read the block hashes of an entry of this manifest that has
// two blocks or more.
func (m *Manifest) blocksOf(e *Entry) *blockReader {
	return &blockReader{records: m.reader(e.blocks), left: e.Blocks()}
}

// available returns how many blocks the rest of the last record covers.
func (b *blockReader) available() uint64 { return min(b.left, b.zeros+uint64(len(b.hashes)/HashSize)) }

// next returns the hash of the next block and how many consecutive blocks are known to have it, and
// io.EOF after the last. It does not advance: see skip.
func (b *blockReader) next() (hash []byte, count uint64, err error) {
	if b.left == 0 {
		return nil, 0, io.EOF
	}
	if b.available() == 0 {
		if _, _, err := b.record(); err != nil {
			return nil, 0, err
		}
	}
	if b.zeros > 0 {
		return zeroHash[:], b.available(), nil
	}
	return b.hashes[:HashSize], 1, nil
}

// skip advances by so many blocks, at most as many as next returned.
func (b *blockReader) skip(count uint64) {
	b.left -= count
	if b.zeros > 0 {
		b.zeros -= count
		return
	}
	b.hashes = b.hashes[count*HashSize:]
}

// record reads the next record of blocks.
func (b *blockReader) record() (kind byte, payload []byte, err error) {
	b.hashes, b.zeros = nil, 0
	kind, payload, err = b.records.record()
	switch {
	case err != nil:
		return 0, nil, err
	case kind == recordBlocks && len(payload) > 0 && len(payload)%HashSize == 0:
		b.hashes = payload
	case kind == recordZeros && len(payload) == 8 && big.Uint64(payload) > 0 && big.Uint64(payload) <= b.left:
		b.zeros = big.Uint64(payload)
	default:
		return 0, nil, errors.New("read a manifest: block hashes are not where they should be")
	}
	return kind, payload, nil
}

// linkReader reads the links of a manifest beside its entries.
type linkReader struct {
	records *recordReader
	end     int64
	// left is how many links are still to come, as the summary says.
	left  uint64
	ahead link
	done  bool
}

func (m *Manifest) links() (*linkReader, error) {
	r := &linkReader{records: m.reader(m.firstLink), end: m.end, left: m.summary.LinkMembers}
	return r, r.advance()
}

func (r *linkReader) advance() error {
	if r.records.at >= r.end {
		r.done = true
		if r.left > 0 {
			return fmt.Errorf("read a manifest: %d hard links are missing", r.left)
		}
		return nil
	}
	kind, payload, err := r.records.record()
	if err != nil {
		return fmt.Errorf("read links: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	if kind != recordLinks || len(payload) != linkLength {
		return errors.New("read a manifest: links are not where they should be")
	}
	if r.left == 0 {
		return errors.New("read a manifest: it has more hard links than it says")
	}
	r.left--
	r.ahead = decodeLink(payload)
	return nil
}

// of returns the hash of the path that the entry is a hard link of; the zero value means none. It
// must be called by rising ordinals.
func (r *linkReader) of(e *Entry) (pathHash, error) {
	for !r.done && r.ahead.ordinal < e.Ordinal {
		if err := r.advance(); err != nil {
			return pathHash{}, err
		}
	}
	if r.done || r.ahead.ordinal != e.Ordinal {
		return pathHash{}, nil
	}
	return r.ahead.leaderPath, nil
}

// The contexts of BLAKE3's key derivation separate hashes of different things: no content of a file
// can have the hash of a list of entries.
const (
	contentContext = "lodestone.dev/tree/v1 content"
	entriesContext = "lodestone.dev/tree/v1 entries"
	linksContext   = "lodestone.dev/tree/v1 links"
	rootContext    = "lodestone.dev/tree/v1 root"
	// fingerprintContext is that of what file systems say of entries.
	fingerprintContext = "lodestone.dev/tree/v1 fingerprint"
)

// hashOf is the hash of data itself: what b3sum prints for it.
func hashOf(data []byte) Hash { return blake3.Sum256(data) }

func newHasher(context string) *blake3.Hasher { return blake3.NewDeriveKey(context) }

func sum(h hash.Hash) (s Hash) {
	h.Sum(s[:0])
	return s
}

// contentOf is the hash of a file with these block hashes.
func contentOf(blocks []byte) Hash {
	h := newHasher(contentContext)
	_, _ = h.Write(blocks)
	return sum(h)
}
