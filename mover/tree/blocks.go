package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// zeroRun is from how many blocks of zeros in a row on they are one record: it takes
// less than their hashes and the head of another record of hashes.
const zeroRun = 4

// hashesAtMost is how many bytes the block hashes of a file take at most that has so many
// bytes, and takes so many on its file system. Where content lies apart, a part takes 4 KiB
// there, and here a record of one hash and one of zeros. A file system that compresses a
// file to a tiny part of itself is not foreseen.
func hashesAtMost(size, allocated uint64) uint64 {
	const least, apart = 4 << 10, 2*headLength + HashSize + 8
	return min(size/BlockSize*(HashSize+1), (allocated/least+1)*apart) + apart
}

// DeviceHashes is how many bytes the block hashes of a block volume take at most.
func DeviceHashes(size uint64) uint64 { return hashesAtMost(size, size) }

// blockWriter writes the block hashes of one entry, which come in order: full records,
// and one small record for each run of zeros, however long. So holes cost nothing.
type blockWriter struct {
	writer *writer
	held   []byte
	zeros  uint64
}

func (w *writer) newBlocks() *blockWriter { return &blockWriter{writer: w} }

// add takes the next hashes.
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
		if err := b.hold(hashes[:n]); err != nil {
			return err
		}
		hashes = hashes[n:]
	}
	return nil
}

// addZeros takes so many blocks of zeros.
func (b *blockWriter) addZeros(n uint64) { b.zeros += n }

// endZeros writes the blocks of zeros that came last.
func (b *blockWriter) endZeros() error {
	n := b.zeros
	b.zeros = 0
	if n < zeroRun {
		for range n {
			if err := b.hold(zeroHash[:]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := b.flushHeld(); err != nil {
		return err
	}
	return b.writer.blocks(recordZeros, big.AppendUint64(nil, n))
}

// hold gathers hashes into full records.
func (b *blockWriter) hold(hashes []byte) error {
	b.held = append(b.held, hashes...)
	for len(b.held) >= blocksAtMost*HashSize {
		if err := b.writer.blocks(recordBlocks, b.held[:blocksAtMost*HashSize]); err != nil {
			return err
		}
		b.held = append(b.held[:0], b.held[blocksAtMost*HashSize:]...)
	}
	return nil
}

func (b *blockWriter) flushHeld() error {
	if len(b.held) == 0 {
		return nil
	}
	err := b.writer.blocks(recordBlocks, b.held)
	b.held = b.held[:0]
	return err
}

// end writes what is left.
func (b *blockWriter) end() error {
	if err := b.endZeros(); err != nil {
		return err
	}
	return b.flushHeld()
}

// blocks writes a record about the next entry's blocks.
func (w *writer) blocks(kind byte, payload []byte) error {
	if w.firstBlocks == 0 {
		w.firstBlocks = w.at
	}
	return w.record(kind, payload)
}

// copyBlocks takes over the block hashes of an entry whose content did not change.
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
		b.left -= b.held()
	}
	return nil
}

// blockReader gives the block hashes of one entry in turn.
type blockReader struct {
	records *recordReader
	// hashes and zeros are what the last record still holds: one of them.
	hashes []byte
	zeros  uint64
	left   uint64
}

// blocksOf begins to read the block hashes of an entry of this manifest that has
// two blocks or more.
func (m *Manifest) blocksOf(e *Entry) *blockReader {
	return &blockReader{records: m.reader(e.blocks), left: e.Blocks()}
}

// held is how many blocks the last record still tells of.
func (b *blockReader) held() uint64 { return min(b.left, b.zeros+uint64(len(b.hashes)/HashSize)) }

// next gives the hash of the next block and how many blocks in a row have it as far as
// that is known, and io.EOF after the last. It stays where it is.
func (b *blockReader) next() (hash []byte, count uint64, err error) {
	if b.left == 0 {
		return nil, 0, io.EOF
	}
	if b.held() == 0 {
		if _, _, err := b.record(); err != nil {
			return nil, 0, err
		}
	}
	if b.zeros > 0 {
		return zeroHash[:], b.held(), nil
	}
	return b.hashes[:HashSize], 1, nil
}

// skip goes on by so many blocks, at most as many as next told.
func (b *blockReader) skip(count uint64) {
	b.left -= count
	if b.zeros > 0 {
		b.zeros -= count
		return
	}
	b.hashes = b.hashes[count*HashSize:]
}

// record reads the next record about blocks.
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
