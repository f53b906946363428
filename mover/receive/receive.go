// Package receive is the writing end of a move: Receiver.Serve handles the sender's requests, one
// exchange after another, on its one volume. Read receive.go first; scan.go describes the volume.
package receive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/content/blocks"
	"github.com/lodestone-storage/lodestone/mover/content/restic"
	"github.com/lodestone-storage/lodestone/mover/content/rsync"
	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
)

// Receiver writes a volume.
type Receiver struct {
	// Self is the path of the mover's own program, Volume the directory to write, or, with Block,
	// the block device, Scratch a directory for manifests outside of it.
	Self, Volume string
	Scratch      sandbox.Scratch
	Block        bool
	// NoSnapshot refuses senders whose volume was made from a snapshot of the source.
	NoSnapshot bool
	// Writer is who this process is; nil: root.
	Writer *tree.Writer
	// Store is the repository that contents are fetched from; nil: the sender sends all.
	Store *restic.Store
	// Version is that of the program, Instance is a random ID of this process.
	Version, Instance string
}

// Serve handles the sender's requests on conn until the connection ends; it returns when nothing
// writes any more.
func (r *Receiver) Serve(ctx context.Context, conn *wire.Conn) error {
	greeted := false
	early := &earlyScan{receiver: r}
	defer early.discard()
	return conn.Serve(func(in *wire.Incoming) (any, error) {
		if in.Op == wire.OpHello {
			answer, err := r.hello(in)
			greeted = greeted || err == nil
			return answer, err
		}
		if !greeted {
			return nil, errors.New("the sender did not say hello")
		}
		if in.Op == wire.OpRelease {
			early.discard()
			return nil, r.release()
		}
		if err := r.refuseReleased(); err != nil {
			return nil, err
		}
		switch in.Op {
		case wire.OpProbe:
			return r.probe(ctx, in)
		case wire.OpScan:
			return r.scan(ctx, in, early)
		case wire.OpFingerprint:
			return r.fingerprint(ctx, in)
		case wire.OpManifest:
			return r.manifest(in)
		case wire.OpBlocks:
			early.discard()
			return r.blocks(ctx, in, early)
		case wire.OpCheckStore:
			return r.checkStore(ctx, in)
		case wire.OpFetch:
			return r.fetch(ctx, in)
		case rsync.Op:
			if r.Block {
				return nil, errors.New("the sender asked for files of a block volume")
			}
			return rsync.Target{Self: r.Self, Volume: r.Volume}.Receive(ctx, in)
		}
		return nil, fmt.Errorf("the sender asked for %q, which this receiver does not know", in.Op)
	})
}

func (r *Receiver) hello(in *wire.Incoming) (any, error) {
	var request wire.HelloRequest
	if err := in.Decode(&request); err != nil {
		return nil, err
	}
	if request.Version != r.Version {
		return nil, fmt.Errorf("the sender is of version %.50s and the receiver of %s; use one version of the mover's image at both ends",
			request.Version, r.Version)
	}
	if request.Block != r.Block {
		return nil, errors.New("one of the two volumes is a block device and the other one has a file system: " +
			"a move keeps the volume mode, so use a claim of the same mode at the target")
	}
	if err := r.refuseOldSnapshot(request); err != nil {
		return nil, err
	}
	_, err := sandbox.LandlockVersion()
	return wire.HelloResponse{Version: r.Version, Instance: r.Instance, Confined: err == nil, Writer: r.Writer}, nil
}

// refuseOldSnapshot refuses a sender that reads a snapshot of the source once a sender that reads
// the source itself has connected: the snapshot is old by then. Such a sender may still run if its
// pod was deleted by force. A file in the scratch directory keeps this over a restart.
func (r *Receiver) refuseOldSnapshot(request wire.HelloRequest) error {
	path := r.Scratch.File("source.seen")
	if !request.Snapshot {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return fmt.Errorf("remember that the source itself is read: %w", err)
		}
		return nil
	}
	_, err := os.Stat(path)
	switch {
	case err == nil || r.NoSnapshot:
		return errors.New("the sender reads a snapshot, and the source itself is read by now; remove the mover at the snapshot")
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("find out whether the source itself is read: %w", err)
	}
	return nil
}

// release has the receiver refuse everything from now on: others use the volume. A file in the scratch directory, which
// lasts as long as the pod, keeps this over a restart, and is on the disk before the answer goes out.
func (r *Receiver) release() error {
	file, err := os.Create(r.releasedPath())
	if err != nil {
		return fmt.Errorf("remember that the target is let go: %w", err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("remember that the target is let go: %w", err)
	}
	folder, err := os.Open(r.Scratch.Path)
	if err != nil {
		return fmt.Errorf("remember that the target is let go: %w", err)
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// refuseReleased is an error once the volume was let go.
func (r *Receiver) refuseReleased() error {
	switch _, err := os.Stat(r.releasedPath()); {
	case err == nil:
		return errors.New("the receiver has let the target go, which others may use by now: begin another move")
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("find out whether the target was let go: %w", err)
	}
	return nil
}

func (r *Receiver) releasedPath() string { return r.Scratch.File("target.released") }

func (r *Receiver) manifestPath() string { return r.Scratch.File("target.manifest") }

// manifest sends the manifest of the last scan.
func (r *Receiver) manifest(in *wire.Incoming) (any, error) {
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
			return wire.ManifestResponse{Size: size, Hash: hash.Sum(nil)}, nil
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
func (r *Receiver) blocks(ctx context.Context, in *wire.Incoming, early *earlyScan) (any, error) {
	open := blocks.NewReceiver
	if r.Block {
		open = blocks.NewDeviceReceiver
	}
	writer, err := open(r.Volume)
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	writer.Answer = in.Send
	for {
		message, err := in.Next()
		if err != nil {
			if errors.Is(err, wire.ErrLost) {
				return nil, err
			}
			if !writer.Complete() {
				return nil, errors.New("the sender stopped in the middle of a file")
			}
			if !r.Block && writer.Bytes >= minEarlyBytes {
				early.start(ctx)
			}
			return wire.BlocksResponse{Files: writer.Files, Bytes: writer.Bytes}, nil
		}
		if err := writer.Apply(message); err != nil {
			full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
			return wire.BlocksResponse{Files: writer.Files, Bytes: writer.Bytes, Full: full, Error: err.Error()}, nil
		}
	}
}

var errNoStore = errors.New("the sender asked for a repository, and this receiver was told of none; start the move again")

// checkStore reports whether this end can use the repository.
func (r *Receiver) checkStore(ctx context.Context, in *wire.Incoming) (any, error) {
	var request wire.CheckStoreRequest
	if err := in.Decode(&request); err != nil {
		return nil, err
	}
	if r.Store == nil {
		return nil, errNoStore
	}
	var unusable *restic.Error
	err := r.Store.Check(ctx, request.Part)
	if errors.As(err, &unusable) {
		return wire.CheckStoreResponse{Unusable: unusable.Sentence}, nil
	}
	return wire.CheckStoreResponse{}, err
}

// fetch writes what the sender has saved in the repository.
func (r *Receiver) fetch(ctx context.Context, in *wire.Incoming) (any, error) {
	var request wire.FetchRequest
	if err := in.Decode(&request); err != nil {
		return nil, err
	}
	if r.Store == nil || r.Block {
		return nil, errNoStore
	}
	progress := &fetchProgress{in: in, every: time.Second}
	fetching, stop := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { progress.report(fetching) })
	saved := restic.Saved{Snapshot: request.Snapshot, Part: request.Part}
	err := r.Store.Fetch(ctx, r.Volume, saved, request.BytesPerSecond, restic.Output{Progress: progress.done, Retrying: progress.retrying})
	stop()
	reporting.Wait()
	var unusable *restic.Error
	var partial *restic.Partial
	switch {
	case errors.As(err, &unusable):
		return wire.FetchResponse{Unusable: unusable.Sentence}, nil
	case errors.As(err, &partial):
		return wire.FetchResponse{Left: partial.Complaints}, nil
	case errors.Is(err, restic.ErrFull):
		return wire.FetchResponse{Full: err.Error()}, nil
	case err != nil:
		return nil, err
	}
	return wire.FetchResponse{}, nil
}

// fetchProgress reports the progress of a fetch to the sender, also when there is none: that is how
// a lost connection is noticed.
type fetchProgress struct {
	in    *wire.Incoming
	every time.Duration
	mutex sync.Mutex
	now   wire.FetchProgress
}

func (f *fetchProgress) done(bytes int64) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if bytes > f.now.Bytes {
		f.now = wire.FetchProgress{Bytes: bytes}
	}
}

func (f *fetchProgress) retrying(why string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.now.Waits = why
}

func (f *fetchProgress) report(ctx context.Context) {
	ticker := time.NewTicker(f.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		f.mutex.Lock()
		now := f.now
		f.mutex.Unlock()
		// A lost connection ends the fetch's context.
		_ = f.in.Progress(now)
	}
}
