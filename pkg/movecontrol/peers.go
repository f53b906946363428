package movecontrol

import (
	"fmt"
	"net/netip"
	"time"
)

// Peers are where the receiver may be. Whoever answers there, only the receiver of the
// move is talked to.
type Peers struct {
	// Addresses are IP addresses with a port, at most MaxPeers, the best one first; none:
	// the sender dials nobody.
	Addresses []string `json:"addresses"`
}

const (
	// MaxPeers is how many addresses a sender takes.
	MaxPeers = 4
	// PeerTimeout is how long a sender tries one of them.
	PeerTimeout = 3 * time.Second
)

// Check says what is wrong with the addresses.
func (p Peers) Check() error {
	if len(p.Addresses) > MaxPeers {
		return fmt.Errorf("there are %d addresses of the receiver, and %d at most", len(p.Addresses), MaxPeers)
	}
	for _, address := range p.Addresses {
		parsed, err := netip.ParseAddrPort(address)
		if err != nil || parsed.Port() == 0 || parsed.Addr().Zone() != "" {
			return fmt.Errorf("%.100q is not an IP address with a port", address)
		}
	}
	return nil
}
