package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

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

// addZeros adds so many blocks of zeros.
func (b *blockWriter) addZeros(n uint64) { b.zeros += n }

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
