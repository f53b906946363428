package lane

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// Trunk is the carrier of IP over TLS: a TUN device, and some TLS connections to each gateway of the other cluster.
// Each queue of the device is read by one goroutine, which puts the packets into one of the connections that are up.
type Trunk struct {
	device  string
	server  *Server
	queues  []*queue
	changed chan struct{}
	running sync.WaitGroup
	// out bounds what goes to the other cluster, in what comes from there.
	out, in limit
	// translations are of addresses of pods here; nil or empty: none. They are replaced as a whole.
	translations atomic.Pointer[remotecluster.Translations]
	// ranges are those that packets may come from; nil: from all of IPv4. They are replaced as a whole.
	ranges atomic.Pointer[[]netip.Prefix]
	// ipv6: that is carried, too.
	ipv6 atomic.Bool

	mu    sync.Mutex
	peers map[string]*gateway
	begun int // connections, so far
	// usable has those connections to one gateway that are up. It is replaced as a whole.
	usable atomic.Pointer[[]*connection]
}

// gateway is what a Trunk knows of a gateway of the other cluster.
type gateway struct {
	Peer
	connections []*connection
	hangUp      context.CancelFunc
	problem     error
	up          bool
	since       time.Time
	// renewed is the own key for which a connection was given up last.
	renewed Key
	// sent, received and dropped are those of connections that have ended.
	sent, received, dropped uint64
	beside                  beside
}

// Device is the name of the TUN device, and Devices has no other one.
func (t *Trunk) Device() string { return t.device }

// Devices is the TUN device.
func (t *Trunk) Devices() []string { return []string{t.device} }

// Changed receives something after Up may have changed.
func (t *Trunk) Changed() <-chan struct{} { return t.changed }

// Limit bounds both ways.
func (t *Trunk) Limit(bytesPerSecond int64) {
	t.out.set(bytesPerSecond)
	t.in.set(bytesPerSecond)
}

// Translate sets how addresses of pods here are translated.
func (t *Trunk) Translate(pods remotecluster.Translations) { t.translations.Store(&pods) }

// translated are the translations that count now.
func (t *Trunk) translated() remotecluster.Translations {
	if pods := t.translations.Load(); pods != nil {
		return *pods
	}
	return nil
}

// From says from where something may come.
func (t *Trunk) From(ranges []netip.Prefix) {
	t.ranges.Store(&ranges)
	t.ipv6.Store(slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Addr().Is6() }))
}

// takes says that a packet, which is one that lanes carry, may come from where it says.
func (t *Trunk) takes(packet []byte) bool {
	ranges := t.ranges.Load()
	return ranges == nil || comesFrom(packet, *ranges)
}

// Up says whether there is a connection that is up.
func (t *Trunk) Up() bool { return len(*t.usable.Load()) > 0 }

// Set dials gateways that are new, and cuts off connections of those that are gone and of keys that are no longer theirs.
func (t *Trunk) Set(peers []Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, g := range t.peers {
		i := slices.IndexFunc(peers, func(p Peer) bool { return p.Name == name })
		if i >= 0 && peers[i].Address == g.Address {
			g.Keys = peers[i].Keys
			for _, c := range g.connections {
				if !slices.Contains(g.Keys, c.key) {
					go c.close(errUnknown)
				}
			}
			continue
		}
		t.forget(g)
	}
	for _, p := range peers {
		if t.peers[p.Name] != nil {
			continue
		}
		g := &gateway{Peer: p, since: time.Now(), problem: errors.New("it has not yet called")}
		t.peers[p.Name] = g
		if p.Address == "" {
			g.hangUp = func() {}
			continue
		}
		g.problem = errors.New("it has not yet answered")
		ctx, hangUp := context.WithCancel(context.Background())
		g.hangUp = hangUp
		for range t.queues {
			t.running.Go(func() { t.dial(ctx, g) })
		}
	}
}

// forget ends what there is of a gateway. The caller holds mu.
func (t *Trunk) forget(g *gateway) {
	g.hangUp()
	for _, c := range g.connections {
		go c.close(errUnknown)
	}
	delete(t.peers, g.Name)
}

// dial keeps one connection to a gateway, until ctx ends.
func (t *Trunk) dial(ctx context.Context, g *gateway) {
	for wait := every; ctx.Err() == nil; wait = min(2*wait, time.Second) {
		c, err := t.server.dial(ctx, g.Address, func(key Key) error { return t.expect(g, key) })
		if err == nil {
			began := time.Now()
			err = t.use(g, c)
			if time.Since(began) > given {
				wait = every
			}
		}
		t.failed(g, err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// expect returns an error unless a gateway has a key.
func (t *Trunk) expect(g *gateway, key Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(g.Keys, key) {
		return errUnknown
	}
	return nil
}

// keys are those that a gateway may have. They are replaced as a whole.
func (t *Trunk) keys(g *gateway) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	return g.Keys
}

// renew gives up one connection to each gateway that was not made with a key of this one, for another one to take its place, which has that
// key. Only once the first of these is up the next one follows: where it is refused, the others stay.
func (t *Trunk) renew(own Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.peers {
		var old []*connection
		leaving, fresh := false, false
		for _, c := range g.connections {
			switch {
			case c.own == own:
				fresh = fresh || c.up()
			case c.leaving.Load():
				leaving = true
			default:
				old = append(old, c)
			}
		}
		if !leaving && len(old) > 0 && (fresh || g.renewed != own) {
			g.renewed = own
			go old[0].leave(t.update)
		}
	}
}

// owner is the gateway that has a key and dials here, nil if none.
func (t *Trunk) owner(key Key) *gateway {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.peers {
		if g.Address == "" && slices.Contains(g.Keys, key) {
			return g
		}
	}
	return nil
}

func (t *Trunk) failed(g *gateway, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.problem = err
}

// use runs a connection until it ends; it returns why.
func (t *Trunk) use(g *gateway, c *connection) error {
	t.mu.Lock()
	q := t.queues[t.begun%len(t.queues)]
	t.begun++
	if err := t.refuse(g, c); err != nil {
		t.mu.Unlock()
		c.close(err)
		return err
	}
	c.peer, c.beside = g.Name, &g.beside
	g.connections = append(g.connections, c)
	t.mu.Unlock()
	err := c.run(t.update, func() []Key { return t.keys(g) }, func(packet []byte) error {
		// What counts for the limit is what comes out, with a header for each segment.
		if bytes, ok := judge(packet, t.ipv6.Load()); !ok || !t.takes(packet) || !t.in.now(bytes) {
			c.dropped.Add(uint64(len(packet)))
			return nil
		}
		if pods := t.translated(); len(pods) > 0 && !incoming(packet, pods) {
			return nil
		}
		return q.write(packet)
	})
	t.mu.Lock()
	g.connections = slices.DeleteFunc(g.connections, func(other *connection) bool { return other == c })
	g.sent, g.received, g.dropped = g.sent+c.sent.Load(), g.received+c.received.Load(), g.dropped+c.dropped.Load()
	t.mu.Unlock()
	t.update()
	return err
}

// refuse says why a connection is not wanted. The caller holds mu.
func (t *Trunk) refuse(g *gateway, c *connection) error {
	switch {
	case t.peers[g.Name] != g || !slices.Contains(g.Keys, c.key):
		return errUnknown
	case len(g.connections) >= 4*len(t.queues): // some may be dead and not yet known to be
		return errors.New("the other side has too many connections")
	}
	return nil
}

// update finds out which connections are to be used.
func (t *Trunk) update() {
	t.mu.Lock()
	var candidates [][]*connection
	for _, g := range t.peers {
		var up []*connection
		for _, c := range g.connections {
			if c.up() {
				up = append(up, c)
			}
		}
		if (len(up) > 0) != g.up {
			g.up, g.since = len(up) > 0, time.Now()
		}
		candidates = append(candidates, up)
	}
	chosen := choose(*t.usable.Load(), candidates)
	t.usable.Store(&chosen)
	t.mu.Unlock()
	t.tell()
}

// tell has whoever waits look again whether the lane is up.
func (t *Trunk) tell() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// besideOf is what is said of the WireGuard to a gateway, nil if there is no such gateway.
func (t *Trunk) besideOf(peer string) *beside {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.peers[peer]; g != nil {
		return &g.beside
	}
	return nil
}

// choose returns the connections to use of those that are up, a list for each gateway: those to the gateway that is in
// use, for no connection is to change its way without need, or those to the gateway with most of them.
func choose(used []*connection, candidates [][]*connection) []*connection {
	var best []*connection
	for _, up := range candidates {
		if slices.ContainsFunc(up, func(c *connection) bool { return slices.Contains(used, c) }) {
			return up
		}
		if len(up) > len(best) || len(up) == len(best) && len(up) > 0 && up[0].peer < best[0].peer {
			best = up
		}
	}
	return best
}

// burst bounds what is handed to the kernel at once.
const burst = 128 << 10

// carry takes the packets of one queue to the other side.
func (t *Trunk) carry(i int) {
	buffer := make([]byte, frameHeader+packetLimit)
	read := func(wait bool) ([]byte, error) {
		for {
			n, err := t.queues[i].read(buffer[frameHeader:], wait)
			if err != nil || n == 0 {
				return nil, err
			}
			frame := buffer[:frameHeader+n]
			if !carried(frame[frameHeader:], t.ipv6.Load()) {
				continue // the kernel itself speaks IPv6 on each link
			}
			if pods := t.translated(); len(pods) > 0 && !outgoing(frame[frameHeader:], pods) {
				continue
			}
			putHeader(frame, kindPacket)
			return frame, nil
		}
	}
	for {
		frame, err := read(true)
		if err != nil {
			return // the device is closed
		}
		usable := *t.usable.Load()
		if len(usable) == 0 {
			continue // packets get lost: nobody waits for a lane
		}
		sent, packets := 0, 0
		c := usable[i%len(usable)]
		if !t.out.wait(len(frame) - frameHeader) {
			c.dropped.Add(uint64(len(frame) - frameHeader))
			continue
		}
		alone := t.out.on() // each packet waits for its turn, while others may write
		err = c.send(func() (next []byte, err error) {
			if sent == 0 {
				next = frame
			} else if sent < burst && !alone {
				next, err = read(false)
			}
			if next != nil {
				sent += len(next)
				packets++
			}
			return next, err
		})
		c.sent.Add(uint64(sent - packets*frameHeader))
		if err != nil {
			return
		}
	}
}

// Status says how each gateway of the other cluster is reached.
func (t *Trunk) Status() (statuses []Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.peers {
		s := Status{Peer: g.Name, Up: g.up, Since: g.since, Sent: g.sent, Received: g.received, Dropped: g.dropped}
		for _, c := range g.connections {
			s.Congestion = c.congestion
			if !slices.Contains(s.Own, c.own) {
				s.Own = append(s.Own, c.own)
			}
			if rtt := c.rtt(); s.RTT == 0 || rtt < s.RTT {
				s.RTT = rtt
			}
			if accepts := *c.accepts.Load(); c.up() {
				if s.Connections++; s.Connections == 1 {
					s.Accepts = slices.Clone(accepts)
				}
				s.Accepts = slices.DeleteFunc(s.Accepts, func(key Key) bool { return !slices.Contains(accepts, key) })
			}
			s.Sent, s.Received, s.Dropped = s.Sent+c.sent.Load(), s.Received+c.received.Load(), s.Dropped+c.dropped.Load()
		}
		switch {
		case len(g.connections) == 0 && g.problem != nil:
			s.Problem = g.problem.Error()
		case len(g.connections) > 0 && !g.up && s.Connections == 0:
			s.Problem = "connections to it are open, and nothing comes by them: see whether packets get lost between the two"
		}
		statuses = append(statuses, s)
	}
	slices.SortFunc(statuses, func(a, b Status) int { return cmp.Compare(a.Peer, b.Peer) })
	return statuses
}

// Close removes the device, and what is routed to it with it, and closes the connections.
func (t *Trunk) Close() error {
	t.mu.Lock()
	for _, g := range t.peers {
		t.forget(g)
	}
	t.mu.Unlock()
	t.server.remove(t)
	closeTUN(t.queues)
	t.running.Wait()
	return nil
}
