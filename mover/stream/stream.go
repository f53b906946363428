// Package stream is what the two movers say to each other over one authenticated
// connection: frames, one exchange at a time, begun by the sender.
//
// An exchange is a request, data in both directions, each ended by a frame, and an
// answer. Nothing counts as transferred before its answer has come: the end of the
// connection means only that it was lost. While an end has nothing to say it says
// so, and an end that hears nothing for long calls the connection lost.
package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is what a frame is.
type Kind byte

// The kinds of frames.
const (
	Request  Kind = 'Q'
	Data     Kind = 'D'
	End      Kind = 'E'
	Progress Kind = 'P'
	Answer   Kind = 'A'
	alive    Kind = '.'
)

const (
	// MaxPayload is the longest payload of a frame in bytes.
	MaxPayload = 256<<10 + 64
	headLength = 5
	// record is how much TLS reads at once: more of a frame goes past the buffer.
	record = 16 << 10
	// short is up to how many bytes what is written is copied to one piece first.
	short = 8 << 10
)

// ErrLost means that the connection broke, or that the other end does not keep to
// the protocol. The exchange may or may not have had its effect.
var ErrLost = errors.New("the connection between the movers was lost")

// Timing says how long silence may last.
type Timing struct {
	// Say is how long an end is silent at most; Hear is after how long of hearing
	// nothing it calls the connection lost.
	Say, Hear time.Duration
}

// DefaultTiming suits networks between clusters.
var DefaultTiming = Timing{Say: 10 * time.Second, Hear: 45 * time.Second}

// Conn sends and receives frames.
type Conn struct {
	raw net.Conn
	// below is what is below TLS, if it can gather what is written.
	below  *Gathered
	timing Timing
	// pace, if not nil, is asked before so many bytes are sent.
	pace func(n int)

	reading *bufio.Reader
	payload []byte

	mutex   sync.Mutex
	writing []byte
	spoke   bool

	closed sync.Once
	done   chan struct{}
	silent atomic.Bool
}

// New makes frames of a connection; of TLS its handshake must have ended. It is faster
// for TLS over a Gathered connection. Pace, if not nil, is called before bytes are sent,
// and may wait. Close must be called in the end.
func New(raw net.Conn, timing Timing, pace func(n int)) *Conn {
	c := &Conn{raw: raw, timing: timing, pace: pace, reading: bufio.NewReaderSize(raw, record), done: make(chan struct{})}
	if over, ok := raw.(interface{ NetConn() net.Conn }); ok {
		c.below, _ = over.NetConn().(*Gathered)
	}
	go c.stayAlive()
	return c
}

// Close ends the connection; calls that wait return ErrLost.
func (c *Conn) Close() {
	c.closed.Do(func() {
		close(c.done)
		if c.below != nil {
			c.below.cut()
		}
		_ = c.raw.Close()
	})
}

// Done is closed when Close was called.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Silent says whether it was lost because nothing was heard for too long.
func (c *Conn) Silent() bool { return c.silent.Load() }

// RemoteAddr is the address of the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// Send sends a frame. It may be called by several goroutines; payload may be used
// again when it returns.
func (c *Conn) Send(kind Kind, payload []byte) error {
	return c.send(kind, payload, nil)
}

// SendTwo sends a frame whose payload is in two parts.
func (c *Conn) SendTwo(kind Kind, head, rest []byte) error {
	return c.send(kind, head, rest)
}

func (c *Conn) send(kind Kind, head, rest []byte) error {
	n := len(head) + len(rest)
	if n > MaxPayload {
		return fmt.Errorf("send a frame of %d bytes: %w", n, ErrLost)
	}
	if c.pace != nil && kind == Data {
		c.pace(n)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.spoke = true
	c.writing = append(c.writing[:0], byte(kind), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(c.writing[1:], uint32(n))
	if err := c.write(head, rest); err != nil {
		// What follows half a frame would be taken for its rest.
		c.Close()
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}

// write writes what is in c.writing and two parts more.
func (c *Conn) write(parts ...[]byte) error {
	long := false
	for _, part := range parts {
		if c.below != nil && len(part) > short {
			long = true
		}
	}
	if !long {
		for _, part := range parts {
			c.writing = append(c.writing, part...)
		}
		_, err := c.raw.Write(c.writing)
		return err
	}
	c.below.hold()
	_, err := c.raw.Write(c.writing)
	for _, part := range parts {
		if err == nil && len(part) > 0 {
			_, err = c.raw.Write(part)
		}
	}
	return errors.Join(err, c.below.release())
}

// Receive waits for the next frame. Its payload is good until the next call. Only
// one goroutine may receive.
func (c *Conn) Receive() (Kind, []byte, error) {
	for {
		kind, payload, err := c.receive()
		if err != nil {
			c.silent.Store(errors.Is(err, os.ErrDeadlineExceeded))
			c.Close()
			return 0, nil, fmt.Errorf("%w: %w", ErrLost, err)
		}
		if kind != alive {
			return kind, payload, nil
		}
	}
}

func (c *Conn) receive() (Kind, []byte, error) {
	if err := c.raw.SetReadDeadline(time.Now().Add(c.timing.Hear)); err != nil {
		return 0, nil, err
	}
	var head [headLength]byte
	if _, err := io.ReadFull(c.reading, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if n > MaxPayload {
		return 0, nil, fmt.Errorf("the other end sent a frame of %d bytes", n)
	}
	if cap(c.payload) < n {
		c.payload = make([]byte, n, MaxPayload)
	}
	payload := c.payload[:n]
	_, err := io.ReadFull(c.reading, payload)
	return Kind(head[0]), payload, err
}

// stayAlive speaks when nobody else does.
func (c *Conn) stayAlive() {
	ticker := time.NewTicker(c.timing.Say)
	defer ticker.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-ticker.C:
		}
		// A frame that is being written for long is no silence of ours.
		if !c.mutex.TryLock() {
			continue
		}
		spoke := c.spoke
		c.spoke = false
		c.mutex.Unlock()
		if !spoke && c.Send(alive, nil) == nil {
			c.mutex.Lock()
			c.spoke = false
			c.mutex.Unlock()
		}
	}
}
