package cases

import (
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/cases/disk"
)

// diskBytes is the size of a target that is a disk of its own.
const diskBytes = 64 << 20

// mount gives the target a file system of its own, if the case asks for that.
func (r *run) mount(ctx context.Context) (unmount func() error, err error) {
	switch {
	case r.c.TargetBytes > 0:
		return mountSmall(r.target.Dir, r.c.TargetBytes)
	case r.c.Disk:
		if r.disk, err = disk.Mount(ctx, r.target.Dir, diskBytes); err != nil {
			return nil, err
		}
		return r.disk.Unmount, nil
	}
	return func() error { return nil }, nil
}

// mountSmall mounts a file system of so many bytes.
func mountSmall(dir string, bytes int64) (unmount func() error, err error) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+strconv.FormatInt(bytes, 10)); err != nil {
		return nil, fmt.Errorf("mount a small file system: %w", err)
	}
	return func() error {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount a small file system: %w", err)
		}
		return nil
	}, nil
}
