package transport_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pod   = []string{"10.1.2.3:8440"}
)

func TestHowTwoMoversAreConnected(t *testing.T) {
	apart := moverapi.Status{Seeks: true, Peers: pod}
	direct := moverapi.Status{Seeks: true, Peers: pod, Connected: true, Direct: true}
	joined := moverapi.Status{Seeks: true, Peers: pod, Connected: true}
	for name, row := range map[string]struct {
		seen   transport.Seen
		status moverapi.Status
		want   transport.Action
	}{
		"one that knows no peers is told": {seen: transport.Seen{Wanted: pod}, status: moverapi.Status{Seeks: true},
			want: transport.Tell},
		"one that knows others is told": {seen: transport.Seen{Wanted: pod},
			status: moverapi.Status{Seeks: true, Peers: []string{"10.1.2.4:8440"}, Connected: true, Direct: true}, want: transport.Tell},
		"one that may dial nobody any more is told": {status: direct, want: transport.Tell},
		"one that was told is awaited":              {seen: transport.Seen{Wanted: pod}, status: apart, want: transport.Await},
		"… for a while": {seen: transport.Seen{Wanted: pod, Apart: start.Add(-transport.Patience(pod) + 1)},
			status: apart, want: transport.Await},
		"… and joined then": {seen: transport.Seen{Wanted: pod, Apart: start.Add(-transport.Patience(pod))},
			status: apart, want: transport.Splice},
		"… but not while pods wait":                  {seen: transport.Seen{Wanted: pod, Urgent: true}, status: apart, want: transport.Splice},
		"one that may dial nobody is joined at once": {status: moverapi.Status{Seeks: true}, want: transport.Splice},
		"an older one is joined at once":             {seen: transport.Seen{Wanted: pod}, status: moverapi.Status{}, want: transport.Splice},
		"what is joined stays joined":                {seen: transport.Seen{Wanted: pod, Splicing: true}, status: joined, want: transport.Keep},
		"what was joined is joined again":            {seen: transport.Seen{Wanted: pod, Splicing: true}, status: apart, want: transport.Keep},
		"what somebody joined who is gone is joined": {seen: transport.Seen{Wanted: pod}, status: joined, want: transport.Splice},
		"what is direct is left alone":               {seen: transport.Seen{Wanted: pod}, status: direct, want: transport.Keep},
		"what has become direct is joined no more":   {seen: transport.Seen{Wanted: pod, Splicing: true}, status: direct, want: transport.Cut},
		"what is joined and may be dialled now, stays": {seen: transport.Seen{Wanted: pod, Splicing: true},
			status: moverapi.Status{Seeks: true, Connected: true}, want: transport.Tell},
	} {
		t.Run(name, func(t *testing.T) {
			row.seen.Now, row.seen.Status = start, &row.status
			assert.Equal(t, row.want, transport.Next(row.seen))
		})
	}
}

// TestConnectionsSettle simulates movers whose direct way works or not, appears and
// disappears, and processes that restart: in every case the movers are connected in the
// end, in one way.
func TestConnectionsSettle(t *testing.T) {
	for seed := range uint64(500) {
		w := newWorld(seed)
		for range 200 {
			w.happens()
			w.turn(t)
		}
		for range 60 {
			w.turn(t)
		}
		require.True(t, w.status.Connected, "seed %d: the movers are apart", seed)
		require.NotEqual(t, w.status.Direct, w.splicing, "seed %d: data goes both ways, or neither", seed)
		require.True(t, !w.status.Direct || w.open && w.status.Seeks, "seed %d: it cannot be direct", seed)
		changed := w.changes
		for range 60 {
			w.turn(t)
		}
		require.Equal(t, changed, w.changes, "seed %d: what works was changed", seed)
	}
}
