// Package transport decides how the two movers of a claim are connected: the mover at the
// source dials the one at the target if it can reach it; otherwise the provisioner opens a
// connection to each and joins them. Next returns the next action; Peers and Reach return
// the addresses that may be dialled. All functions are pure. Start with next.go.
package transport

import (
	"slices"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// Action is the next action for a connection.
type Action string

// The actions.
const (
	// Keep changes nothing.
	Keep Action = "Keep"
	// Tell sends the target's addresses to the mover at the source.
	Tell Action = "Tell"
	// Await gives the mover time to dial.
	Await Action = "Await"
	// Splice opens a connection to each mover and joins them, again each time they end.
	Splice Action = "Splice"
	// Cut stops splicing.
	Cut Action = "Cut"
)

// Seen is the state of the connection between two running movers.
type Seen struct {
	Now time.Time
	// Wanted are the addresses at which the mover at the source may dial the other.
	Wanted []string
	// Status is the present status of the mover at the source.
	Status *moverapi.Status
	// Splicing says that the provisioner is joining these two movers.
	Splicing bool
	// Apart is since when the movers are not connected although one may dial; zero: it may
	// not, or they are connected.
	Apart time.Time
	// Urgent says that pods are stopped until the copy ends: a slower way costs them less
	// than waiting for the direct one.
	Urgent bool
}

// Next returns the next action. Data goes through the provisioner only if one mover does
// not reach the other; a working connection is never ended for a better one.
func Next(s Seen) Action {
	direct := s.Status.Connected && s.Status.Direct
	switch {
	case s.Status.Seeks && !slices.Equal(s.Wanted, s.Status.Peers):
		return Tell
	case direct && s.Splicing:
		return Cut
	case direct || s.Splicing:
		return Keep
	case s.Status.Connected, !s.Status.Seeks, len(s.Wanted) == 0:
		// A provisioner that is gone had joined them, so the connection is gone too.
		return Splice
	case s.Urgent:
		return Splice
	case s.Apart.IsZero() || s.Now.Sub(s.Apart) < Patience(s.Wanted):
		return Await
	}
	return Splice
}

// Patience is how long a mover may take to dial these addresses before the provisioner
// joins it.
func Patience(addresses []string) time.Duration {
	return time.Duration(len(addresses))*moverapi.PeerTimeout + time.Second
}

// Connection is how data travels between two movers.
type Connection struct {
	// Transport is empty while they are not connected.
	Transport v1alpha1.MoveTransport
	// Legs are set if the provisioner joins them.
	Legs *v1alpha1.MoveLegs
	// Why says why one does not dial the other, if known.
	Why string
}
