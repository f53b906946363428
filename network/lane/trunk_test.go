package lane_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/network/lane"
)

// end is one side of a lane, in a namespace of its own.
type end struct {
	*netlab.Namespace
	identity *lane.Identity
	server   *lane.Server
	trunk    *lane.Trunk
}

func newEnd(t *testing.T, name string) *end {
	t.Helper()
	n, err := netlab.NewNamespace(name)
	require.NoError(t, err)
	t.Cleanup(n.Close)
	e := &end{Namespace: n}
	e.identity, err = lane.LoadIdentity(t.TempDir())
	require.NoError(t, err)
	return e
}

// open begins to listen and makes the device.
func (e *end) open(t *testing.T, listen string) {
	t.Helper()
	require.NoError(t, e.In(func() (err error) {
		if e.server, err = lane.NewServer(context.Background(), e.identity, listen); err != nil {
			return err
		}
		e.server.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
			return e.Namespace.Dial(network, "", address)
		}
		e.trunk, err = e.server.NewTrunk("lane0", 4)
		return err
	}))
	t.Cleanup(func() {
		assert.NoError(t, e.trunk.Close())
		assert.NoError(t, e.server.Close())
	})
}

// pair makes two ends whose trunks have the addresses 10.1.0.1 and 10.2.0.1. The second one dials.
func pair(t *testing.T) (a, b *end) {
	t.Helper()
	netlab.Need(t)
	a, b = newEnd(t, "a"), newEnd(t, "b")
	require.NoError(t, netlab.Join(a.Namespace, "eth0", "192.0.2.1/24", b.Namespace, "eth0", "192.0.2.2/24"))
	for i, e := range []*end{a, b} {
		require.NoError(t, e.Sysctl("ipv4/tcp_congestion_control", "reno"), "another one than the lane is to have")
		e.open(t, fmt.Sprintf("192.0.2.%d:7473", i+1))
		require.NoError(t, e.Address("lane0", fmt.Sprintf("10.%d.0.1/32", i+1)))
		require.NoError(t, e.Route(fmt.Sprintf("10.%d.0.0/16", 2-i), "", "lane0"))
	}
	return a, b
}

func awaitUp(t *testing.T, up bool, trunks ...*lane.Trunk) {
	t.Helper()
	for _, trunk := range trunks {
		require.Eventually(t, func() bool { return trunk.Up() == up }, 10*time.Second, 10*time.Millisecond,
			"the lane is not up: %v, but %+v", up, trunk.Status())
	}
}

func TestPacketsGoThroughALane(t *testing.T) {
	a, b := pair(t)
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.identity.Key}}})
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.identity.Key}}})
	awaitUp(t, true, a.trunk, b.trunk)
	require.Eventually(t, func() bool { return a.trunk.Status()[0].Connections == 4 }, 10*time.Second, 10*time.Millisecond)
	status := b.trunk.Status()[0]
	assert.Equal(t, "bbr", status.Congestion, "of each socket, where the kernel has it, though the namespace has another")
	assert.Empty(t, status.Problem)

	listener, err := a.Listen("10.1.0.1:80")
	require.NoError(t, err)
	defer listener.Close()
	content := make([]byte, 32<<20)
	_, _ = rand.Read(content)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = conn.Write(content)
			_ = conn.Close()
		}
	}()
	conn, err := b.Dial("tcp", "", "10.1.0.1:80")
	require.NoError(t, err)
	defer conn.Close()
	received, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(content, received), "32 MiB come as they were sent")
	sent, got := a.trunk.Status()[0].Sent, b.trunk.Status()[0].Received
	assert.Greater(t, sent, uint64(32<<20), "they are counted, with what TCP and IP add")
	assert.Less(t, sent, uint64(40<<20))
	assert.InDelta(t, sent, got, float64(sent)/10)
	assert.Equal(t, "10.2.0.1", conn.LocalAddr().(*net.TCPAddr).IP.String())

	udp, err := a.ListenPacket("10.1.0.1:53")
	require.NoError(t, err)
	defer udp.Close()
	query, err := b.Dial("udp", "", "10.1.0.1:53")
	require.NoError(t, err)
	defer query.Close()
	for _, size := range []int{1, 850, 1472, 1473, 9000, 65000} {
		buffer := make([]byte, 1<<16)
		n := 0
		// On a busy machine a lane may be silent for so long that it does not count for a moment, and packets get lost. What
		// was sent twice may come twice.
		for tries := 0; n != size && tries < 20; tries++ {
			_, err = query.Write(content[:size])
			require.NoError(t, err)
			require.NoError(t, udp.SetReadDeadline(time.Now().Add(time.Second)))
			n, _ = udp.Read(buffer)
		}
		assert.True(t, bytes.Equal(content[:size], buffer[:n]), "%d bytes come as they were sent", size)
	}
	for _, trunk := range []*lane.Trunk{a.trunk, b.trunk} {
		assert.Zero(t, trunk.Status()[0].Dropped, "whatever the kernel makes is carried")
	}
}

func TestOnlyPinnedKeysGetALane(t *testing.T) {
	a, b := pair(t)
	other, err := lane.LoadIdentity(t.TempDir())
	require.NoError(t, err)
	for _, row := range []struct {
		name         string
		expected, by lane.Key // that a expects of b, and b of a
	}{
		{"the side that listens expects another key", other.Key, a.identity.Key},
		{"the side that dials expects another key", b.identity.Key, other.Key},
	} {
		t.Run(row.name, func(t *testing.T) {
			a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{row.expected}}})
			b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{row.by}}})
			require.Eventually(t, func() bool {
				problem := b.trunk.Status()[0].Problem
				return problem != "" && problem != "it has not yet answered"
			}, 10*time.Second, 10*time.Millisecond)
			time.Sleep(time.Second)
			assert.False(t, a.trunk.Up())
			assert.False(t, b.trunk.Up())
			a.trunk.Set(nil)
			b.trunk.Set(nil)
		})
	}
}

func TestKeysRotateWithoutALostLaneAndOldOnesAreCutOff(t *testing.T) {
	a, b := pair(t)
	next, err := lane.LoadIdentity(t.TempDir())
	require.NoError(t, err)
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.identity.Key, next.Key}}})
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.identity.Key, next.Key}}})
	awaitUp(t, true, a.trunk, b.trunk)
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.identity.Key}}})
	assert.True(t, b.trunk.Up(), "the key in use is still one of the keys")
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{next.Key}}})
	awaitUp(t, false, a.trunk, b.trunk)
}

func TestALaneThatIsCutIsNotUpAndComesBack(t *testing.T) {
	a, b := pair(t)
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.identity.Key}}})
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.identity.Key}}})
	awaitUp(t, true, a.trunk, b.trunk)
	require.NoError(t, a.SetLink("eth0", false))
	awaitUp(t, false, a.trunk, b.trunk)
	require.NoError(t, a.SetLink("eth0", true))
	awaitUp(t, true, a.trunk, b.trunk)
}

func TestAGatewayKeepsItsKey(t *testing.T) {
	dir := t.TempDir()
	first, err := lane.LoadIdentity(dir)
	require.NoError(t, err)
	again, err := lane.LoadIdentity(dir)
	require.NoError(t, err)
	assert.Equal(t, first.Key, again.Key)
	other, err := lane.LoadIdentity(t.TempDir())
	require.NoError(t, err)
	assert.NotEqual(t, first.Key, other.Key)
	text, err := first.Key.MarshalText()
	require.NoError(t, err)
	var read lane.Key
	require.NoError(t, read.UnmarshalText(text))
	assert.Equal(t, first.Key, read)
}

// TestAGatewayOfTheVersionBeforeIsToldNothingOfWireGuard: it would take that for a tick that says that it is not heard.
func TestAGatewayOfTheVersionBeforeIsToldNothingOfWireGuard(t *testing.T) {
	a, b := pair(t)
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.identity.Key}}})
	a.trunk.HearsBeside("b")
	for older, last := range []byte{3, 1} {
		ticks, err := lane.Ticks(t.Context(), b.server, "192.0.2.1:7473", a.identity.Key, older, 8)
		require.NoError(t, err)
		assert.Equal(t, last, ticks[7], "version %d before the newest: %v", older, ticks)
	}
}
