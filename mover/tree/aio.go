package tree

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxSmallFiles is how many small files a worker has open and reads at once.
	maxSmallFiles = 32
	// smallFilesBuffer is the size of the buffer that they share.
	smallFilesBuffer = 256 << 10
	// maxSmallFile is the largest file that is read in this way.
	maxSmallFile = 64 << 10
)

// aio reads several files that are opened past the page cache with one call, so that the disk gets
// all their positions together: it can merge neighbours into one request. It uses the kernel's
// interface of 2002 and not io_uring, which most container runtimes forbid.
type aio struct {
	context uintptr
	control [maxSmallFiles]iocb
	order   [maxSmallFiles]*iocb
	events  [maxSmallFiles]ioEvent
	buffer  []byte
	// queued and used are the number of files of the next call, and how much of the buffer they
	// take.
	queued, used int
}

// iocb is struct iocb of linux/aio_abi.h. Fields without a name are 0: a read, from the start of
// the file.
type iocb struct {
	data   uint64
	_      [3]uint32
	fd     uint32
	buffer uint64
	length uint64
	_      [3]uint64
}

// ioEvent is struct io_event of linux/aio_abi.h.
type ioEvent struct {
	data, object uint64
	result       int64
	_            int64
}

// newAIO returns an error if the kernel has no such reads, or allows no more of them.
func newAIO() (*aio, error) {
	a := &aio{buffer: AlignedBuffer(smallFilesBuffer)}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, maxSmallFiles, uintptr(unsafe.Pointer(&a.context)), 0); errno != 0 {
		return nil, errno
	}
	return a, nil
}

func (a *aio) close() {
	if a != nil {
		_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, a.context, 0, 0)
		a.context = 0
	}
}

// hasRoom reports whether there is room for a file of so many bytes.
func (a *aio) hasRoom(size uint64) bool {
	return a.queued < maxSmallFiles && a.used+int(wholeBlocks(size)) <= smallFilesBuffer
}

func wholeBlocks(size uint64) uint64 { return (size + DirectAlignment - 1) &^ (DirectAlignment - 1) }

// add adds a whole file to the next call, and returns its number there.
func (a *aio) add(fd int, size uint64) int {
	n, length := a.queued, wholeBlocks(size)
	a.control[n] = iocb{
		data: uint64(n), fd: uint32(fd), length: length,
		buffer: uint64(uintptr(unsafe.Pointer(&a.buffer[a.used]))),
	}
	a.order[n] = &a.control[n]
	a.queued++
	a.used += int(length)
	return n
}

// read reads all files that were added, and returns the content of each, nil if its read failed.
// The contents are valid until the next call.
func (a *aio) read() (contents [maxSmallFiles][]byte) {
	asked := a.queued
	a.queued, a.used = 0, 0
	sent := 0
	for sent < asked {
		n, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, a.context, uintptr(asked-sent), uintptr(unsafe.Pointer(&a.order[sent])))
		if errno != 0 || n == 0 {
			break // Its caller reads the rest one by one.
		}
		sent += int(n)
	}
	start := uint64(uintptr(unsafe.Pointer(&a.buffer[0])))
	for got := 0; got < sent; {
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, a.context, uintptr(sent-got), uintptr(sent-got),
			uintptr(unsafe.Pointer(&a.events[0])), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			// Closing waits for reads that still write to the buffer; from now on files are read
			// one by one.
			a.close()
			return [maxSmallFiles][]byte{}
		}
		for _, event := range a.events[:n] {
			if event.result >= 0 {
				from := a.control[event.data].buffer - start
				contents[event.data] = a.buffer[from : from+uint64(event.result)]
			}
		}
		got += int(n)
	}
	return contents
}
