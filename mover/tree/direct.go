package tree

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// aligned is what places, lengths and addresses of reads past the page cache are multiples
// of: at least what disks demand.
const aligned = 4 << 10

// bypass has a file read past the page cache from now on, where its file system is known to
// do so: then every byte comes from the disk, and what pods of the node have in memory
// stays there.
func (f *openedFile) bypass() {
	system, err := systemOf(f.fd)
	if err != nil || system != unix.EXT4_SUPER_MAGIC && system != unix.XFS_SUPER_MAGIC {
		return
	}
	if _, err := unix.FcntlInt(uintptr(f.fd), unix.F_SETFL, unix.O_DIRECT); err == nil {
		f.direct.Store(true)
	}
}

// through has a file read through the page cache again: its disk takes nothing else.
func (f *openedFile) through() {
	_, _ = unix.FcntlInt(uintptr(f.fd), unix.F_SETFL, 0)
	f.direct.Store(false)
}

// alignedBuffer returns a buffer whose address is aligned.
func alignedBuffer(n int) []byte {
	whole := make([]byte, n+aligned)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(whole)))) & (aligned - 1)
	return whole[skip : skip+n]
}

// readTo reads until the buffer has n bytes or the file ends. With direct the buffer is
// aligned and has room for a whole block behind them.
func readTo(fd int, b []byte, n int, at int64, direct bool) (int, error) {
	if !direct {
		return readFull(fd, b[:n], at)
	}
	whole := (n + aligned - 1) &^ (aligned - 1)
	read := 0
	for read < n {
		var got int
		err := retry(func() (err error) {
			got, err = unix.Pread(fd, b[read:whole], at+int64(read))
			return err
		})
		if err != nil {
			return min(read, n), &readError{at: at + int64(read), err: err}
		}
		read += got
		if got == 0 || got%aligned != 0 {
			break // The file ends here: nothing can be read from within a block.
		}
	}
	return min(read, n), nil
}
