package main

import (
	"context"
	"fmt"
	"math/rand"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/lane"
)

// newLab makes clusters that are not joined. All pods answer. The test runs beside others from here on: nothing is shared but the program.
func newLab(t *testing.T, settings netlab.Settings) *netlab.Lab {
	t.Helper()
	netlab.Need(t)
	t.Parallel()
	var err error
	settings.Program, err = program()
	require.NoError(t, err)
	l, err := netlab.New(t.Context(), settings)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(l.Logs())
		}
		l.Close()
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for _, n := range l.Nodes() {
		for _, p := range n.Pods {
			require.NoError(t, p.Serve(ctx))
			if p.Address6.IsValid() {
				require.NoError(t, p.IPv6().Serve(ctx))
			}
		}
	}
	return l
}

// joined makes clusters that are joined, and waits until all nodes reach all.
func joined(t *testing.T, settings netlab.Settings) *netlab.Lab {
	t.Helper()
	l := newLab(t, settings)
	require.NoError(t, l.Join())
	await(t, l)
	return l
}

// await waits until each pod at home that may reaches each of the other clusters, and is reached.
func await(t *testing.T, l *netlab.Lab) {
	t.Helper()
	var there []*netlab.Node
	for _, c := range l.Clusters()[1:] {
		there = append(there, c.Nodes...)
	}
	for _, from := range l.Home.Nodes {
		for _, to := range there {
			for _, way := range [][2]*netlab.Node{{from, to}, {to, from}} {
				require.NoError(t, netlab.Hear(way[0].Pods[0].Namespace, way[1].Pods[0], patience), "%s does not reach %s", way[0].Name,
					way[1].Name)
			}
		}
	}
}

// askAgain is netlab.Ask for packets that have to come through: on a busy machine a lane may be silent for so long that
// it does not count for a moment, and packets get lost.
func askAgain(from *netlab.Namespace, to *netlab.Pod, content []byte) (seen string, err error) {
	for range 20 {
		if seen, err = netlab.Ask(from, "", to, content); err == nil {
			return seen, nil
		}
	}
	return seen, err
}

func content(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rand.Int())
	}
	return b
}

func TestPodsOfTwoClustersReachEachOther(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict %v", strict), func(t *testing.T) {
			l := joined(t, netlab.Settings{Strict: strict})
			for _, from := range l.Home.Nodes {
				for _, to := range l.West.Nodes {
					for _, way := range [][2]*netlab.Node{{from, to}, {to, from}} {
						caller, called := way[0].Pods[0], way[1].Pods[0]
						seen, err := netlab.Call(caller.Namespace, called, content(1<<20))
						if assert.NoError(t, err, "%s calls %s", caller.Name, called.Name) {
							assert.Equal(t, caller.Address.String(), seen, "its own address is seen, though the cluster's network masquerades")
						}
						for _, size := range []int{1, 850, 1400, 1472, 1473, 9000, 60000} {
							seen, err := askAgain(caller.Namespace, called, content(size))
							if assert.NoError(t, err, "%s asks %s with %d bytes", caller.Name, called.Name, size) {
								assert.Equal(t, caller.Address.String(), seen)
							}
						}
					}
				}
			}
		})
	}
}

// TestPodsReachEachOtherWhereNodesHaveNoRanges has pods of each node have addresses between those of the others.
func TestPodsReachEachOtherWhereNodesHaveNoRanges(t *testing.T) {
	t.Parallel()
	for _, settings := range []netlab.Settings{{Scattered: true, Strict: true}, {Scattered: true, OneRange: true}} {
		t.Run(fmt.Sprintf("one range %v, strict %v", settings.OneRange, settings.Strict), func(t *testing.T) {
			l := newLab(t, settings)
			before := states(t, l)
			require.NoError(t, l.Join())
			await(t, l)
			for i, from := range l.Home.Nodes {
				to := l.West.Nodes[(i+1)%3].Pods[0]
				reaches(t, from.Pods[0], to)
				reaches(t, to, from.Pods[0])
			}
			home, west := l.Home.Nodes[0], l.West.Nodes[0]
			unheard(t, map[string][2]*netlab.Pod{
				"a pod there that is not named reaches a pod here":   {west.Pods[1], home.Pods[0]},
				"a pod there reaches a pod here that is not named":   {west.Pods[0], home.Pods[1]},
				"a pod here that is not named reaches a pod there":   {home.Pods[1], west.Pods[0]},
				"a pod here that is not named reaches another there": {home.Pods[1], west.Pods[1]},
			})
			// One that comes has a route, and none once it is gone, and others are not disturbed.
			talk, err := netlab.NewTalk(home.Pods[0].Namespace, west.Pods[0])
			require.NoError(t, err)
			defer talk.Close()
			told, second := l.Site(l.Home), home.Pods[1]
			told.Remotes[0].Pods = append(told.Remotes[0].Pods, second.Address)
			told.Nodes[0].Pods = append(told.Nodes[0].Pods, netip.PrefixFrom(second.Address, 32))
			require.NoError(t, l.Tell(l.Home, told))
			require.NoError(t, netlab.Hear(west.Pods[0].Namespace, second, patience))
			require.NoError(t, l.Tell(l.Home, l.Site(l.Home)))
			require.Eventually(t, func() bool {
				_, err := netlab.Ask(west.Pods[0].Namespace, "", second, []byte("x"))
				return err != nil
			}, patience, 50*time.Millisecond)
			require.NoError(t, talk.GoesOn(patience))
			_, err = talk.Gap()
			require.NoError(t, err)
			part(t, l)
			requireStates(t, l, before)
		})
	}
}

func TestNobodyElseIsReached(t *testing.T) {
	l := joined(t, netlab.Settings{})
	home, west := l.Home.Nodes[0], l.West.Nodes[0]
	gateway := l.West.Nodes[1]
	inside, outside := home.Pods[0], home.Pods[1]
	refused := func(what string, from *netlab.Namespace, source string, to *netlab.Pod) {
		_, err := netlab.Ask(from, source, to, []byte("x"))
		assert.Error(t, err, what)
	}
	// What is refused here goes through where it is allowed.
	_, err := askAgain(west.Pods[0].Namespace, inside, []byte("x"))
	require.NoError(t, err)
	refused("a pod there that is not named reaches a pod here", west.Pods[1].Namespace, "", inside)
	refused("a pod there reaches a pod here that is not named", west.Pods[0].Namespace, "", outside)
	refused("a pod here that is not named reaches a pod there", outside.Namespace, "", west.Pods[0])
	refused("a pod here that is not named reaches another there", outside.Namespace, "", west.Pods[1])

	// A gateway there that is in the hands of somebody sends what it likes: nothing filters what it sends itself.
	device := plan.Device("home")
	require.NoError(t, gateway.Address4("lo", "10.2.0.77/32", "10.9.9.9/32", "10.1.0.3/32"))
	heard, err := inside.ListenPacket(netip.AddrPortFrom(inside.Address, 9001).String())
	require.NoError(t, err)
	defer heard.Close()
	says := func(source string, to netip.Addr) { say(t, gateway.Namespace, source, source, to) }
	says("10.9.9.9:1", inside.Address)
	says("10.1.0.3:1", inside.Address) // an address of home
	says(gateway.Address.String()+":1", inside.Address)
	buffer := make([]byte, 100)
	n := 0
	for tries := 0; n == 0 && tries < 20; tries++ {
		says("10.2.0.77:1", inside.Address)
		require.NoError(t, heard.SetReadDeadline(time.Now().Add(time.Second)))
		n, _ = heard.Read(buffer)
	}
	assert.Equal(t, "10.2.0.77:1", string(buffer[:n]), "only what comes from west's ranges arrives")

	// It reaches no node either, by none of their addresses.
	require.NoError(t, gateway.Route("172.30.1.0/24", "", device))
	for _, n := range l.Home.Nodes {
		for _, at := range []netip.Addr{n.Address, n.Range.Addr().Next()} {
			server, err := n.ListenPacket(netip.AddrPortFrom(at, 9002).String())
			require.NoError(t, err)
			conn, err := gateway.Dial("udp", "10.2.0.77:2", netip.AddrPortFrom(at, 9002).String())
			require.NoError(t, err)
			_, _ = conn.Write([]byte("x"))
			require.NoError(t, server.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
			_, err = server.Read(buffer)
			assert.Error(t, err, "a gateway there reaches %s of node %s", at, n.Name)
			_, _ = conn.Close(), server.Close()
		}
	}
}

// TestAHostilePeerReachesNoAPIServer has west take for ranges of home's pods what are none, so that pods there may call the API server of
// home, as far as west has a say: at the address of a node, at those that nodes have for their pods, and at that of its Service, which
// nodes translate.
func TestAHostilePeerReachesNoAPIServer(t *testing.T) {
	l := joined(t, netlab.Settings{})
	service := netip.MustParseAddrPort("10.96.0.1:443")
	// West's gateways would reach home's no more with a route to these in the fabric.
	targets := []netip.AddrPort{netip.AddrPortFrom(l.Home.Nodes[0].Address, 6443)}
	for _, n := range l.Home.Nodes {
		server, err := n.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 6443).String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = server.Close() })
		go func() {
			for {
				conn, err := server.Accept()
				if err != nil {
					return
				}
				_ = conn.Close()
			}
		}()
		targets = append(targets, netip.AddrPortFrom(n.Range.Addr().Next(), 6443))
	}
	for i, n := range l.Home.Nodes {
		at := netip.AddrPortFrom(n.Address, 6443)
		// Each node translates to the next one, and to itself.
		next := l.Home.Nodes[(i+1)%len(l.Home.Nodes)]
		require.NoError(t, n.Expose(service, netip.AddrPortFrom(next.Address, 6443)))
		require.NoError(t, n.Expose(netip.AddrPortFrom(service.Addr(), 444), at))
		for _, to := range []netip.AddrPort{at, service, netip.AddrPortFrom(service.Addr(), 444)} {
			conn, err := n.Pods[0].Dial("tcp", "", to.String())
			require.NoError(t, err, "what is refused below is there: a pod here reaches %s", to)
			_ = conn.Close()
		}
	}
	targets = append(targets, service, netip.AddrPortFrom(service.Addr(), 444), netip.MustParseAddrPort("169.254.74.72:6443"))
	told := l.Site(l.West)
	for _, more := range []string{"10.96.0.0/16", "169.254.74.72/32", l.Home.Nodes[0].Address.String() + "/32"} {
		told.Remotes[0].Ranges = append(told.Remotes[0].Ranges, netip.MustParsePrefix(more))
	}
	require.NoError(t, l.Tell(l.West, told))
	for _, n := range l.West.Nodes {
		require.Eventually(t, func() bool {
			state, err := n.State()
			return err == nil && strings.Contains(state, "10.96.0.0/16")
		}, patience, 50*time.Millisecond, "%s leads there", n.Name)
	}
	await(t, l)
	var dials sync.WaitGroup
	for _, n := range l.West.Nodes {
		for _, to := range targets {
			dials.Go(func() {
				conn, err := n.Pods[0].Dial("tcp", "", to.String())
				if !assert.Error(t, err, "a pod of %s reaches %s", n.Name, to) {
					_ = conn.Close()
				}
			})
		}
	}
	dials.Wait()
}

// TestAPeerIsNoWayToAThirdCluster has a gateway there take addresses of another cluster that home is joined with, and send to it.
func TestAPeerIsNoWayToAThirdCluster(t *testing.T) {
	l := newLab(t, netlab.Settings{})
	require.NoError(t, l.Join())
	told := l.Site(l.Home)
	third := told.Remotes[0]
	third.Name, third.Ranges = "east", []netip.Prefix{netip.MustParsePrefix("10.3.0.0/16")}
	third.Gateways = slices.Clone(third.Gateways)
	for i := range third.Gateways { // nobody answers there, and nobody has their keys
		third.Gateways[i].Address, third.Gateways[i].Keys = "192.0.2.99:7473", []lane.Key{{byte(i + 1)}}
	}
	told.Remotes = append(told.Remotes, third)
	require.NoError(t, l.Tell(l.Home, told))
	await(t, l)
	inside, gateway, device := l.Home.Nodes[0].Pods[0], l.West.Nodes[1], plan.Device("home")
	require.NoError(t, gateway.Address4("lo", "10.2.0.77/32", "10.3.0.5/32"))
	require.NoError(t, gateway.Route("10.3.0.0/17", "", device))
	heard, err := inside.ListenPacket(netip.AddrPortFrom(inside.Address, 9001).String())
	require.NoError(t, err)
	defer heard.Close()
	hears := func(source string) bool {
		conn, err := gateway.Dial("udp", source, netip.AddrPortFrom(inside.Address, 9001).String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, heard.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
		_, err = heard.Read(make([]byte, 10))
		return err == nil
	}
	require.Eventually(t, func() bool { return hears("10.2.0.77:1") }, patience, time.Millisecond, "as itself it is heard")
	for range 3 {
		assert.False(t, hears("10.3.0.5:1"), "west is taken for east")
	}
	// What home would send on to east would go into the lane to it, whose device counts what it is given.
	before := map[*netlab.Node]uint64{}
	for _, n := range l.Home.Nodes[1:] {
		before[n], err = n.Sent(plan.Device("east"))
		require.NoError(t, err)
	}
	for range 5 {
		conn, err := gateway.Dial("udp", "10.2.0.77:2", "10.3.0.9:9001")
		require.NoError(t, err)
		_, err = conn.Write([]byte("x"))
		require.NoError(t, err)
		_ = conn.Close()
	}
	require.Eventually(t, func() bool { return hears("10.2.0.77:1") }, patience, time.Millisecond, "all before it has arrived")
	for n, count := range before {
		now, err := n.Sent(plan.Device("east"))
		require.NoError(t, err)
		assert.Equal(t, count, now, "%s sends west's packets to east", n.Name)
	}
}

// TestPodsCannotSpeakThroughTheTunnel has a pod make packets of the tunnel itself, to have them taken for those of another pod.
func TestPodsCannotSpeakThroughTheTunnel(t *testing.T) {
	l := joined(t, netlab.Settings{})
	node := l.Home.Nodes[0]
	target := l.West.Nodes[0].Pods[0]
	heard, err := target.ListenPacket(netip.AddrPortFrom(target.Address, 9001).String())
	require.NoError(t, err)
	defer heard.Close()
	packet := tunneled(node.Pods[0].Address, target.Address, 9001, "forged")
	send := func(from *netlab.Namespace, source string) {
		for _, n := range l.Home.Nodes {
			conn, err := from.Dial("udp", source, netip.AddrPortFrom(n.Address, plan.TunnelPort).String())
			require.NoError(t, err)
			_, err = conn.Write(packet)
			require.NoError(t, err)
			_ = conn.Close()
		}
	}
	arrived := func() bool {
		_ = heard.SetReadDeadline(time.Now().Add(time.Second))
		_, err := heard.Read(make([]byte, 100))
		return err == nil
	}
	send(node.Namespace, "")
	require.True(t, arrived(), "the packet is right: a node may send it")
	for arrived() {
	}
	pod := node.Pods[1]
	send(pod.Namespace, "")
	assert.False(t, arrived(), "a pod's packet arrives")
	// With the address of a node, too.
	require.NoError(t, pod.Address4("lo", l.Home.Nodes[2].Address.String()+"/32"))
	conn, err := pod.Dial("udp", l.Home.Nodes[2].Address.String()+":7", netip.AddrPortFrom(l.Home.Nodes[1].Address, plan.TunnelPort).String())
	require.NoError(t, err)
	_, err = conn.Write(packet)
	require.NoError(t, err)
	assert.False(t, arrived(), "a pod's packet with a node's address arrives")
	// By a Service: whoever may write EndpointSlices has it lead to the tunnel of a node. What leaves for another node has the address of one.
	own, err := node.Pods[0].ListenPacket(netip.AddrPortFrom(node.Pods[0].Address, 9001).String())
	require.NoError(t, err)
	defer own.Close()
	forged := tunneled(target.Address, node.Pods[0].Address, 9001, "forged")
	for i, n := range l.Home.Nodes {
		service := netip.AddrPortFrom(netip.MustParseAddr("10.96.0.7"), uint16(53+i))
		require.NoError(t, node.Expose(service, netip.AddrPortFrom(n.Address, plan.TunnelPort)))
		conn, err := pod.Dial("udp", "", service.String())
		require.NoError(t, err)
		for _, one := range [][]byte{packet, forged} {
			_, err = conn.Write(one)
			require.NoError(t, err)
		}
		_ = conn.Close()
		assert.False(t, arrived(), "a pod's packet arrives by a Service that leads to %s", n.Name)
		_ = own.SetReadDeadline(time.Now().Add(time.Second))
		_, err = own.Read(make([]byte, 100))
		assert.Error(t, err, "a pod is taken for one of west's by a Service that leads to %s", n.Name)
	}
}

// TestNothingOfIPv6IsCarried has pods speak through the tunnel by IPv6, which the kernel listens at, too, and looks whether a node could be
// reached by a link of the network.
func TestNothingOfIPv6IsCarried(t *testing.T) {
	l := joined(t, netlab.Settings{})
	node := l.Home.Nodes[0]
	target, pod := node.Pods[0], node.Pods[1]
	heard, err := target.ListenPacket(netip.AddrPortFrom(target.Address, 9001).String())
	require.NoError(t, err)
	defer heard.Close()
	arrived := func() bool {
		_ = heard.SetReadDeadline(time.Now().Add(time.Second))
		_, err := heard.Read(make([]byte, 100))
		return err == nil
	}
	require.NoError(t, node.Namespace.Address("cni0", "fd00:1::1/64"))
	require.NoError(t, pod.Namespace.Address("eth0", "fd00:1::2/64"))
	require.NoError(t, pod.Route("fd00:96::/64", "fd00:1::1", "eth0"))
	service := netip.MustParseAddrPort("[fd00:96::7]:53")
	require.NoError(t, node.Expose(service, netip.AddrPortFrom(netip.MustParseAddr("fd00:1::1"), plan.TunnelPort)))
	other, err := node.ListenPacket("[::]:9002") // anything else arrives
	require.NoError(t, err)
	defer other.Close()
	packet := tunneled(l.West.Nodes[0].Pods[0].Address, target.Address, 9001, "forged")
	send := func(from *netlab.Namespace, to string) {
		if conn, err := from.Dial("udp", "", to); err == nil {
			_, _ = conn.Write(packet)
			_ = conn.Close()
		}
	}
	require.Eventually(t, func() bool {
		send(pod.Namespace, "[fd00:1::1]:9002")
		_ = other.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := other.Read(make([]byte, 100))
		return err == nil
	}, patience, time.Millisecond, "the pod reaches its node by IPv6")
	send(l.Home.Nodes[1].Namespace, netip.AddrPortFrom(node.Address, plan.TunnelPort).String())
	require.True(t, arrived(), "the packet is right: a node may send it, by IPv4")
	for range 3 {
		send(pod.Namespace, fmt.Sprintf("[fd00:1::1]:%d", plan.TunnelPort))
		send(node.Namespace, fmt.Sprintf("[::1]:%d", plan.TunnelPort))
		send(pod.Namespace, "[fd00:96::7]:53")
	}
	assert.False(t, arrived(), "the tunnel takes packets by IPv6")
	for _, n := range l.Nodes() {
		addresses, err := n.Addresses6("lode")
		require.NoError(t, err)
		assert.Empty(t, addresses, n.Name)
	}
}

func TestNoLaneIsOpenWithoutPacketFilters(t *testing.T) {
	l := newLab(t, netlab.Settings{})
	gateway := l.Home.Nodes[1]
	release, err := gateway.Occupy()
	require.NoError(t, err)
	require.NoError(t, l.Join())
	device := regexp.MustCompile(`(?m)^link \d+ ` + plan.Device("west") + " ")
	has := func(n *netlab.Node) bool {
		state, err := n.State()
		require.NoError(t, err)
		return device.MatchString(state)
	}
	require.Eventually(t, func() bool { return has(l.Home.Nodes[2]) }, patience, 50*time.Millisecond)
	refused := func() bool { return strings.Contains(gateway.Agent.Log(), "operation not permitted") }
	require.Eventually(t, refused, patience, 50*time.Millisecond)
	for range 20 {
		assert.False(t, has(gateway), "a lane is open")
		time.Sleep(50 * time.Millisecond)
	}
	release()
	awaitLanes(t, l)
	await(t, l)
}

// tunneled is a UDP packet inside of VXLAN-GPE.
func tunneled(from, to netip.Addr, port uint16, text string) []byte {
	vxlan := []byte{0x0c, 0, 0, 1, 0, byte(plan.TunnelID >> 8), byte(plan.TunnelID & 0xff), 0} // next protocol: IPv4
	ip := []byte{0x45, 0, 0, byte(28 + len(text)), 0, 0, 0, 0, 64, 17, 0, 0}
	ip = append(append(ip, from.AsSlice()...), to.AsSlice()...)
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	ip[10], ip[11] = byte(^sum>>8), byte(^sum)
	udp := []byte{0, 1, byte(port >> 8), byte(port), 0, byte(8 + len(text)), 0, 0} // no checksum
	return append(append(append(vxlan, ip...), udp...), text...)
}

func TestConnectionsSurviveTheLossOfAGateway(t *testing.T) {
	t.Parallel()
	kill := func(_ *netlab.Lab, n *netlab.Node) error { n.Kill(); return nil }
	start := func(l *netlab.Lab, n *netlab.Node) error { return l.Start(n) }
	for _, row := range []struct {
		name       string
		settings   netlab.Settings
		lose, back func(l *netlab.Lab, n *netlab.Node) error
	}{
		{"its agent is killed", netlab.Settings{Strict: true}, kill, start},
		{"its agent is killed, and addresses are translated", netlab.Settings{OneRange: true}, kill, start},
		{"its agent is killed, and pods talk by IPv6", netlab.Settings{Dual: true}, kill, start},
		{"its cable is cut", netlab.Settings{Strict: true},
			func(_ *netlab.Lab, n *netlab.Node) error { return n.Cut(true) },
			func(_ *netlab.Lab, n *netlab.Node) error { return n.Cut(false) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.name == "its agent is killed" {
				testbed.NotInShort(t) // the one with translation is like it
			}
			l := joined(t, row.settings)
			from, to := l.Home.Nodes[0].Pods[0], l.West.Nodes[0].Pods[0]
			if row.settings.Dual {
				await6(t, l)
				to = to.IPv6()
			}
			talk, err := netlab.NewTalk(from.Namespace, to)
			require.NoError(t, err)
			defer talk.Close()
			// Each gateway in turn, so that those that are in use are among them.
			for _, c := range []*netlab.Cluster{l.Home, l.West} {
				for _, n := range c.Nodes[1:] {
					awaitLanes(t, l)
					_, err = talk.Gap()
					require.NoError(t, err)
					require.NoError(t, row.lose(l, n))
					time.Sleep(time.Second)
					require.NoError(t, talk.GoesOn(patience), "nothing goes on")
					gap, err := talk.Gap()
					require.NoError(t, err, "the connection is kept")
					t.Logf("%s: %s: %v without an answer", n.Name, row.name, gap)
					require.NoError(t, row.back(l, n))
				}
			}
		})
	}
}

// TestAGatewayChangesItsKeyAndNoConnectionIsLost has gateways of both clusters get other keys while pods talk, one of them twice: it is
// killed in between.
func TestAGatewayChangesItsKeyAndNoConnectionIsLost(t *testing.T) {
	l := joined(t, netlab.Settings{})
	awaitLanes(t, l)
	var talks []*netlab.Talk
	for i := range 2 {
		talk, err := netlab.NewTalk(l.Home.Nodes[i].Pods[0].Namespace, l.West.Nodes[0].Pods[0])
		require.NoError(t, err)
		t.Cleanup(talk.Close)
		talks = append(talks, talk)
	}
	tell := func() {
		require.NoError(t, l.Keys())
		for _, c := range l.Clusters() {
			require.NoError(t, l.Tell(c, l.Site(c)))
		}
	}
	for _, row := range []struct {
		n     *netlab.Node
		kills bool
	}{{l.Home.Nodes[1], false}, {l.West.Nodes[1], false}, {l.West.Nodes[2], true}} {
		before := row.n.Keys[0]
		require.NoError(t, l.Rotate(row.n))
		require.Len(t, row.n.Keys, 2)
		if row.kills {
			row.n.Kill()
			require.NoError(t, l.Start(row.n))
		}
		tell()
		require.Eventually(t, func() bool {
			assert.NoError(t, l.KeysOf(row.n))
			return len(row.n.Keys) == 1 && row.n.Keys[0] != before
		}, patience, 500*time.Millisecond, "%s keeps its key", row.n.Name)
		tell()
		awaitLanes(t, l)
		for _, talk := range talks {
			require.NoError(t, talk.GoesOn(patience))
			gap, err := talk.Gap()
			require.NoError(t, err, "the connection is kept")
			t.Logf("%s: %v without an answer", row.n.Name, gap)
		}
	}
}

func TestAGatewayIsReadyOnceItsLanesAreUp(t *testing.T) {
	l := newLab(t, netlab.Settings{})
	require.NoError(t, l.Keys())
	for _, c := range l.Clusters() {
		require.NoError(t, l.Tell(c, l.Site(c)))
	}
	node, gateway := l.Home.Nodes[0], l.Home.Nodes[1]
	ready := func(n *netlab.Node) func() bool {
		return func() bool {
			is, err := n.Ready()
			return err == nil && is
		}
	}
	require.NoError(t, l.Start(gateway))
	require.NoError(t, l.Start(node))
	require.Eventually(t, ready(node), patience, 50*time.Millisecond, "which has no lanes")
	began := time.Now()
	for time.Since(began) < 2*time.Second {
		assert.False(t, ready(gateway)(), "nobody answers its gateways yet")
	}
	require.NoError(t, l.Start(l.West.Nodes[1]))
	require.Eventually(t, ready(gateway), patience, 50*time.Millisecond)
	require.Eventually(t, ready(l.West.Nodes[1]), patience, 50*time.Millisecond)
}

// awaitLanes waits until each gateway reaches each of the other cluster.
func awaitLanes(t *testing.T, l *netlab.Lab) {
	t.Helper()
	for _, n := range l.Nodes() {
		if n.Gateway {
			require.Eventually(t, func() bool {
				up, err := n.Lanes()
				return err == nil && up == 2
			}, patience, 50*time.Millisecond, "%s lacks lanes", n.Name)
		}
	}
}

func TestPacketsGoOnWhileAnAgentIsRestarted(t *testing.T) {
	l := joined(t, netlab.Settings{Dual: true})
	await6(t, l)
	node := l.Home.Nodes[0]
	talk, err := netlab.NewTalk(node.Pods[0].Namespace, l.West.Nodes[0].Pods[0])
	require.NoError(t, err)
	defer talk.Close()
	before, err := node.State()
	require.NoError(t, err)
	node.Kill()
	time.Sleep(time.Second)
	require.NoError(t, l.Start(node))
	require.Eventually(t, func() bool {
		return strings.Contains(node.Agent.Log(), "reached through a gateway")
	}, patience, 10*time.Millisecond)
	time.Sleep(time.Second)
	after, err := node.State()
	require.NoError(t, err)
	assert.Equal(t, before, after, "what was right is not touched: not even handles of rules differ")
	_, err = talk.Gap()
	assert.NoError(t, err)
	_, err = netlab.Call(node.Pods[0].Namespace, l.West.Nodes[0].Pods[0], content(1000))
	assert.NoError(t, err)
}

func TestWhatOthersChangeIsPutRight(t *testing.T) {
	l := joined(t, netlab.Settings{Dual: true})
	await6(t, l)
	for _, n := range []*netlab.Node{l.Home.Nodes[0], l.Home.Nodes[1]} {
		before, err := n.State()
		require.NoError(t, err)
		n.Kill()
		require.NoError(t, n.Spoil())
		spoiled, err := n.State()
		require.NoError(t, err)
		require.NotEqual(t, before, spoiled)
		require.NoError(t, l.Start(n))
		var after string
		assert.Eventually(t, func() bool {
			after, err = n.State()
			return err == nil && withoutNumbers(after) == withoutNumbers(before)
		}, patience, 50*time.Millisecond)
		assert.Equal(t, withoutNumbers(before), withoutNumbers(after))
	}
	await(t, l)
	await6(t, l)
}

// numbers are those that the kernel gives.
var numbers = regexp.MustCompile(`link \d+|handle \d+|Ifindex: \d+`)

func withoutNumbers(state string) string {
	lines := strings.Split(numbers.ReplaceAllString(state, ""), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestPodsComeAndGo(t *testing.T) {
	l := joined(t, netlab.Settings{})
	node, to := l.Home.Nodes[0], l.West.Nodes[0].Pods[0]
	second := node.Pods[1]
	told := l.Site(l.Home)
	told.Remotes[0].Pods = append(told.Remotes[0].Pods, second.Address)
	require.NoError(t, l.Tell(l.Home, told))
	require.NoError(t, netlab.Hear(second.Namespace, to, patience))
	talk, err := netlab.NewTalk(node.Pods[0].Namespace, to)
	require.NoError(t, err)
	defer talk.Close()
	require.NoError(t, l.Tell(l.Home, l.Site(l.Home)))
	require.Eventually(t, func() bool {
		_, err := netlab.Ask(second.Namespace, "", to, []byte("x"))
		return err != nil
	}, patience, 50*time.Millisecond)
	_, err = talk.Gap()
	assert.NoError(t, err, "others are not disturbed")
}

// TestFromRoutedToTheFabricAndBackDropsNoConnection begins with clusters that are routed already: the nodes are then as they were, and what
// was open goes on all the time.
func TestFromRoutedToTheFabricAndBackDropsNoConnection(t *testing.T) {
	l := newLab(t, netlab.Settings{})
	require.NoError(t, l.Unmask())
	require.NoError(t, l.Plain())
	var talks []*netlab.Talk
	for _, way := range [][2]*netlab.Node{{l.Home.Nodes[0], l.West.Nodes[0]}, {l.West.Nodes[2], l.Home.Nodes[1]}} {
		talk, err := netlab.NewTalk(way[0].Pods[0].Namespace, way[1].Pods[0])
		require.NoError(t, err)
		t.Cleanup(talk.Close)
		talks = append(talks, talk)
	}
	goOn := func(when string) {
		for i, talk := range talks {
			require.NoError(t, talk.GoesOn(patience), "connection %d goes on %s", i, when)
			gap, err := talk.Gap()
			require.NoError(t, err, "connection %d is kept %s", i, when)
			t.Logf("%s: connection %d: %v without an answer", when, i, gap)
		}
	}
	before := states(t, l)
	goOn("before")
	require.NoError(t, l.Join())
	awaitLanes(t, l)
	for _, n := range l.Nodes() {
		require.Eventually(t, func() bool {
			state, err := n.State()
			return err == nil && strings.Contains(state, "table 7472")
		}, patience, 50*time.Millisecond, "%s takes the fabric", n.Name)
	}
	goOn("through the fabric")
	part(t, l)
	requireStates(t, l, before)
	goOn("routed again")
}

// states are those of all nodes.
func states(t *testing.T, l *netlab.Lab) map[*netlab.Node]string {
	t.Helper()
	all := map[*netlab.Node]string{}
	for _, n := range l.Nodes() {
		state, err := n.State()
		require.NoError(t, err)
		all[n] = state
	}
	return all
}

// requireStates waits until all nodes are as they were.
func requireStates(t *testing.T, l *netlab.Lab, were map[*netlab.Node]string) {
	t.Helper()
	for _, n := range l.Nodes() {
		var state string
		assert.Eventually(t, func() bool {
			var err error
			state, err = n.State()
			return err == nil && state == were[n]
		}, patience, 50*time.Millisecond)
		assert.Equal(t, were[n], state, n.Name)
	}
}

// part has all clusters told of no other one, which is what is left when a NetworkLink is deleted: by unpeer, or by another podNetwork.
func part(t *testing.T, l *netlab.Lab) {
	t.Helper()
	for _, c := range l.Clusters() {
		alone := l.Site(c)
		alone.Remotes = nil
		require.NoError(t, l.Tell(c, alone))
	}
}

func TestNothingIsLeftOnAnyNode(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		remove func(t *testing.T, l *netlab.Lab)
	}{
		{"the clusters part", part},
		{"agents are killed, and all is removed", func(t *testing.T, l *netlab.Lab) {
			for _, n := range l.Nodes() {
				n.Kill()
				require.NoError(t, l.Remove(n))
				require.NoError(t, l.Remove(n), "again")
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, netlab.Settings{Dual: true})
			before := states(t, l)
			require.NoError(t, l.Join())
			await(t, l)
			await6(t, l)
			for n, state := range states(t, l) {
				require.NotEqual(t, before[n], state)
			}
			row.remove(t, l)
			requireStates(t, l, before)
		})
	}
}

// say sends words to port 9001 of an address by UDP, from a source that may be anybody's.
func say(t *testing.T, in *netlab.Namespace, source, words string, to netip.Addr) {
	t.Helper()
	conn, err := in.Dial("udp", source, netip.AddrPortFrom(to, 9001).String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(words))
	require.NoError(t, err)
}
