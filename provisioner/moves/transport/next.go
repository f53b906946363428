package transport

import (
	"slices"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// Action is what to do for a connection.
type Action string

// The actions.
const (
	// Keep leaves all as it is.
	Keep Action = "Keep"
	// Tell tells the mover at the source where the other one may be.
	Tell Action = "Tell"
	// Await gives it time to dial.
	Await Action = "Await"
	// Splice joins a connection to each mover, and joins them anew whenever they end.
	Splice Action = "Splice"
	// Cut does so no more.
	Cut Action = "Cut"
)

// Seen is what is known of the connection between two movers that run.
type Seen struct {
	Now time.Time
	// Wanted are the addresses at which the mover at the source may dial the other.
	Wanted []string
	// Status is what the mover at the source said just now.
	Status *movecontrol.Status
	// Splicing says that these two movers are being joined.
	Splicing bool
	// Apart is since when it is awaited that one dials the other; zero: it is not.
	Apart time.Time
	// Urgent says that pods wait for what is left to be copied: a detour costs them less
	// than to wait for the direct way.
	Urgent bool
}

// Next returns what to do. Data goes through the provisioner only where one mover does
// not reach the other; a connection that works is never ended for a better one.
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
		// What is connected was joined by a provisioner that is gone, and so is the connection.
		return Splice
	case s.Urgent:
		return Splice
	case s.Apart.IsZero() || s.Now.Sub(s.Apart) < Patience(s.Wanted):
		return Await
	}
	return Splice
}

// Patience is how long a mover may take to dial these addresses before somebody joins it.
func Patience(addresses []string) time.Duration {
	return time.Duration(len(addresses))*movecontrol.PeerTimeout + time.Second
}
