// Package places bounds how many connections are served at once, in all and from one source address. Whoever comes always gets a place, and
// the oldest loses its own: who is served within moments is not kept out by those who only wait, however many sources they have.
package places

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Places are those that are taken now. They are safe for concurrent use.
type Places struct {
	total, each int

	mu    sync.Mutex
	taken []*place // the oldest first
}

type place struct {
	source netip.Addr
	conn   net.Conn
}

// New has so many places, and so many of them for each source.
func New(total, each int) *Places { return &Places{total: total, each: each} }

// Take gives a TCP connection a place, and returns what gives it back. Where there is none left, the oldest connection is closed: of the
// same source if that has all of its own.
func (p *Places) Take(conn net.Conn) (leave func()) {
	own := &place{sourceOf(conn.RemoteAddr()), conn}
	p.mu.Lock()
	defer p.mu.Unlock()
	same := 0
	for _, other := range p.taken {
		if other.source == own.source {
			same++
		}
	}
	victim := -1
	if same >= p.each {
		victim = slices.IndexFunc(p.taken, func(other *place) bool { return other.source == own.source })
	} else if len(p.taken) >= p.total {
		victim = 0
	}
	if victim >= 0 {
		_ = p.taken[victim].conn.Close()
		p.taken = slices.Delete(p.taken, victim, victim+1)
	}
	p.taken = append(p.taken, own)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken = slices.DeleteFunc(p.taken, func(other *place) bool { return other == own })
	}
}

// sourceOf is an address of IPv4, or the first one of a network of IPv6, of which one machine has all.
func sourceOf(from net.Addr) netip.Addr {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	source := tcp.AddrPort().Addr().Unmap().WithZone("")
	if network, err := source.Prefix(64); err == nil && source.Is6() {
		return network.Addr()
	}
	return source
}
