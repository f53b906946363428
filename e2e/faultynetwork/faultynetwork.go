// Package faultynetwork is a network that tests cut, slow down and mend.
package faultynetwork

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Line is the network between a program and a server. It is safe for concurrent use.
type Line struct {
	listener net.Listener
	server   string

	mu   sync.Mutex
	cond *sync.Cond
	// cut: connections are refused. frozen: they stay open and carry nothing.
	cut, frozen bool
	// late is how much later than it was sent each answer of the server comes.
	late time.Duration
	open map[net.Conn]struct{}
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
		go l.carry(caller, server, false)
		l.carry(server, caller, true)
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

// carry passes on what comes from an end until one of the two is closed; answers: it comes from the server.
func (l *Line) carry(from, to net.Conn, answers bool) {
	defer to.Close()
	type piece struct {
		content []byte
		due     time.Time
	}
	waiting, ended := make(chan piece, 4096), make(chan struct{})
	defer close(ended)
	go func() {
		defer close(waiting)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			select {
			case waiting <- piece{buffer[:n], time.Now().Add(l.lateness(answers))}:
			case <-ended:
				return
			}
		}
	}()
	for p := range waiting {
		time.Sleep(time.Until(p.due))
		l.mu.Lock()
		for l.frozen {
			l.cond.Wait()
		}
		l.mu.Unlock()
		if _, err := to.Write(p.content); err != nil {
			return
		}
	}
}

func (l *Line) lateness(answers bool) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answers {
		return l.late
	}
	return 0
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
	l.cut, l.frozen, l.late = false, false, 0
	l.cond.Broadcast()
}

// Freeze lets connections stay open and carry nothing.
func (l *Line) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = true
}

// Late has each answer of the server come so much later.
func (l *Line) Late(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = by
}
