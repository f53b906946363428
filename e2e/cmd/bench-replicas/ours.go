package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// ours makes a point as a VolumeReplica does: movers that know of no earlier point copy, and then compare both ends by hashes of all
// of it.
func (b *bench) ours(ctx context.Context, source, folder string) (cost, error) {
	target, movers := filepath.Join(folder, "head"), filepath.Join(folder, "movers")
	if err := errors.Join(os.RemoveAll(movers), os.MkdirAll(movers, 0o755), os.MkdirAll(target, 0o755)); err != nil {
		return cost{}, fmt.Errorf("make folders for the movers: %w", err)
	}
	began := time.Now()
	point, err := harness.Start(ctx, harness.Setup{Program: b.mover, Folder: movers, Source: source, Target: target})
	if err != nil {
		return cost{}, fmt.Errorf("start movers: %w", err)
	}
	defer point.Stop()
	var expect json.RawMessage
	for _, kind := range []moverapi.Kind{moverapi.Prepare, moverapi.Final, moverapi.Verify} {
		status, err := point.Do(ctx, moverapi.Task{ID: string(kind), Kind: kind, Expect: expect})
		switch {
		case err != nil:
			return cost{}, fmt.Errorf("%w\n%s", err, point.Log())
		case status.Prepared != nil:
			expect = status.Prepared.Source
		case status.Verified != nil && !status.Verified.Equal:
			return cost{}, errors.New("both ends differ")
		}
	}
	took := time.Since(began)
	point.Stop()
	return cost{bytes: point.Wire.Bytes(), processor: point.Used(), took: took}, nil
}
