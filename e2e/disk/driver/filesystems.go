package driver

import (
	"context"
	"errors"
	"os/exec"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fileSystem is how one kind is made and grown.
type fileSystem struct {
	format []string // the command that makes one on a device, without the device
	// mount are options that it is mounted with beside those that are asked for.
	mount []string
	// fit makes one that is not mounted as large as its device; nil: it cannot.
	fit func(ctx context.Context, device string) error
	// grow makes one as large as its device while it is mounted.
	grow func(ctx context.Context, device, mountPoint string) error
}

var fileSystems = map[string]fileSystem{
	"ext4": {
		format: []string{"mkfs.ext4", "-q", "-m", "0"},
		fit: func(ctx context.Context, device string) error {
			// It wants to be checked before; code 1 says that something was mended.
			if _, err := run(ctx, "e2fsck", "-f", "-p", device); err != nil && exitCode(err) != 1 {
				return err
			}
			_, err := run(ctx, "resize2fs", device)
			return err
		},
		// This needs CAP_SYS_RESOURCE.
		grow: func(ctx context.Context, device, _ string) error {
			_, err := run(ctx, "resize2fs", device)
			return err
		},
	},
	"xfs": {
		format: []string{"mkfs.xfs", "-q"},
		mount:  []string{"nouuid"}, // a clone has the UUID of its source, and both may be mounted
		grow: func(ctx context.Context, _, mountPoint string) error {
			_, err := run(ctx, "xfs_growfs", mountPoint)
			return err
		},
	},
}

// kindOf returns the file system of a name; ext4 if there is none.
func kindOf(name string) (fileSystem, error) {
	if name == "" {
		name = "ext4"
	}
	kind, ok := fileSystems[name]
	if !ok {
		return kind, status.Errorf(codes.InvalidArgument, "file systems are ext4 and xfs, not %q", name)
	}
	return kind, nil
}

// mountOn mounts the file system of a device, which is made if there is nothing on
// it, as large as the device: that of a clone is as large as its source.
func (f fileSystem) mountOn(ctx context.Context, device, target string, options []string) error {
	if err := f.formatEmpty(ctx, device); err != nil {
		return err
	}
	if f.fit != nil {
		if err := f.fit(ctx, device); err != nil {
			return err
		}
	}
	if err := mount(ctx, device, target, append(options, f.mount...)...); err != nil {
		return err
	}
	if f.fit != nil {
		return nil
	}
	return f.grow(ctx, device, target)
}

// formatEmpty makes a file system on a device that has nothing on it. What is there
// is never formatted: blkid says with code 2 that it knows nothing of it.
func (f fileSystem) formatEmpty(ctx context.Context, device string) error {
	_, err := run(ctx, "blkid", "--probe", device)
	if err == nil || exitCode(err) != 2 {
		return err
	}
	_, err = run(ctx, f.format[0], append(f.format[1:len(f.format):len(f.format)], device)...)
	return err
}

// exitCode is that of a command that failed, -1 if it did not run.
func exitCode(err error) int {
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode()
	}
	return -1
}
