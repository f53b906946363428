package blocks

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// NewDeviceReceiver makes a receiver of a block device, or of a file that stands for
// one: it takes the file with an empty path and no other. Its size stays as it is.
func NewDeviceReceiver(path string) (*Receiver, error) {
	device, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the block volume: %w", err)
	}
	defer device.Close()
	size, err := device.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return nil, errors.Join(errors.New("the block volume at the target has no size: use a claim that has one"), err)
	}
	fd, err := unix.FcntlInt(device.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the block volume: %w", err)
	}
	return &Receiver{root: fd, device: size}, nil
}

// beginDevice begins to write the device in place.
func (r *Receiver) beginDevice() error {
	if len(r.file.Path) > 0 {
		return errors.New("a block volume has no names")
	}
	if r.file.Size < 0 || r.file.Size > r.device {
		return fmt.Errorf("the volume has %d bytes, the target %d", r.file.Size, r.device)
	}
	fd, err := unix.FcntlInt(uintptr(r.root), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	r.fd, r.open = fd, true
	return nil
}
