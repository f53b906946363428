package cases

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

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
