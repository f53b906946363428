// Package probe lets nodes know which gateways of their cluster can be used: each node asks each gateway all the time whether it is there
// and which of its lanes are up.
package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/site"
)

const (
	// Port is the UDP port of gateways, for nodes of the own cluster.
	Port = 7474
	// every is how often a node asks, and lost how many answers have to be missing for a gateway not to be there.
	every = 100 * time.Millisecond
	lost  = 3
	// A question is a cookie and the numbers of clusters. The answer has the same cookie and the numbers of those to
	// which there is a lane that is up: it is never longer.
	cookieSize, numberSize = 8, 4
	perQuestion            = 256
)

// number is what a cluster is called in questions.
func number(remote string) uint32 {
	device := plan.Device(remote)
	var n uint32
	_, _ = fmt.Sscanf(device, "lode-%08x", &n)
	return n
}

// Answer answers the nodes of a site at a gateway's address, until ctx ends. What is up is asked for each question.
func Answer(ctx context.Context, address netip.Addr, asks func(from netip.Addr) bool, up func() []string) error {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, Port)))
	if err != nil {
		return fmt.Errorf("answer the nodes' probes: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	go func() {
		buffer := make([]byte, cookieSize+numberSize*perQuestion)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil || n < cookieSize || !asks(from.Addr().Unmap()) {
				continue
			}
			_, _ = conn.WriteToUDPAddrPort(answer(buffer[:n], up()), from)
		}
	}()
	return nil
}

func answer(question []byte, up []string) []byte {
	var numbers []uint32
	for _, remote := range up {
		numbers = append(numbers, number(remote))
	}
	reply := slices.Clone(question[:cookieSize])
	for asked := range slices.Chunk(question[cookieSize:], numberSize) {
		if len(asked) == numberSize && slices.Contains(numbers, binary.BigEndian.Uint32(asked)) {
			reply = append(reply, asked...)
		}
	}
	return reply
}

// Prober asks gateways. It is safe for concurrent use.
type Prober struct {
	conn   *net.UDPConn
	cookie [cookieSize]byte

	mu       sync.Mutex
	gateways map[netip.Addr]string
	remotes  []uint32
	// answered is when a gateway said last that its lane to a cluster is up.
	answered map[string]map[uint32]time.Time
}

// Start asks from a node's address, until ctx ends.
func Start(ctx context.Context, from netip.Addr) (*Prober, error) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)))
	if err != nil {
		return nil, fmt.Errorf("probe gateways from %s: %w", from, err)
	}
	p := &Prober{conn: conn, answered: map[string]map[uint32]time.Time{}}
	_, _ = rand.Read(p.cookie[:]) // who does not know it cannot answer for a gateway
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	go p.ask(ctx)
	go p.listen()
	return p, nil
}

// Set says whom to ask, and about which clusters.
func (p *Prober) Set(s *site.Site, self string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gateways, p.remotes = map[netip.Addr]string{}, nil
	for _, n := range s.Nodes {
		if n.Gateway && n.Name != self {
			p.gateways[n.Address] = n.Name
		}
	}
	for _, r := range s.WithLanes() {
		p.remotes = append(p.remotes, number(r.Name))
	}
}

// Answers says whether a gateway is there and has a lane to a cluster that is up.
func (p *Prober) Answers(gateway, remote string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.answered[gateway][number(remote)]
	return ok && time.Since(last) < lost*every
}

func (p *Prober) ask(ctx context.Context) {
	clock := time.NewTicker(every)
	defer clock.Stop()
	for ctx.Err() == nil {
		for gateway, questions := range p.questions() {
			for _, q := range questions {
				// Whether it arrives is what the answer says.
				_, _ = p.conn.WriteToUDPAddrPort(q, netip.AddrPortFrom(gateway, Port))
			}
		}
		select {
		case <-ctx.Done():
		case <-clock.C:
		}
	}
}

func (p *Prober) questions() map[netip.Addr][][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all [][]byte
	for some := range slices.Chunk(p.remotes, perQuestion) {
		question := slices.Clone(p.cookie[:])
		for _, n := range some {
			question = binary.BigEndian.AppendUint32(question, n)
		}
		all = append(all, question)
	}
	questions := map[netip.Addr][][]byte{}
	for gateway := range p.gateways {
		questions[gateway] = all
	}
	return questions
}

func (p *Prober) listen() {
	buffer := make([]byte, cookieSize+numberSize*perQuestion)
	for {
		n, from, err := p.conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < cookieSize || [cookieSize]byte(buffer) != p.cookie || from.Port() != Port {
			continue // the node has no gateway's port, or somebody else's packet
		}
		p.mu.Lock()
		if gateway, ok := p.gateways[from.Addr().Unmap()]; ok {
			if p.answered[gateway] == nil {
				p.answered[gateway] = map[uint32]time.Time{}
			}
			for up := range slices.Chunk(buffer[cookieSize:n], numberSize) {
				if len(up) == numberSize {
					p.answered[gateway][binary.BigEndian.Uint32(up)] = time.Now()
				}
			}
		}
		p.mu.Unlock()
	}
}
