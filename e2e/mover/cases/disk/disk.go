// Package disk makes small disks for tests: a file system in a file, mounted through a
// loop device. So a test can change what is on the disk, as a bad disk does, and no file
// system notices.
package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNone says that no such disk can be had here: it needs root, loop devices, and
// mkfs.ext4.
var ErrNone = errors.New("no disk can be made of a file here")

// Disk is a mounted file system whose disk is a file.
type Disk struct{ image, dir string }

// Mount makes a file system of so many bytes in the file dir.image and mounts it at the
// directory dir. The error is ErrNone if that cannot be had here.
func Mount(ctx context.Context, dir string, size int64) (*Disk, error) {
	d := &Disk{image: filepath.Clean(dir) + ".image", dir: dir}
	return d, d.mount(ctx, "mkfs.ext4", "-q", d.image, strconv.FormatInt(size>>10, 10)+"k")
}

// Snapshot copies what is on the disk at this moment to another one, and mounts that at the directory dir.
func (d *Disk) Snapshot(ctx context.Context, dir string) (*Disk, error) {
	other := &Disk{image: filepath.Clean(dir) + ".image", dir: dir}
	return other, other.mount(ctx, "cp", "--sparse=always", d.image, other.image)
}

// mount makes the disk with a command, and mounts it.
func (d *Disk) mount(ctx context.Context, maker ...string) error {
	for _, command := range [][]string{maker, {"mount", "-t", "ext4", "-o", "loop", d.image, d.dir}} {
		if output, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return errors.Join(fmt.Errorf("%w: %s: %w: %s", ErrNone, command[0], err, strings.TrimSpace(string(output))), d.removeImage())
		}
	}
	return nil
}

// Unmount removes the disk.
func (d *Disk) Unmount() error {
	if err := unix.Unmount(d.dir, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", d.dir, err)
	}
	return d.removeImage()
}

func (d *Disk) removeImage() error {
	if err := os.Remove(d.image); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a disk: %w", err)
	}
	return nil
}

// Flip turns one bit on the disk: the lowest one of the first byte of a pattern, which
// must be there once. What the file system has in memory stays as it is.
func (d *Disk) Flip(pattern []byte) error {
	mounted, err := os.Open(d.dir)
	if err != nil {
		return fmt.Errorf("flip a bit: %w", err)
	}
	defer mounted.Close()
	if err := unix.Syncfs(int(mounted.Fd())); err != nil {
		return fmt.Errorf("write all to the disk: %w", err)
	}
	image, err := os.OpenFile(d.image, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("flip a bit: %w", err)
	}
	defer image.Close()
	at, err := find(image, pattern)
	if err != nil {
		return err
	}
	// The loop device reads through the pages of this file, so it sees this at once.
	if _, err := image.WriteAt([]byte{pattern[0] ^ 1}, at); err != nil {
		return fmt.Errorf("flip a bit: %w", err)
	}
	if err := image.Sync(); err != nil {
		return fmt.Errorf("flip a bit: %w", err)
	}
	return nil
}

// find is where in a file a pattern is, which must be there once.
func find(image *os.File, pattern []byte) (int64, error) {
	content, err := os.ReadFile(image.Name())
	if err != nil {
		return 0, fmt.Errorf("read a disk: %w", err)
	}
	if n := bytes.Count(content, pattern); n != 1 {
		return 0, fmt.Errorf("the content whose bit is to flip is %d times on the disk", n)
	}
	return int64(bytes.Index(content, pattern)), nil
}
