package transport_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
)

// world is a mover at the source, the network, and the provisioner's memory.
type world struct {
	r      *rand.Rand
	now    time.Time
	status moverapi.Status
	wanted []string
	// open says that the wanted addresses lead to the other mover.
	open bool
	// splicing and apart are lost when the provisioner restarts.
	splicing bool
	apart    time.Time
	changes  int
}

func newWorld(seed uint64) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 9)), now: start, open: seed%2 == 0, wanted: pod}
	w.status.Seeks = seed%5 > 0
	return w
}

// happens is a random event.
func (w *world) happens() {
	switch w.r.IntN(12) {
	case 0: // a connection breaks
		w.status.Connected, w.status.Direct = false, false
	case 1: // the mover at the source restarts
		w.status = moverapi.Status{Seeks: w.status.Seeks}
	case 2: // the provisioner is restarted
		w.splicing, w.apart = false, time.Time{}
	case 3: // the other mover gets another pod
		w.wanted = [][]string{pod, {"10.1.2.4:8440"}, nil}[w.r.IntN(3)]
		w.splicing, w.apart = false, time.Time{}
		w.status.Connected, w.status.Direct = false, false
	case 4: // the network changes
		w.open = !w.open
		if w.status.Direct {
			w.status.Connected, w.status.Direct = false, false
		}
	}
}

// turn is one step of the provisioner, and the mover's actions until the next.
func (w *world) turn(t *testing.T) {
	t.Helper()
	status := w.status
	action := transport.Next(transport.Seen{Now: w.now, Wanted: w.wanted, Status: &status, Splicing: w.splicing, Apart: w.apart})
	if action != transport.Await {
		w.apart = time.Time{}
	}
	switch action {
	case transport.Keep:
	case transport.Tell:
		require.True(t, w.status.Seeks, "a mover was told that does not seek")
		w.changes++
		w.status.Peers = w.wanted
		if w.status.Direct {
			w.status.Connected, w.status.Direct = false, false
		}
	case transport.Await:
		if w.apart.IsZero() {
			w.apart = w.now
		}
	case transport.Splice:
		require.False(t, w.status.Connected && w.status.Direct, "a connection that works was replaced")
		w.changes++
		w.splicing = true
		w.status.Connected = true
	case transport.Cut:
		require.True(t, w.status.Connected && w.status.Direct, "the only connection was cut")
		w.changes++
		w.splicing = false
	}
	w.now = w.now.Add(time.Second)
	switch {
	case w.status.Connected:
	case w.open && len(w.status.Peers) > 0 && w.r.IntN(3) == 0:
		w.status.Connected, w.status.Direct = true, true
	case w.splicing:
		w.status.Connected = true
	}
}
