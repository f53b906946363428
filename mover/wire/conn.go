// Package wire is the connection between the two movers of a move. conn.go has the frames and
// exchanges (Conn, Call, Incoming), connect.go makes the connection (Connector at the sender,
// ServeConnections at the receiver), operations.go has the operations that the sender may request.
// Read conn.go first.
//
// It is TLS 1.3 over a connection that the sender dials, or that the controller, which sees only
// what is encrypted, joins from one connection to each mover. The sender is the TLS client in both
// cases. There is one connection at a time; a newer one replaces the older one, which may be dead
// without either end knowing.
//
// An exchange is a request of the sender, data in both directions, each ended by a frame, and a
// response. Nothing counts as transferred before its response has come: the end of the connection
// means only that it was lost. An idle end sends keepalives, and an end that receives nothing for
// long considers the connection lost.
package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// FrameKind is the type of a frame.
type FrameKind byte

// The kinds of frames.
const (
	FrameRequest   FrameKind = 'Q'
	FrameData      FrameKind = 'D'
	FrameEnd       FrameKind = 'E'
	FrameProgress  FrameKind = 'P'
	FrameResponse  FrameKind = 'A'
	frameKeepalive FrameKind = '.'
)

const (
	// MaxPayload is the longest payload of a frame in bytes.
	MaxPayload = 256<<10 + 64
	headLength = 5
	// tlsRecord is the size of the read buffer: TLS reads at most one record at once, and larger
	// payloads are read without the buffer.
	tlsRecord = 16 << 10
	// maxCopied is the longest part of a payload that is copied behind the frame's head, so that
	// both are one write.
	maxCopied = 8 << 10
)

// ErrLost means that the connection broke, or that the other end violated the protocol. The
// exchange may or may not have had its effect.
var ErrLost = errors.New("the connection between the movers was lost")

// Timing says how long an end may be idle.
type Timing struct {
	// KeepaliveInterval is the time without a sent frame after which an end sends a keepalive;
	// ReadTimeout is the time without a received frame after which the connection is lost.
	KeepaliveInterval, ReadTimeout time.Duration
}

// DefaultTiming suits networks between clusters.
var DefaultTiming = Timing{KeepaliveInterval: 10 * time.Second, ReadTimeout: 45 * time.Second}

// Conn sends and receives frames. Close must be called in the end.
type Conn struct {
	raw net.Conn
	// buffered is the connection below TLS, if it can buffer writes; else nil.
	buffered *BufferedConn
	timing   Timing
	// pace, if not nil, is called before so many bytes of data are sent, and may block.
	pace func(n int)

	reader  *bufio.Reader
	payload []byte

	mutex sync.Mutex
	// frame is the buffer of the frame that is being sent.
	frame []byte
	// sent says that a frame was sent since the last tick of the keepalives.
	sent bool

	closeOnce sync.Once
	done      chan struct{}
	timedOut  atomic.Bool
}

// NewConn makes a Conn of a connection whose TLS handshake is complete. TLS over a BufferedConn is
// faster. Pace, if not nil, is called before data is sent, and may block. Close must be called in
// the end.
func NewConn(raw net.Conn, timing Timing, pace func(n int)) *Conn {
	c := &Conn{raw: raw, timing: timing, pace: pace, reader: bufio.NewReaderSize(raw, tlsRecord), done: make(chan struct{})}
	if over, ok := raw.(interface{ NetConn() net.Conn }); ok {
		c.buffered, _ = over.NetConn().(*BufferedConn)
	}
	go c.sendKeepalives()
	return c
}

// Close ends the connection; calls that wait return ErrLost.
func (c *Conn) Close() {
	c.closeOnce.Do(func() {
		close(c.done)
		if c.buffered != nil {
			c.buffered.abort()
		}
		_ = c.raw.Close()
	})
}

// Done returns a channel that is closed when Close was called.
func (c *Conn) Done() <-chan struct{} { return c.done }

// TimedOut reports whether the connection was lost because nothing came for longer than
// ReadTimeout.
func (c *Conn) TimedOut() bool { return c.timedOut.Load() }

// RemoteAddr is the address of the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// Send sends a frame. It is safe for concurrent use; payload may be used again when it returns.
func (c *Conn) Send(kind FrameKind, payload []byte) error {
	n := len(payload)
	if n > MaxPayload {
		return fmt.Errorf("send a frame of %d bytes: %w", n, ErrLost)
	}
	if c.pace != nil && kind == FrameData {
		c.pace(n)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.sent = true
	c.frame = append(c.frame[:0], byte(kind), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(c.frame[1:], uint32(n))
	if err := c.write(payload); err != nil {
		// After half a frame the other end would take the next one for the rest.
		c.Close()
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}

// write writes the head of a frame, which is in c.frame, and its payload.
func (c *Conn) write(payload []byte) error {
	if c.buffered == nil || len(payload) <= maxCopied {
		c.frame = append(c.frame, payload...)
		_, err := c.raw.Write(c.frame)
		return err
	}
	c.buffered.cork()
	_, err := c.raw.Write(c.frame)
	if err == nil {
		_, err = c.raw.Write(payload)
	}
	return errors.Join(err, c.buffered.uncork())
}

// Receive waits for the next frame. Its payload is valid until the next call. Only one goroutine
// may receive.
func (c *Conn) Receive() (FrameKind, []byte, error) {
	for {
		kind, payload, err := c.receive()
		if err != nil {
			c.timedOut.Store(errors.Is(err, os.ErrDeadlineExceeded))
			c.Close()
			return 0, nil, fmt.Errorf("%w: %w", ErrLost, err)
		}
		if kind != frameKeepalive {
			return kind, payload, nil
		}
	}
}

func (c *Conn) receive() (FrameKind, []byte, error) {
	if err := c.raw.SetReadDeadline(time.Now().Add(c.timing.ReadTimeout)); err != nil {
		return 0, nil, err
	}
	var head [headLength]byte
	if _, err := io.ReadFull(c.reader, head[:]); err != nil {
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
	_, err := io.ReadFull(c.reader, payload)
	return FrameKind(head[0]), payload, err
}

// sendKeepalives sends a keepalive whenever nothing else was sent for an interval.
func (c *Conn) sendKeepalives() {
	ticker := time.NewTicker(c.timing.KeepaliveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-ticker.C:
		}
		// An end that is writing a long frame is not idle.
		if !c.mutex.TryLock() {
			continue
		}
		sent := c.sent
		c.sent = false
		c.mutex.Unlock()
		if !sent && c.Send(frameKeepalive, nil) == nil {
			c.mutex.Lock()
			c.sent = false
			c.mutex.Unlock()
		}
	}
}

// RemoteError is an error at the receiver, as the receiver has reported it.
type RemoteError struct{ Sentence string }

func (e *RemoteError) Error() string { return e.Sentence }

// request is the payload of a FrameRequest.
type request struct {
	Op   string          `json:"op"`
	Body json.RawMessage `json:"body,omitempty"`
}

// response is the payload of a FrameResponse.
type response struct {
	Error  string          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Call is an exchange at the sender. Functions may be nil if they have nothing to do.
type Call struct {
	Op   string
	Body any
	// Send sends the data, and returns when there is no more. After an error of its own the
	// connection is closed: the receiver must not take a part for all.
	Send func(send func(payload []byte) error) error
	// Data processes data of the receiver. End is called once when no more comes: after its end,
	// after a response without it, or because the connection was lost. Send may wait for that.
	Data func(payload []byte) error
	End  func()
	// Progress processes a progress report of the receiver.
	Progress func(payload []byte)
	// Result is what the response is decoded into, unless it is nil.
	Result any
}

// ErrAnswered makes Send return when the receiver has responded already.
var ErrAnswered = errors.New("the receiver wants no more")

// Do makes an exchange and returns when the response has come. A *RemoteError is an error that the
// receiver reported, and the connection can be used on. After any other error it is closed.
func (c *Conn) Do(call Call) error {
	body, err := json.Marshal(call.Body)
	if err != nil {
		return fmt.Errorf("encode request %s: %w", call.Op, err)
	}
	encoded, err := json.Marshal(request{Op: call.Op, Body: body})
	if err != nil {
		return fmt.Errorf("encode request %s: %w", call.Op, err)
	}
	if err := c.Send(FrameRequest, encoded); err != nil {
		return err
	}
	answered := make(chan struct{})
	sent := make(chan error, 1)
	go func() { sent <- c.sendAll(call.Send, answered) }()
	end := sync.OnceFunc(func() {
		if call.End != nil {
			call.End()
		}
	})
	reply, err := c.awaitResponse(call, end)
	end()
	if err != nil {
		c.Close()
		// If reading the data failed here, that is the reason, and the lost connection only follows
		// from it.
		if sendErr := <-sent; sendErr != nil && !errors.Is(sendErr, ErrLost) {
			return sendErr
		}
		return err
	}
	close(answered)
	if err := <-sent; err != nil {
		return err
	}
	if reply.Error != "" {
		return &RemoteError{Sentence: reply.Error}
	}
	if call.Result != nil {
		if err := json.Unmarshal(reply.Result, call.Result); err != nil {
			c.Close()
			return fmt.Errorf("decode the receiver's answer to %s: %w", call.Op, err)
		}
	}
	return nil
}

// sendAll sends the data of a call and its end.
func (c *Conn) sendAll(send func(func([]byte) error) error, answered <-chan struct{}) error {
	if send != nil {
		err := send(func(payload []byte) error {
			select {
			case <-answered:
				return ErrAnswered
			default:
				return c.Send(FrameData, payload)
			}
		})
		if err != nil && !errors.Is(err, ErrAnswered) {
			c.Close()
			return err
		}
	}
	return c.Send(FrameEnd, nil)
}

// awaitResponse receives frames until the response.
func (c *Conn) awaitResponse(call Call, end func()) (reply response, err error) {
	for {
		kind, payload, err := c.Receive()
		if err != nil {
			return reply, err
		}
		switch kind {
		case FrameData:
			if call.Data == nil {
				return reply, fmt.Errorf("%w: data that nobody asked for", ErrLost)
			}
			if err := call.Data(payload); err != nil {
				return reply, err
			}
		case FrameEnd:
			end()
		case FrameProgress:
			if call.Progress != nil {
				call.Progress(payload)
			}
		case FrameResponse:
			if err := json.Unmarshal(payload, &reply); err != nil {
				return reply, fmt.Errorf("%w: decode an answer: %w", ErrLost, err)
			}
			return reply, nil
		default:
			return reply, fmt.Errorf("%w: a frame of kind %q", ErrLost, kind)
		}
	}
}

// Incoming is an exchange at the receiver.
type Incoming struct {
	Op    string
	Body  json.RawMessage
	conn  *Conn
	ended bool
}

// Decode decodes the body of the request.
func (in *Incoming) Decode(into any) error {
	if err := json.Unmarshal(in.Body, into); err != nil {
		return fmt.Errorf("decode the sender's request %s: %w", in.Op, err)
	}
	return nil
}

// Next returns the next data of the sender, and io.EOF at its end.
func (in *Incoming) Next() ([]byte, error) {
	if in.ended {
		return nil, io.EOF
	}
	kind, payload, err := in.conn.Receive()
	if err != nil {
		return nil, err
	}
	switch kind {
	case FrameData:
		return payload, nil
	case FrameEnd:
		in.ended = true
		return nil, io.EOF
	default:
		in.conn.Close()
		return nil, fmt.Errorf("%w: a frame of kind %q among data", ErrLost, kind)
	}
}

// Send sends data to the sender.
func (in *Incoming) Send(payload []byte) error { return in.conn.Send(FrameData, payload) }

// SendEnd says that no more data follows.
func (in *Incoming) SendEnd() error { return in.conn.Send(FrameEnd, nil) }

// Progress reports the progress of the exchange to the sender.
func (in *Incoming) Progress(progress any) error {
	encoded, err := json.Marshal(progress)
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	return in.conn.Send(FrameProgress, encoded)
}

// Serve handles exchanges one after another until the connection ends, and returns its error. The
// sender gets an error of handle as a RemoteError; ErrLost ends the connection instead. Data that
// handle has not read is dropped.
func (c *Conn) Serve(handle func(in *Incoming) (result any, err error)) error {
	defer c.Close()
	for {
		kind, payload, err := c.Receive()
		if err != nil {
			return err
		}
		var asked request
		if kind != FrameRequest || json.Unmarshal(payload, &asked) != nil {
			return fmt.Errorf("%w: a frame of kind %q is no request", ErrLost, kind)
		}
		in := &Incoming{Op: asked.Op, Body: asked.Body, conn: c}
		result, err := handle(in)
		if errors.Is(err, ErrLost) {
			return err
		}
		var reply response
		if err != nil {
			reply.Error = err.Error()
		} else if reply.Result, err = json.Marshal(result); err != nil {
			return fmt.Errorf("encode answer to %s: %w", asked.Op, err)
		}
		encoded, err := json.Marshal(reply)
		if err != nil {
			return fmt.Errorf("encode answer to %s: %w", asked.Op, err)
		}
		if err := c.Send(FrameResponse, encoded); err != nil {
			return err
		}
		for !in.ended {
			if _, err := in.Next(); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
	}
}

// bufferSize is the most bytes that a BufferedConn reads or writes at once.
const bufferSize = 256 << 10

// BufferedConn is a connection below TLS, which by itself reads and writes one record of 16 KiB at
// a time. It reads more at once, and sends what is written between cork and uncork together.
type BufferedConn struct {
	net.Conn
	reader *bufio.Reader

	mutex    sync.Mutex
	corked   bool
	buffer   []byte
	flushing atomic.Bool
}

// NewBufferedConn makes one of a connection that nobody has read from yet.
func NewBufferedConn(raw net.Conn) *BufferedConn {
	return &BufferedConn{Conn: raw, reader: bufio.NewReaderSize(raw, bufferSize)}
}

// Read implements net.Conn.
func (g *BufferedConn) Read(b []byte) (int, error) { return g.reader.Read(b) }

// Write implements net.Conn. While it is corked, an error in writing the buffer is returned by a
// later call.
func (g *BufferedConn) Write(b []byte) (int, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if !g.corked {
		return g.Conn.Write(b)
	}
	if len(g.buffer)+len(b) > cap(g.buffer) {
		if err := g.flush(); err != nil {
			return 0, err
		}
	}
	g.buffer = append(g.buffer, b...)
	return len(b), nil
}

// cork starts to buffer writes. Until uncork nobody may wait for an answer to them, as a handshake
// would.
func (g *BufferedConn) cork() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.buffer == nil {
		g.buffer = make([]byte, 0, bufferSize+bufferSize/8)
	}
	g.corked = true
}

// uncork writes what was buffered, and ends the buffering.
func (g *BufferedConn) uncork() error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.corked = false
	return g.flush()
}

// flush writes what is buffered. The caller holds the mutex.
func (g *BufferedConn) flush() error {
	if len(g.buffer) == 0 {
		return nil
	}
	g.flushing.Store(true)
	_, err := g.Conn.Write(g.buffer)
	g.flushing.Store(false)
	g.buffer = g.buffer[:0]
	return err
}

// abort closes the connection if a write to it is blocked: TLS would wait for that write before it
// closes.
func (g *BufferedConn) abort() {
	if g.flushing.Load() {
		_ = g.Conn.Close()
	}
}

// Pacer limits the rate of sending.
type Pacer struct{ limiter *rate.Limiter }

// NewPacer makes a pacer without a limit.
func NewPacer() *Pacer { return &Pacer{limiter: rate.NewLimiter(rate.Inf, MaxPayload)} }

// Set sets the rate in bytes a second; 0: no limit.
func (p *Pacer) Set(bytesPerSecond int64) {
	limit := rate.Inf
	if bytesPerSecond > 0 {
		limit = rate.Limit(bytesPerSecond)
	}
	p.limiter.SetLimit(limit)
}

// Wait blocks until n more bytes may be sent; n is at most MaxPayload.
func (p *Pacer) Wait(n int) { _ = p.limiter.WaitN(context.Background(), n) }
