package receive

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

// probe tries what the target can keep, and counts what is there.
func (r *Receiver) probe(ctx context.Context) (any, error) {
	if r.Block {
		size, err := tree.DeviceSize(r.Volume)
		return exchange.ProbeAnswer{Abilities: tree.Abilities{Bytes: size}}, err
	}
	abilities, err := tree.Probe(r.Volume)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(r.Scratch, "there.manifest")
	defer os.Remove(path)
	there, err := tree.Scan(ctx, tree.Options{Root: r.Volume, Manifest: path, Scratch: r.Scratch, Shallow: true})
	return exchange.ProbeAnswer{Abilities: abilities, There: there}, err
}

// scan describes the volume. The manifest is used by later scans too.
func (r *Receiver) scan(ctx context.Context, in *stream.Incoming) (any, error) {
	var asked exchange.ScanAsked
	if err := json.Unmarshal(in.Body, &asked); err != nil {
		return nil, fmt.Errorf("decode how to scan: %w", err)
	}
	var told time.Time
	options := tree.Options{
		Root: r.Volume, Manifest: r.manifestPath(), Scratch: r.Scratch, Cold: true, Length: asked.Length,
		Progress: func(p tree.Progress) {
			if now := time.Now(); now.Sub(told) > time.Second {
				told = now
				// A lost connection ends the scan's context.
				_ = in.Progress(p)
			}
		},
	}
	if r.Block {
		return tree.ScanDevice(ctx, options)
	}
	return exchange.ScanVolume(ctx, options, asked.Full)
}
