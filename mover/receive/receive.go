// Package receive is the end of a move that writes: it does what the sender asks,
// one exchange after another, to the one volume that it has.
package receive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/blocks"
	"github.com/lodestone-storage/lodestone/mover/confine"
	"github.com/lodestone-storage/lodestone/mover/engine"
	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/restic"
	"github.com/lodestone-storage/lodestone/mover/scratch"
	"github.com/lodestone-storage/lodestone/mover/stream"
)

// Receiver writes a volume.
type Receiver struct {
	// Self is the mover's own program, Volume the directory to write, or, with Block, the
	// block device, Scratch a directory for manifests outside of it.
	Self, Volume string
	Scratch      scratch.Folder
	Block        bool
	// NoSnapshot refuses senders whose volume was made of a snapshot of the source.
	NoSnapshot bool
	// Store is where contents are fetched from; nil: the sender sends all.
	Store *restic.Store
	// Version is that of the program, Instance is drawn when it starts.
	Version, Instance string
}

// Serve does what the sender at the other end of conn asks until the connection
// ends; it returns when nothing writes any more.
func (r *Receiver) Serve(ctx context.Context, conn *stream.Conn) error {
	greeted := false
	early := &early{receiver: r}
	defer early.drop()
	return conn.Serve(func(in *stream.Incoming) (any, error) {
		if in.Op == exchange.Hello {
			answer, err := r.hello(in)
			greeted = greeted || err == nil
			return answer, err
		}
		if !greeted {
			return nil, errors.New("the sender did not say hello")
		}
		switch in.Op {
		case exchange.Probe:
			return r.probe(ctx)
		case exchange.Scan:
			return r.scan(ctx, in, early)
		case exchange.Manifest:
			return r.manifest(in)
		case exchange.Blocks:
			early.drop()
			return r.blocks(ctx, in, early)
		case exchange.Reach:
			return r.reach(ctx, in)
		case exchange.Fetch:
			return r.fetch(ctx, in)
		case engine.Op:
			if r.Block {
				return nil, errors.New("the sender asked for files of a block volume")
			}
			return engine.Target{Self: r.Self, Volume: r.Volume}.Receive(ctx, in)
		}
		return nil, fmt.Errorf("the sender asked for %q, which this receiver does not know", in.Op)
	})
}

func (r *Receiver) hello(in *stream.Incoming) (any, error) {
	var asked exchange.HelloAsked
	if err := json.Unmarshal(in.Body, &asked); err != nil {
		return nil, fmt.Errorf("decode the sender's hello: %w", err)
	}
	if asked.Version != r.Version {
		return nil, fmt.Errorf("the sender is of version %.50s and the receiver of %s; use one version of the mover's image at both ends",
			asked.Version, r.Version)
	}
	if asked.Block != r.Block {
		return nil, errors.New("one of the two volumes is a block device and the other one has a file system: " +
			"a move keeps the volume mode, so use a claim of the same mode at the target")
	}
	if err := r.outdated(asked); err != nil {
		return nil, err
	}
	_, err := confine.Version()
	return exchange.HelloAnswer{Version: r.Version, Instance: r.Instance, Confined: err == nil}, nil
}

func (r *Receiver) manifestPath() string { return r.Scratch.File("target.manifest") }

// manifest sends the manifest of the last scan.
func (r *Receiver) manifest(in *stream.Incoming) (any, error) {
	file, err := os.Open(r.manifestPath())
	if err != nil {
		return nil, fmt.Errorf("open the target's manifest: %w", err)
	}
	defer file.Close()
	hash, buffer := blake3.New(), make([]byte, 256<<10)
	var size int64
	for {
		n, err := file.Read(buffer)
		if n == 0 {
			if err := in.SendEnd(); err != nil {
				return nil, err
			}
			return exchange.ManifestAnswer{Size: size, Hash: hash.Sum(nil)}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the target's manifest: %w", err)
		}
		_, _ = hash.Write(buffer[:n])
		size += int64(n)
		if err := in.Send(buffer[:n]); err != nil {
			return nil, err
		}
	}
}

// blocks writes large files.
func (r *Receiver) blocks(ctx context.Context, in *stream.Incoming, early *early) (any, error) {
	open := blocks.NewReceiver
	if r.Block {
		open = blocks.NewDeviceReceiver
	}
	writer, err := open(r.Volume)
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	for {
		message, err := in.Next()
		if err != nil {
			if errors.Is(err, stream.ErrLost) {
				return nil, err
			}
			if !writer.Complete() {
				return nil, errors.New("the sender stopped in the middle of a file")
			}
			if !r.Block && writer.Bytes >= worthwhile {
				early.begin(ctx)
			}
			return exchange.BlocksAnswer{Files: writer.Files, Bytes: writer.Bytes}, nil
		}
		if err := writer.Take(message); err != nil {
			full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
			return exchange.BlocksAnswer{Files: writer.Files, Bytes: writer.Bytes, Full: full, Error: err.Error()}, nil
		}
	}
}
