package lane_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/network/lane"
)

// carried has one end of a lane send as much as it can to the other for a while, by TCP, and returns the bytes a second that came.
func carried(t *testing.T, from, to *end, address string, while time.Duration) float64 {
	t.Helper()
	listener, err := to.Listen(address)
	require.NoError(t, err)
	defer listener.Close()
	var conn net.Conn
	require.Eventually(t, func() bool { // on a busy machine a lane may not count for a moment
		conn, err = from.Dial("tcp", "", address)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	defer conn.Close()
	go func(conn net.Conn) {
		content := make([]byte, 64<<10)
		for {
			if _, err := conn.Write(content); err != nil {
				return
			}
		}
	}(conn)
	taker, err := listener.Accept()
	require.NoError(t, err)
	defer taker.Close()
	began := time.Now()
	require.NoError(t, taker.SetReadDeadline(began.Add(while)))
	n, err := io.Copy(io.Discard, taker)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	return float64(n) / time.Since(began).Seconds()
}

func TestALaneCarriesNoMoreThanItsLimit(t *testing.T) {
	a, b := pair(t)
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.key}}})
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.key}}})
	awaitUp(t, true, a.trunk, b.trunk)
	// What comes in may be 1.5 s ahead.
	const limit, while = 1 << 20, 6 * time.Second
	for _, row := range []struct {
		name     string
		limited  *lane.Trunk
		from, to *end
		address  string
		atMost   float64
		drops    bool
	}{
		{name: "what it sends", limited: a.trunk, from: a, to: b, address: "10.2.0.1:80", atMost: limit * 5 / 4},
		{name: "what it takes, whatever the other side sends", limited: a.trunk, from: b, to: a, address: "10.1.0.1:80", atMost: limit * 3 / 2,
			drops: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.limited.Limit(limit)
			got := carried(t, row.from, row.to, row.address, while)
			t.Logf("%.1f MiB/s of %d", got/(1<<20), limit>>20)
			assert.LessOrEqual(t, got, row.atMost)
			assert.Positive(t, got)
			assert.True(t, !row.drops || row.limited.Status()[0].Dropped > 0)

			row.limited.Limit(0)
			for tries := 0; got < 2*row.atMost; tries++ {
				require.Less(t, tries, 10, "without a limit it carries what it can")
				got = carried(t, row.from, row.to, row.address, while/10)
			}
		})
	}
}
