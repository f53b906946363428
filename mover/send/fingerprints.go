package send

import (
	"context"

	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// fingerprints takes those of both ends, at the same time.
func (r *run) fingerprints(ctx context.Context, conn *wire.Conn) (*moverapi.Fingerprints, error) {
	r.meter.start("looking whether anything has changed", 0, 0)
	if r.sender.Block {
		return &moverapi.Fingerprints{}, nil
	}
	asked := make(chan error, 1)
	var there wire.FingerprintResponse
	go func() { asked <- conn.Do(wire.Call{Op: wire.OpFingerprint, Result: &there, Progress: r.meter.there}) }()
	here, err := r.fingerprint(ctx)
	if err != nil {
		// The receiver's is useless then.
		conn.Close()
	}
	if askErr := <-asked; err == nil {
		err = askErr
	}
	if err != nil || here == (tree.Hash{}) || there.Fingerprint == (tree.Hash{}) {
		return &moverapi.Fingerprints{}, err
	}
	return &moverapi.Fingerprints{Source: here.String(), Target: there.Fingerprint.String()}, nil
}

func (r *run) fingerprint(ctx context.Context) (tree.Hash, error) {
	budget, err := r.sender.Scratch.Budget()
	if err != nil {
		return tree.Hash{}, err
	}
	return tree.Fingerprint(ctx, tree.Options{Root: r.sender.Volume, Scratch: r.sender.Scratch.Path, Budget: budget, Progress: r.meter.here})
}
