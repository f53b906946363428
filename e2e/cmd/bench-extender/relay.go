package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// relay passes connections on to a server, and counts them.
type relay struct {
	listener net.Listener
	server   string
	opened   atomic.Int64
	running  sync.WaitGroup

	mu    sync.Mutex
	ended bool
	open  []net.Conn
}

func newRelay(ctx context.Context, url string) (*relay, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	r := &relay{listener: listener, server: strings.TrimPrefix(url, "http://")}
	r.running.Go(func() {
		for {
			caller, err := listener.Accept()
			if err != nil {
				return
			}
			r.opened.Add(1)
			r.running.Go(func() { r.pass(ctx, caller) })
		}
	})
	return r, nil
}

func (r *relay) url() string { return "http://" + r.listener.Addr().String() }

// pass copies both ways until both ends are done, or the relay is closed.
func (r *relay) pass(ctx context.Context, caller net.Conn) {
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.server)
	if err != nil {
		_ = caller.Close()
		return
	}
	if !r.keep(caller, server) {
		return
	}
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{caller, server}, {server, caller}} {
		ways.Go(func() {
			// An end that is gone is noticed by the other.
			_, _ = io.Copy(way[1], way[0])
			_ = way[1].Close()
		})
	}
	ways.Wait()
}

// keep notes connections for close; false if that has been called.
func (r *relay) keep(connections ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, connections...)
	if r.ended {
		closeAll(r.open)
	}
	return !r.ended
}

func (r *relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.ended = true
	closeAll(r.open)
	r.mu.Unlock()
	r.running.Wait()
}

func closeAll(connections []net.Conn) {
	for _, c := range connections {
		_ = c.Close()
	}
}
