package lane

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
)

// WireGuard is what WireGuard is to carry of a lane.
type WireGuard struct {
	// Peer is the gateway of the other cluster that it goes to. It is the only one, for WireGuard sends what is for a range to one peer.
	Peer string
	// Ranges are those of the other cluster: nothing else goes there, or comes from there.
	Ranges []netip.Prefix
	// Port is the UDP port to listen at; 0: any, where this side dials.
	Port uint16
	// MTU is the largest packet that it carries in one piece.
	MTU int
	// Instead is why TLS carries all the same, in a sentence; empty: WireGuard can.
	Instead string
}

// WireGuardEnd is the WireGuard of a gateway.
type WireGuardEnd struct {
	Key WireGuardKey `json:"key"`
	// Port is the UDP port at which it listens, at the host of its address; 0: it only dials.
	Port uint16 `json:"port,omitempty"`
}

// Dual is a lane over TLS, a Trunk, beside which there may be WireGuard of the kernel to one gateway of the other cluster. Packets go over
// WireGuard while that is known to carry them both ways, and over TLS else. What comes by either is taken at any time, so no packet
// is lost when one takes over from the other. The link of WireGuard stays when the program ends, and carries on.
type Dual struct {
	*Trunk
	// link is the name of the link of WireGuard; directory has the private key.
	link, directory string

	mu    sync.Mutex
	peers []Peer
	// wanted is nil where WireGuard is not asked for.
	wanted *WireGuard
	state  wireGuardState
	stop   chan struct{} // nil: nothing runs
	done   chan struct{}
}

// wireGuardState is what is known of the WireGuard of a Dual.
type wireGuardState struct {
	// link is its name, while it is there.
	link string
	// end is this side of it, nil while there is none.
	end *WireGuardEnd
	// up: it carries packets both ways. used: packets are sent by it, for it is up, or nothing better is known.
	up, used bool
	// problem is why it is not up.
	problem string
}

var _ Lane = (*Dual)(nil)

// NewDual makes a lane of a Trunk. A link of WireGuard of this name that carries packets, as one does that a program before this one has
// made, goes on to do so.
func NewDual(trunk *Trunk, link, directory string) *Dual {
	d := &Dual{Trunk: trunk, link: link, directory: directory}
	if carries(link) {
		d.state = wireGuardState{link: link, used: true}
	}
	return d
}

// Set says who the gateways of the other cluster are now.
func (d *Dual) Set(peers []Peer) {
	d.Trunk.Set(peers)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.peers = slices.Clone(peers)
}

// Carry says what WireGuard is to carry; nil: nothing.
func (d *Dual) Carry(wanted *WireGuard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = wanted
	if d.stop == nil && (wanted != nil || d.state.link != "") {
		d.stop, d.done = make(chan struct{}), make(chan struct{})
		go d.keep(d.stop, d.done)
	}
}

// keep keeps WireGuard in line until stop is closed.
func (d *Dual) keep(stop, done chan struct{}) {
	defer close(done)
	d.mu.Lock()
	w := &wireGuard{name: d.link, directory: d.directory, wireGuardState: d.state}
	d.mu.Unlock()
	defer w.close()
	var before string
	clock := time.NewTicker(every / 2)
	defer clock.Stop()
	for {
		before = d.step(w, before)
		select {
		case <-stop:
			return
		case <-clock.C:
		}
	}
}

// step brings WireGuard in line once, and finds out whether it is to be used. It returns the gateway that it goes to, as that before.
func (d *Dual) step(w *wireGuard, before string) (to string) {
	d.mu.Lock()
	wanted, peer := d.wanted, Peer{}
	if wanted != nil {
		if i := slices.IndexFunc(d.peers, func(p Peer) bool { return p.Name == wanted.Peer }); i >= 0 {
			peer = d.peers[i]
		}
	}
	d.mu.Unlock()
	if old := d.besideOf(before); old != nil && before != peer.Name {
		old.hears.Store(false)
	}
	w.keep(wanted, peer, d.besideOf(peer.Name), d.Trunk.Up())
	d.mu.Lock()
	changed := !reflect.DeepEqual(d.state, w.wireGuardState)
	d.state = w.wireGuardState
	d.mu.Unlock()
	if changed {
		d.tell()
	}
	return peer.Name
}

func (d *Dual) now() wireGuardState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// Device is the link that packets are routed to now.
func (d *Dual) Device() string {
	if s := d.now(); s.used {
		return s.link
	}
	return d.Trunk.Device()
}

// Devices are the links that packets may come by.
func (d *Dual) Devices() []string {
	devices := d.Trunk.Devices()
	if s := d.now(); s.link != "" {
		devices = append(devices, s.link)
	}
	return devices
}

// Up says whether one of the two carries packets.
func (d *Dual) Up() bool { return d.Trunk.Up() || d.now().up }

// End is this side of WireGuard, nil while there is none.
func (d *Dual) End() *WireGuardEnd { return d.now().end }

// Status says how each gateway of the other cluster is reached.
func (d *Dual) Status() []Status {
	d.mu.Lock()
	wanted, state := d.wanted, d.state
	d.mu.Unlock()
	statuses := d.Trunk.Status()
	if wanted == nil {
		return statuses
	}
	for i := range statuses {
		s := &statuses[i]
		switch {
		case wanted.Instead != "":
			s.Instead = wanted.Instead
		case s.Peer != wanted.Peer:
			s.Instead = fmt.Sprintf("TLS stands by here: WireGuard joins each gateway with one, and this one with %s", wanted.Peer)
		case state.up:
			s.WireGuard = true
		default:
			s.Instead = state.problem
		}
		if s.Peer == wanted.Peer && state.link != "" {
			if link, err := netlink.LinkByName(state.link); err == nil && link.Attrs().Statistics != nil {
				s.Sent += link.Attrs().Statistics.TxBytes
				s.Received += link.Attrs().Statistics.RxBytes
			}
		}
	}
	return statuses
}

// end ends what runs; the link of WireGuard is still there.
func (d *Dual) end() {
	d.mu.Lock()
	stop, done := d.stop, d.done
	d.stop = nil
	d.mu.Unlock()
	if stop != nil {
		close(stop)
		<-done
	}
}

// Release closes the connections of TLS, and leaves WireGuard to the kernel, which carries on.
func (d *Dual) Release() error {
	d.end()
	return d.Trunk.Close()
}

// Close removes all links.
func (d *Dual) Close() error {
	d.end()
	return errors.Join(RemoveLink(d.link), d.Trunk.Close())
}
