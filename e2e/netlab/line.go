package netlab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lineDevice is the name of a line's end at each of the two namespaces.
const lineDevice = "line0"

// line joins two namespaces by a line on which each packet takes a while, and some get lost, until ctx ends. The kernel has no such
// thing everywhere: it is two TUN devices and this program between them.
func line(ctx context.Context, a, b *Namespace, delay time.Duration, loss float64) error {
	var ends [2]*os.File
	for i, n := range []*Namespace{a, b} {
		err := n.In(func() (err error) {
			ends[i], err = openLine()
			return err
		})
		if err == nil {
			err = n.SetLink(lineDevice, true)
		}
		if err != nil {
			return fmt.Errorf("make a line at %s: %w", n.Name, err)
		}
	}
	context.AfterFunc(ctx, func() { _ = errors.Join(ends[0].Close(), ends[1].Close()) })
	go carry(ends[0], ends[1], delay, loss)
	go carry(ends[1], ends[0], delay, loss)
	return nil
}

// openLine makes a TUN device that is given packets no larger than its MTU: each is lost or not by itself.
func openLine() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(lineDevice)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), lineDevice), nil
}

func carry(from, to *os.File, delay time.Duration, loss float64) {
	type late struct {
		due    time.Time
		packet []byte
	}
	under := make(chan late, 1<<14)
	defer close(under)
	go func() {
		for l := range under {
			time.Sleep(time.Until(l.due))
			_, _ = to.Write(l.packet)
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if rand.Float64() < loss {
			continue
		}
		select {
		case under <- late{time.Now().Add(delay), append([]byte(nil), buffer[:n]...)}:
		default: // the line is full
		}
	}
}
