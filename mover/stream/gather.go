package stream

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
)

// gathered is how many bytes a Gathered connection reads and writes at once at most.
const gathered = 256 << 10

// Gathered is a connection below TLS, which by itself reads and writes a record of 16 KiB
// at a time. It reads more at once, and what is written between hold and release goes out
// together.
type Gathered struct {
	net.Conn
	reading *bufio.Reader

	mutex   sync.Mutex
	holding bool
	held    []byte
	writing atomic.Bool
}

// Gather makes one of a connection that nobody has read from yet.
func Gather(raw net.Conn) *Gathered {
	return &Gathered{Conn: raw, reading: bufio.NewReaderSize(raw, gathered)}
}

// Read implements net.Conn.
func (g *Gathered) Read(b []byte) (int, error) { return g.reading.Read(b) }

// Write implements net.Conn. An error of what is held comes from a later call.
func (g *Gathered) Write(b []byte) (int, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if !g.holding {
		return g.Conn.Write(b)
	}
	if len(g.held)+len(b) > cap(g.held) {
		if err := g.flush(); err != nil {
			return 0, err
		}
	}
	g.held = append(g.held, b...)
	return len(b), nil
}

// hold begins to keep what is written. Nobody may wait for an answer to that before release,
// as a handshake would.
func (g *Gathered) hold() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.held == nil {
		g.held = make([]byte, 0, gathered+gathered/8)
	}
	g.holding = true
}

// release writes what was kept.
func (g *Gathered) release() error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.holding = false
	return g.flush()
}

// flush writes what is held, for who has the lock.
func (g *Gathered) flush() error {
	if len(g.held) == 0 {
		return nil
	}
	g.writing.Store(true)
	_, err := g.Conn.Write(g.held)
	g.writing.Store(false)
	g.held = g.held[:0]
	return err
}

// cut ends the connection if somebody writes to it: TLS would wait for that before it
// says goodbye.
func (g *Gathered) cut() {
	if g.writing.Load() {
		_ = g.Conn.Close()
	}
}
