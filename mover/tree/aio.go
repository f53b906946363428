package tree

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// togetherAtMost is how many small files a worker has open and reads at once.
	togetherAtMost = 32
	// togetherBytes is the buffer that they share.
	togetherBytes = 256 << 10
	// togetherFile is the largest file that is read so.
	togetherFile = 64 << 10
)

// aio reads several files that are opened past the page cache with one call, so that the
// disk gets their places together: it merges what lies side by side, and is told once.
// That is the kernel's own interface of 2002 and not io_uring, which most container
// runtimes forbid.
type aio struct {
	context uintptr
	control [togetherAtMost]iocb
	order   [togetherAtMost]*iocb
	events  [togetherAtMost]ioEvent
	buffer  []byte
	// asked and used are what the next call reads, and how much of the buffer it takes.
	asked, used int
}

// iocb is struct iocb of linux/aio_abi.h. What is not named is 0: a read, from the start.
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

// newAIO fails where the kernel has no such reads, or no more of them.
func newAIO() (*aio, error) {
	a := &aio{buffer: alignedBuffer(togetherBytes)}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, togetherAtMost, uintptr(unsafe.Pointer(&a.context)), 0); errno != 0 {
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

// has says whether there is room for a file of so many bytes.
func (a *aio) has(size uint64) bool {
	return a.asked < togetherAtMost && a.used+int(wholeBlocks(size)) <= togetherBytes
}

func wholeBlocks(size uint64) uint64 { return (size + aligned - 1) &^ (aligned - 1) }

// ask adds a whole file to the next call, and returns its number there.
func (a *aio) ask(fd int, size uint64) int {
	n, length := a.asked, wholeBlocks(size)
	a.control[n] = iocb{
		data: uint64(n), fd: uint32(fd), length: length,
		buffer: uint64(uintptr(unsafe.Pointer(&a.buffer[a.used]))),
	}
	a.order[n] = &a.control[n]
	a.asked++
	a.used += int(length)
	return n
}

// read reads all that was asked for, and tells of each file what was read, or nil where
// that failed. What it returns is good until the next call.
func (a *aio) read() (contents [togetherAtMost][]byte) {
	asked := a.asked
	a.asked, a.used = 0, 0
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
			// The end waits for what is still being written to the buffer; from now on all is read alone.
			a.close()
			return [togetherAtMost][]byte{}
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
