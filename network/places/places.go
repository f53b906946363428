// Package places bounds how many are served at once from one source address, so that no single one takes the places of all others.
package places

import (
	"net"
	"net/netip"
	"sync"
)

// Sources are the addresses that are served now. They are safe for concurrent use.
type Sources struct {
	each int

	mu    sync.Mutex
	taken map[netip.Addr]int
}

// NewSources has so many places for each source.
func NewSources(each int) *Sources { return &Sources{each: each, taken: map[netip.Addr]int{}} }

// Take takes a place for who is at the other end of a TCP connection, and returns what gives it back; nil: its source has no place left.
func (s *Sources) Take(from net.Addr) (leave func()) {
	source := sourceOf(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[source] >= s.each {
		return nil
	}
	s.taken[source]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.taken[source]--; s.taken[source] == 0 {
			delete(s.taken, source)
		}
	})
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
