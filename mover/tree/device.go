package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// ScanDevice describes a block volume, or a file that stands for one, in a manifest
// with a single entry: a file without a name, whose size is the device's and whose
// blocks are those of its content. Owner, mode and times of the device node are those
// of the machine and are not kept. Root is the device; everything else of Options is
// as for Scan, but for Previous: a device tells nothing of changes, so it is always
// read whole.
func ScanDevice(ctx context.Context, o Options) (Summary, error) {
	device, err := os.OpenFile(o.Root, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Summary{}, fmt.Errorf("open the block volume: %w", err)
	}
	defer device.Close()
	e, err := deviceEntry(device)
	if err != nil {
		return Summary{}, err
	}
	f := &openedFile{fd: int(device.Fd())}
	if o.Length > 0 {
		if e.Size < o.Length {
			return Summary{}, fmt.Errorf("read the block volume: it has %d bytes, %d are needed", e.Size, o.Length)
		}
		e.Size, e.Allocated = o.Length, o.Length
	}
	if err := o.Expect.sized(e.Size); err != nil {
		return Summary{}, err
	}
	if o.Cold {
		if err := retry(func() error { return unix.Fdatasync(f.fd) }); err != nil {
			return Summary{}, fmt.Errorf("make the block volume durable: %w", err)
		}
		if err := f.drop(); err != nil {
			return Summary{}, err
		}
	}
	started, err := clock()
	if err != nil {
		return Summary{}, err
	}
	partial := o.Manifest + ".partial"
	defer os.Remove(partial)
	w, err := newWriter(partial, o.Budget)
	if err != nil {
		return Summary{}, err
	}
	defer w.file.Close()
	workers := o.workers()
	parts := make(chan *part)
	c := &collector{
		options: &o, writer: w, parts: parts, ahead: 2 * workers, linker: newLinker(&o), found: &findings{},
		summary: Summary{Version: Version, Started: started, Margin: never, Device: true},
	}
	group, ctx := errgroup.WithContext(ctx)
	for range workers {
		group.Go(func() error {
			(&looker{}).serve(ctx, nil, parts)
			return nil
		})
	}
	seen := &sight{entry: e, large: true}
	group.Go(func() error {
		defer close(parts)
		_, err := c.hashParts(ctx, f, seen)
		return err
	})
	if err := group.Wait(); err != nil {
		return Summary{}, fmt.Errorf("read the block volume: %w", err)
	}
	if seen.read != e.Size {
		return Summary{}, fmt.Errorf("read the block volume: it ends after %d of %d bytes", seen.read, e.Size)
	}
	if err := c.entry(seen); err != nil {
		return Summary{}, err
	}
	summary, err := c.finish()
	if err != nil {
		return Summary{}, err
	}
	if err := os.Rename(partial, o.Manifest); err != nil {
		return Summary{}, fmt.Errorf("put the manifest in its place: %w", err)
	}
	return summary, nil
}

// deviceEntry is the one entry of a block volume's manifest.
func deviceEntry(device *os.File) (*Entry, error) {
	info, err := device.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at the block volume: %w", err)
	}
	if !info.Mode().IsRegular() && info.Mode()&os.ModeType != os.ModeDevice {
		return nil, errors.New("the block volume is neither a block device nor a file")
	}
	size, err := device.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("ask for the size of the block volume: %w", err)
	}
	return &Entry{Type: File, Size: uint64(size), Links: 1, Allocated: uint64(size)}, nil
}

// DeviceSize is the size of a block volume, or of a file that stands for one, in bytes.
func DeviceSize(path string) (uint64, error) {
	device, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("open the block volume: %w", err)
	}
	defer device.Close()
	e, err := deviceEntry(device)
	if err != nil {
		return 0, err
	}
	return e.Size, nil
}
