package lane

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
)

// A frame is four bytes, which are its kind and the length of what follows, and then a packet or a tick.
const (
	frameHeader = 4
	kindPacket  = byte(0)
	// kindTick is sent all the time: a byte that says whether the receiver is to send here, because it is heard, by this connection and by
	// WireGuard, and the keys that the sender takes for the receiver's, up to toldKeys.
	kindTick              = byte(1)
	tickHears, tickBeside = byte(1), byte(2)
	toldKeys              = 8
)

// newTick is a tick as a frame.
func newTick(say byte, keys []Key) []byte {
	frame := make([]byte, frameHeader+1, frameHeader+1+toldKeys*len(Key{}))
	frame[frameHeader] = say
	for _, key := range keys[:min(len(keys), toldKeys)] {
		frame = append(frame, key[:]...)
	}
	putHeader(frame, kindTick)
	return frame
}

func readTick(content []byte) (said byte, keys []Key) {
	for key := range slices.Chunk(content[1:], len(Key{})) {
		keys = append(keys, Key(key))
	}
	return content[0], keys
}

func putHeader(frame []byte, kind byte) {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-frameHeader))
	frame[0] = kind
}

// readFrame reads one frame into a buffer of packetLimit bytes.
func readFrame(r io.Reader, buffer []byte) (kind byte, content []byte, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	kind = header[0]
	header[0] = 0
	length := binary.BigEndian.Uint32(header[:])
	switch {
	case kind == kindPacket && length > vnetHeader && length <= packetLimit:
	case kind == kindTick && length%uint32(len(Key{})) == 1 && length <= 1+toldKeys*uint32(len(Key{})):
	default:
		return 0, nil, fmt.Errorf("the other side sent a frame of kind %d with %d bytes, which there is not", kind, length)
	}
	_, err = io.ReadFull(r, buffer[:length])
	return kind, buffer[:length], err
}

// batched is a TCP connection below TLS that hands what is written to the kernel when flush is called, and not a
// record at a time, and reads more than a record at a time. Until batch is called it hands over everything at once.
type batched struct {
	net.Conn
	reader *bufio.Reader

	mu    sync.Mutex
	on    bool
	wrote []byte
}

func newBatched(conn net.Conn) *batched {
	return &batched{Conn: conn, reader: bufio.NewReaderSize(conn, 4*packetLimit)}
}

func (b *batched) Read(p []byte) (int, error) {
	return b.reader.Read(p)
}

func (b *batched) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.on {
		return b.Conn.Write(p)
	}
	b.wrote = append(b.wrote, p...)
	return len(p), nil
}

func (b *batched) batch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on = true
}

func (b *batched) flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.Conn.Write(b.wrote)
	b.wrote = b.wrote[:0]
	return err
}

// Why a connection ends.
var (
	errSilent  = errors.New("the other side was silent")
	errRenewed = errors.New("another connection takes its place, with this gateway's new key")
	errUnknown = errors.New("the other side's key is not, or no longer, one of the keys of a gateway of that cluster")
)
