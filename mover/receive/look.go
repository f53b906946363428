package receive

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

// probe tries what the target can keep, and counts what is there.
func (r *Receiver) probe(ctx context.Context) (any, error) {
	room, err := r.Scratch.Room()
	if err != nil {
		return nil, err
	}
	if r.Block {
		size, err := tree.DeviceSize(r.Volume)
		return exchange.ProbeAnswer{Abilities: tree.Abilities{Bytes: size}, Scratch: room}, err
	}
	abilities, err := tree.Probe(r.Volume)
	if err != nil {
		return nil, err
	}
	budget, err := r.Scratch.Budget()
	if err != nil {
		return nil, err
	}
	path := r.Scratch.File("there.manifest")
	defer os.Remove(path)
	there, err := tree.Scan(ctx, tree.Options{Root: r.Volume, Manifest: path, Scratch: r.Scratch.Path, Budget: budget, Shallow: true})
	return exchange.ProbeAnswer{Abilities: abilities, There: there, Scratch: room}, err
}

// scan describes the volume. The manifest is used by later scans too.
func (r *Receiver) scan(ctx context.Context, in *stream.Incoming, early *early) (any, error) {
	var asked exchange.ScanAsked
	if err := json.Unmarshal(in.Body, &asked); err != nil {
		return nil, fmt.Errorf("decode how to scan: %w", err)
	}
	// A lost connection ends the scan's context.
	tell := func(p tree.Progress) { _ = in.Progress(p) }
	defer early.drop()
	before := ""
	if asked.Full {
		early.drop()
	} else {
		before = early.take(tell)
	}
	budget, err := r.Scratch.Budget()
	if err != nil {
		return nil, err
	}
	var told time.Time
	options := tree.Options{
		Root: r.Volume, Manifest: r.manifestPath(), Scratch: r.Scratch.Path, Budget: budget, Cold: true, Early: before, Length: asked.Length,
		Progress: func(p tree.Progress) {
			if now := time.Now(); now.Sub(told) > time.Second {
				told = now
				tell(p)
			}
		},
	}
	var answer exchange.ScanAnswer
	if r.Block {
		answer.Summary, err = tree.ScanDevice(ctx, options)
	} else {
		answer.Summary, err = exchange.ScanVolume(ctx, options, asked.Full)
		if err != nil && before != "" && ctx.Err() == nil {
			// Whatever is wrong: nothing depends on what was read early, which takes room, too.
			early.drop()
			if options.Budget, err = r.Scratch.Budget(); err == nil {
				options.Early = ""
				answer.Summary, err = exchange.ScanVolume(ctx, options, asked.Full)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	manifest, err := os.Stat(r.manifestPath())
	if err != nil {
		return nil, fmt.Errorf("look at the target's manifest: %w", err)
	}
	answer.ManifestSize = uint64(manifest.Size())
	return answer, nil
}
