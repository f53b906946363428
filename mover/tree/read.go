package tree

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// Manifest is a finished manifest. It may be read by several readers at once.
type Manifest struct {
	file      *os.File
	summary   Summary
	firstLink int64
	end       int64
}

// Open opens a manifest that Scan finished; one that is torn is an error.
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

// Summary is what the manifest says of the whole tree.
func (m *Manifest) Summary() Summary { return m.summary }

// Close closes the manifest's file.
func (m *Manifest) Close() error { return m.file.Close() }

// Entries begins to read the entries, in canonical order.
func (m *Manifest) Entries() *Reader {
	return &Reader{manifest: m, records: m.reader(int64(len(magic)))}
}

// Reader reads entries one after another.
type Reader struct {
	manifest *Manifest
	records  *recordReader
	ordinal  uint64
}

// Next gives the next entry, and io.EOF after the last one.
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

// recordReader reads records from a place in the file on.
type recordReader struct {
	file   *os.File
	at     int64
	buffer *bufio.Reader
	// payload is used again for each record.
	payload []byte
}

func (m *Manifest) reader(at int64) *recordReader {
	section := io.NewSectionReader(m.file, at, 1<<62)
	return &recordReader{file: m.file, at: at, buffer: bufio.NewReaderSize(section, 64<<10)}
}

// record reads the next record; the payload is good until the next call.
func (r *recordReader) record() (kind byte, payload []byte, err error) { return r.next(false) }

// next reads the next record, or steps over the payload of block hashes.
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
	if n > payloadAtMost {
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
