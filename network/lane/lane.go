// Package lane carries packets between the gateways of two clusters. What is routed to the device of a Lane in one
// cluster comes out of the device of its Lane in the other, as it was sent, but for
// addresses that are translated (translate.go). There are two carriers, IP over TLS (Server,
// Trunk) and WireGuard of the kernel (wireGuard); a Dual chooses. Read trunk.go first.
package lane

import (
	"net/netip"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// Lane is the way from this gateway to all gateways of one other cluster. It is safe for concurrent use.
type Lane interface {
	// Device is the name of the link that packets are to be routed to now, and Devices are those of all by which they may come. That of
	// TLS is gone when the program ends, and its routes with it.
	Device() string
	Devices() []string
	// Carry says what WireGuard is to carry, and TLS else; nil: nothing. End is this side of it, nil while there is none.
	Carry(wanted *WireGuard)
	End() *WireGuardEnd
	// Set says who the gateways of the other cluster are now. Those who are no longer among them are cut off at once.
	Set(peers []Peer)
	// Limit says how many bytes a second go to the other cluster, and as many may come from there; 0: as many as can. What is more is
	// lost, as it is on a line of that rate.
	Limit(bytesPerSecond int64)
	// Translate says by which addresses the other cluster reaches pods here, where their own are those of pods there, too: on this side
	// of the lane packets have the pods' own addresses, and on the other one those. What would be taken for another pod's is lost.
	Translate(pods remotecluster.Translations)
	// From says from where something may come: the ranges of the other cluster's pods, and of those behind it. IPv6 is carried where there
	// are any of that, and is not translated. Until it is called all of IPv4 may come.
	From(ranges []netip.Prefix)
	// Up says whether packets are known to arrive on the other side, and those from there here. Changed receives
	// something after Up may have changed.
	Up() bool
	Changed() <-chan struct{}
	// Status is for people.
	Status() []Status
	// Release ends what the program does for the lane: what the kernel carries by itself goes on. Close removes all of it.
	Release() error
	Close() error
}

// Peer is one gateway of the other cluster.
type Peer struct {
	Name string
	// Address is what to dial; empty for a gateway that dials here.
	Address string
	// Keys are those that it may have: two of them while it changes its key.
	Keys []Key
	// WireGuard is its end of that; nil: it has none.
	WireGuard *WireGuardEnd
}

// Status is what is known of the way to one gateway of the other cluster.
type Status struct {
	Peer string
	Up   bool
	// Since is when Up became what it is.
	Since time.Time
	// WireGuard carries the packets; else TLS does. Instead is why, in a sentence, where WireGuard was to.
	WireGuard bool
	Instead   string
	// Connections is how many of TLS are up.
	Connections int
	// Congestion is what controls the rate of the connections, as the kernel calls it.
	Congestion string
	// Own are the keys of this gateway that connections were made with, Accepts those that the other one has said on each that is up that
	// it takes for this one's.
	Own, Accepts []Key
	// RTT is the shortest of the connections' smoothed round trip times, as the kernel measures them.
	RTT time.Duration
	// Sent and Received are the bytes of packets that went to the gateway and came from it, since it became one of the other cluster.
	Sent, Received uint64
	// Dropped are the bytes of packets from the gateway and to it that were lost because of Limit, or because no kernel makes such packets.
	Dropped uint64
	// Problem is why there is no connection by which something comes, in a sentence; empty if there is one.
	Problem string
}
