package lane_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
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
	keys   *lane.Keys
	key    lane.Key
	server *lane.Server
	trunk  *lane.Trunk
}

func newEnd(t *testing.T, name string) *end {
	t.Helper()
	n, err := netlab.NewNamespace(name)
	require.NoError(t, err)
	t.Cleanup(n.Close)
	e := &end{Namespace: n}
	e.keys = lane.NewKeys(t.TempDir())
	e.key = e.published(t)[0]
	return e
}

func (e *end) published(t *testing.T) []lane.Key {
	t.Helper()
	published, err := e.keys.Published()
	require.NoError(t, err)
	return published
}

// open begins to listen and makes the device.
func (e *end) open(t *testing.T, listen string) {
	t.Helper()
	require.NoError(t, e.In(func() (err error) {
		if e.server, err = lane.NewServer(context.Background(), e.keys, listen); err != nil {
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

// pair makes two ends whose trunks have the addresses 10.1.0.1 and 10.2.0.1. The second one dials. The test runs beside others from here
// on.
func pair(t *testing.T) (a, b *end) {
	t.Helper()
	netlab.Need(t)
	t.Parallel()
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
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.key}}})
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.key}}})
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
	other := keyOf(t, t.TempDir())
	for _, row := range []struct {
		name         string
		expected, by lane.Key // that a expects of b, and b of a
	}{
		{"the side that listens expects another key", other, a.key},
		{"the side that dials expects another key", b.key, other},
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

func TestAKeyThatIsTakenAwayIsCutOff(t *testing.T) {
	a, b := pair(t)
	next := keyOf(t, t.TempDir())
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.key, next}}})
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.key, next}}})
	awaitUp(t, true, a.trunk, b.trunk)
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.key}}})
	assert.True(t, b.trunk.Up(), "the key in use is still one of the keys")
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{next}}})
	awaitUp(t, false, a.trunk, b.trunk)
}

func TestALaneThatIsCutIsNotUpAndComesBack(t *testing.T) {
	a, b := pair(t)
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.key}}})
	b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: []lane.Key{a.key}}})
	awaitUp(t, true, a.trunk, b.trunk)
	require.NoError(t, a.SetLink("eth0", false))
	awaitUp(t, false, a.trunk, b.trunk)
	for _, trunk := range []*lane.Trunk{a.trunk, b.trunk} {
		require.NotEmpty(t, trunk.Status()[0].Problem)
	}
	require.NoError(t, a.SetLink("eth0", true))
	awaitUp(t, true, a.trunk, b.trunk)
}

func keyOf(t *testing.T, dir string) lane.Key {
	t.Helper()
	published, err := lane.NewKeys(dir).Published()
	require.NoError(t, err)
	require.Len(t, published, 1)
	return published[0]
}

func TestAGatewayKeepsItsKey(t *testing.T) {
	dir := t.TempDir()
	first := keyOf(t, dir)
	assert.Equal(t, first, keyOf(t, dir))
	assert.NotEqual(t, first, keyOf(t, t.TempDir()))
	text, err := first.MarshalText()
	require.NoError(t, err)
	var read lane.Key
	require.NoError(t, read.UnmarshalText(text))
	assert.Equal(t, first, read)
}

// TestAKeyChangesWhilePacketsGo has both ends change their keys while a connection through the lane is under load, one after the other and
// both at once.
func TestAKeyChangesWhilePacketsGo(t *testing.T) {
	a, b := pair(t)
	told := func() {
		a.trunk.Set([]lane.Peer{{Name: "b", Keys: b.published(t)}})
		b.trunk.Set([]lane.Peer{{Name: "a", Address: "192.0.2.1:7473", Keys: a.published(t)}})
	}
	told()
	awaitUp(t, true, a.trunk, b.trunk)
	listener, err := a.Listen("10.1.0.1:80")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	conn, err := b.Dial("tcp", "", "10.1.0.1:80")
	require.NoError(t, err)
	defer conn.Close()
	ctx, stop := context.WithCancel(t.Context())
	sent, received := sha256.New(), sha256.New()
	go func() {
		buffer := make([]byte, 1<<16)
		for ctx.Err() == nil {
			_, _ = rand.Read(buffer)
			_, _ = sent.Write(buffer)
			if _, err := conn.Write(buffer); err != nil {
				return
			}
		}
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	came := make(chan error, 1)
	go func() {
		_, err := io.Copy(received, conn)
		came <- err
	}()

	for _, turn := range [][]*end{{a}, {b}, {a, b}} {
		before := map[*end]lane.Key{}
		for _, e := range turn {
			before[e] = e.published(t)[0]
			require.NoError(t, e.keys.Begin())
		}
		rounds := 0
		require.Eventually(t, func() bool {
			rounds++
			for _, e := range turn {
				assert.NoError(t, e.server.Rotate(0))
			}
			if rounds > 3 { // others are told a while later
				told()
			}
			for _, e := range turn {
				if published := e.published(t); len(published) != 1 || published[0] == before[e] {
					return false
				}
			}
			return true
		}, 60*time.Second, 100*time.Millisecond, "the keys do not change")
		assert.Greater(t, rounds, 3, "not before they are known")
		told()
		for _, e := range []*end{a, b} {
			awaitUp(t, true, e.trunk)
			assert.Equal(t, e.published(t), e.trunk.Status()[0].Own, "nothing is left of the old key")
		}
	}
	stop()
	require.NoError(t, <-came, "the connection is kept")
	assert.Equal(t, sent.Sum(nil), received.Sum(nil), "and nothing in it is lost")
}

// TestAGatewayOfTheVersionBeforeIsToldNothingOfWireGuard, nor of keys: it would take that for something else, and end the connection.
func TestAGatewayOfTheVersionBeforeIsToldNothingOfWireGuard(t *testing.T) {
	a, b := pair(t)
	a.trunk.Set([]lane.Peer{{Name: "b", Keys: []lane.Key{b.key}}})
	a.trunk.HearsBeside("b")
	for older, expected := range []byte{3, 1} {
		ticks, err := lane.Ticks(t.Context(), b.server, "192.0.2.1:7473", a.key, older, 8)
		require.NoError(t, err)
		var told byte // a tick of a moment in which nothing was heard lacks a bit
		for _, tick := range ticks {
			told |= tick
		}
		assert.Equal(t, expected, told, "version %d before the newest: %v", older, ticks)
	}
}
