package tree

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/zeebo/blake3"

	"github.com/lodestone-storage/lodestone/mover/scratch"
)

// A manifest is magic, records, and a footer that points at the last record. Each
// record is a type, the length and the CRC-32C of its payload, the CRC-32C of these
// three, and the payload.
// The format may change with any release; only the root is defined for others.
const (
	magic      = "lodestone tree 2"
	footer     = "lodestone end 1\n"
	headLength = 1 + 4 + 4 + 4

	recordBlocks  = 'B' // hashes of blocks
	recordZeros   = 'Z' // how many blocks of zeros follow one another, holes or not: 64 bits
	recordEntry   = 'E'
	recordLinks   = 'L'
	recordSummary = 'S'

	// blocksAtMost is how many block hashes one record holds at most.
	blocksAtMost = 4096
	// payloadAtMost bounds what a reader accepts.
	payloadAtMost = 64 << 20
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
	budget  *scratch.Budget
	// firstBlocks is where the blocks of the next entry begin.
	firstBlocks int64
}

// newWriter begins a manifest in a new file. It becomes readable with finish.
func newWriter(path string, budget *scratch.Budget) (*writer, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create a manifest: %w", err)
	}
	w := &writer{
		file: file, buffer: bufio.NewWriterSize(file, 256<<10),
		entries: derived(entriesContext), links: derived(linksContext), budget: budget,
	}
	if _, err := w.buffer.WriteString(magic); err != nil {
		return nil, fmt.Errorf("write a manifest: %w", err)
	}
	w.at = int64(len(magic))
	return w, nil
}

func (w *writer) record(kind byte, payload []byte) error {
	if err := w.budget.Take(uint64(headLength + len(payload))); err != nil {
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

// entry writes the next entry in canonical order; its blocks are written before it.
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

// link says that the entry at ordinal is a hard link of an earlier one. Links come
// after all entries, by rising ordinals.
func (w *writer) link(l link) error {
	var b [linkLength]byte
	big.PutUint64(b[:], l.ordinal)
	big.PutUint64(b[8:], l.leader)
	_, _ = w.links.Write(b[:16])
	copy(b[16:], l.leaderPath[:])
	w.members++
	return w.record(recordLinks, b[:])
}

// root is the hash over everything written.
func (w *writer) root() Hash {
	h := derived(rootContext)
	entries, links := sum(w.entries), sum(w.links)
	var b []byte
	b = big.AppendUint64(b, w.count)
	b = append(b, entries[:]...)
	b = big.AppendUint64(b, w.members)
	b = append(b, links[:]...)
	_, _ = h.Write(b)
	return sum(h)
}

// finish writes the summary and makes the manifest durable.
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
