package send

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/zeebo/blake3"

	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

// fetch gets the manifest of the target's last scan, unless it is the one that is
// here. It takes no more than the receiver said, if there is room for that.
func (r *run) fetch(conn *stream.Conn, there exchange.ScanAnswer) (*tree.Manifest, error) {
	path := r.sender.targetManifest()
	if here, err := tree.Open(path); err == nil {
		if here.Summary().Root == there.Root {
			return here, nil
		}
		_ = here.Close()
	}
	// It is of no use any more, and takes room.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("forget the target's manifest: %w", err)
	}
	budget, err := r.sender.Scratch.Budget()
	if err != nil {
		return nil, err
	}
	if err := budget.Take(there.ManifestSize); err != nil {
		return nil, err
	}
	partial := path + ".partial"
	file, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keep the target's manifest: %w", err)
	}
	defer file.Close()
	hash := blake3.New()
	var size uint64
	var answer exchange.ManifestAnswer
	err = conn.Do(stream.Call{Op: exchange.Manifest, Result: &answer, Data: func(payload []byte) error {
		_, _ = hash.Write(payload)
		if size += uint64(len(payload)); size > there.ManifestSize {
			return errors.New("the receiver sends a larger manifest than it said; start the move again")
		}
		if _, err := file.Write(payload); err != nil {
			return fmt.Errorf("keep the target's manifest: %w", err)
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	if size != uint64(answer.Size) || !bytes.Equal(hash.Sum(nil), answer.Hash) {
		conn.Close()
		return nil, fmt.Errorf("%w: the target's manifest is not what the receiver sent", stream.ErrLost)
	}
	if err := os.Rename(partial, path); err != nil {
		return nil, fmt.Errorf("keep the target's manifest: %w", err)
	}
	manifest, err := tree.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the target's manifest: %w", err)
	}
	if manifest.Summary().Root != there.Root {
		_ = manifest.Close()
		return nil, errors.New("the receiver's manifest is not that of its scan; start the move again")
	}
	return manifest, nil
}
