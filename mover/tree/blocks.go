package tree

import (
	"errors"
	"fmt"
	"io"
)

// blockReader gives the block hashes of one entry in turn.
type blockReader struct {
	records *recordReader
	hashes  []byte
	left    uint64
}

// blocksOf begins to read the block hashes of an entry of this manifest that has
// two blocks or more.
func (m *Manifest) blocksOf(e *Entry) *blockReader {
	return &blockReader{records: m.reader(e.blocks), left: e.Blocks()}
}

// next gives the next hash, and io.EOF after the last. It is good until the call
// after it.
func (b *blockReader) next() ([]byte, error) {
	if b.left == 0 {
		return nil, io.EOF
	}
	if len(b.hashes) == 0 {
		if err := b.fill(); err != nil {
			return nil, err
		}
	}
	hash := b.hashes[:HashSize]
	b.hashes = b.hashes[HashSize:]
	b.left--
	return hash, nil
}

// fill reads the next record of hashes.
func (b *blockReader) fill() error {
	kind, payload, err := b.records.record()
	if err != nil {
		return err
	}
	if kind != recordBlocks || len(payload) == 0 || len(payload)%HashSize != 0 {
		return errors.New("read a manifest: block hashes are not where they should be")
	}
	b.hashes = payload
	return nil
}

// copyBlocks takes over the block hashes of an entry whose content did not change.
func (w *writer) copyBlocks(from *Manifest, e *Entry) error {
	if e.blocks == 0 {
		return nil
	}
	b := from.blocksOf(e)
	for b.left > 0 {
		if err := b.fill(); err != nil {
			return fmt.Errorf("take over block hashes of %q: %w", e.Path, err)
		}
		if err := w.blocks(b.hashes); err != nil {
			return err
		}
		b.left -= min(b.left, uint64(len(b.hashes)/HashSize))
	}
	return nil
}
