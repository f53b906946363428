// Package faultynetwork is a network that tests cut and mend.
package faultynetwork

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Line is the network between a program and a server. It is safe for concurrent use.
type Line struct {
	listener net.Listener
	server   string

	mu   sync.Mutex
	cond *sync.Cond
	// cut: connections are refused. frozen: they stay open and carry nothing.
	cut, frozen bool
	open        map[net.Conn]struct{}
}

// New returns a Line to a server, given as host:port, until ctx ends.
func New(ctx context.Context, server string) (*Line, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	l := &Line{listener: listener, server: server, open: map[net.Conn]struct{}{}}
	l.cond = sync.NewCond(&l.mu)
	context.AfterFunc(ctx, func() {
		_ = listener.Close()
		l.HangUp(true)
	})
	go func() {
		for {
			caller, err := listener.Accept()
			if err != nil {
				return
			}
			go l.connect(ctx, caller)
		}
	}()
	return l, nil
}

// URL is where the server is reached through the Line.
func (l *Line) URL() string { return "https://" + l.listener.Addr().String() }

func (l *Line) connect(ctx context.Context, caller net.Conn) {
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.server)
	if err != nil {
		_ = caller.Close()
		return
	}
	if l.hold(caller, server) {
		go l.carry(caller, server)
		l.carry(server, caller)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range []net.Conn{caller, server} {
		_ = end.Close()
		delete(l.open, end)
	}
}

func (l *Line) hold(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range ends {
		l.open[end] = struct{}{}
	}
	return !l.cut
}

// carry passes on what comes from an end until one of the two is closed.
func (l *Line) carry(from, to net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		for l.frozen {
			l.cond.Wait()
		}
		l.mu.Unlock()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// HangUp ends all connections, and refuses new ones if cut.
func (l *Line) HangUp(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for end := range l.open {
		_ = end.Close()
	}
}

// Mend undoes everything.
func (l *Line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.frozen = false, false
	l.cond.Broadcast()
}

// Freeze lets connections stay open and carry nothing.
func (l *Line) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = true
}
