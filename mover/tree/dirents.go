package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// dir is an open directory, shared by the walk and by workers; the last of them
// closes it.
type dir struct {
	fd   int
	path string
	refs atomic.Int32
}

func newDir(fd int, path string) *dir {
	d := &dir{fd: fd, path: path}
	d.refs.Store(1)
	return d
}

func (d *dir) retain() { d.refs.Add(1) }

func (d *dir) release() {
	if d.refs.Add(-1) == 0 {
		_ = unix.Close(d.fd)
	}
}

// join is the path of a name in the directory.
func (d *dir) join(name string) string {
	if d.path == "" {
		return name
	}
	if name == "" {
		return d.path
	}
	return d.path + "/" + name
}

// openDirAt opens a directory without following a symbolic link.
func openDirAt(parent int, name string) (fd int, err error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	return openAt(parent, name, flags)
}

// openAt opens a name without touching its access time, where that is allowed.
func openAt(parent int, name string, flags int) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(parent, name, flags|unix.O_NOATIME, 0)
		if errors.Is(err, unix.EPERM) {
			fd, err = unix.Openat(parent, name, flags, 0)
		}
		return err
	})
	return fd, err
}

// Offsets in a struct linux_dirent64: inode, offset, length of the record, type, name.
const (
	direntLength = 16
	direntType   = 18
	direntName   = 19
)

// names gives the names in a directory in the order of the file system, each followed
// by a NUL and its type as DT_*.
func names(d *dir) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		buffer := make([]byte, 32<<10)
		for {
			var n int
			err := retry(func() (err error) {
				n, err = unix.Getdents(d.fd, buffer)
				return err
			})
			if err != nil {
				yield("", fmt.Errorf("read directory %q: %w", d.path, err))
				return
			}
			if n == 0 {
				return
			}
			for rest := buffer[:n]; len(rest) > direntName; {
				length := int(binary.NativeEndian.Uint16(rest[direntLength:]))
				text, _, _ := bytes.Cut(rest[direntName:length], []byte{0})
				name := slices.Clip(text)
				kind := rest[direntType]
				rest = rest[length:]
				if string(name) == "." || string(name) == ".." {
					continue
				}
				if !yield(string(append(name, 0, kind)), nil) {
					return
				}
			}
		}
	}
}
