package tree

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
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
