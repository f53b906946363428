package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/site"
)

// guarded makes clusters that are joined by WireGuard, and waits until that carries all packets.
func guarded(t *testing.T, settings netlab.Settings) *netlab.Lab {
	t.Helper()
	settings.WireGuard = true
	l := newLab(t, settings)
	require.NoError(t, l.ProvideWireGuard())
	require.NoError(t, l.Join())
	await(t, l)
	awaitWireGuard(t, l, true)
	return l
}

// awaitWireGuard waits until gateways of all clusters send by WireGuard, or by TLS.
func awaitWireGuard(t *testing.T, l *netlab.Lab, is bool) {
	t.Helper()
	for _, c := range l.Clusters() {
		for _, r := range l.Site(c).Remotes {
			for _, n := range c.Nodes {
				if n.Gateway {
					require.Eventually(t, func() bool { return n.Sends(plan.WireGuardDevice(r.Name)) == is }, patience, 50*time.Millisecond,
						"%s sends by WireGuard to %s: %v", n.Name, r.Name, is)
				}
			}
		}
	}
}

func TestWireGuardCarriesBetweenGateways(t *testing.T) {
	l := guarded(t, netlab.Settings{Strict: true, Dual: true})
	await6(t, l)
	reaches(t, l.Home.Nodes[0].Pods[0].IPv6(), l.West.Nodes[1].Pods[0].IPv6())
	reaches(t, l.West.Nodes[2].Pods[0].IPv6(), l.Home.Nodes[1].Pods[0].IPv6())
	for _, from := range l.Home.Nodes {
		for _, to := range l.West.Nodes {
			for _, way := range [][2]*netlab.Node{{from, to}, {to, from}} {
				caller, called := way[0].Pods[0], way[1].Pods[0]
				seen, err := netlab.Call(caller.Namespace, called, content(1<<20))
				if assert.NoError(t, err, "%s calls %s", caller.Name, called.Name) {
					assert.Equal(t, caller.Address.String(), seen)
				}
				for _, size := range []int{1, 850, 1392, 1393, 1472, 9000, 60000} {
					seen, err := askAgain(caller.Namespace, called, content(size))
					if assert.NoError(t, err, "%s asks %s with %d bytes", caller.Name, called.Name, size) {
						assert.Equal(t, caller.Address.String(), seen)
					}
				}
			}
		}
	}
	awaitWireGuard(t, l, true)
}

func TestWireGuardCarriesFromOneRemoteClusterToAnother(t *testing.T) {
	l := guarded(t, netlab.Settings{Three: true, Transit: true})
	for _, way := range [][2]*netlab.Node{{l.West.Nodes[0], l.East.Nodes[0]}, {l.East.Nodes[1], l.West.Nodes[2]}} {
		caller, called := way[0].Pods[0], way[1].Pods[0]
		for _, size := range []int{1, 1392, 9000} {
			seen, err := askAgain(caller.Namespace, called, content(size))
			if assert.NoError(t, err, "%s asks %s with %d bytes", caller.Name, called.Name, size) {
				assert.Equal(t, caller.Address.String(), seen)
			}
		}
		_, err := netlab.Call(caller.Namespace, called, content(1<<20))
		assert.NoError(t, err, "%s calls %s", caller.Name, called.Name)
	}
	_, err := netlab.Ask(l.West.Nodes[0].Pods[1].Namespace, "", l.East.Nodes[0].Pods[0], []byte("x"))
	assert.Error(t, err, "a pod that is not named")
	awaitWireGuard(t, l, true)
}

// talks are connections that are open both ways.
func talks(t *testing.T, l *netlab.Lab) (all []*netlab.Talk) {
	t.Helper()
	for _, way := range [][2]*netlab.Node{{l.Home.Nodes[0], l.West.Nodes[0]}, {l.West.Nodes[2], l.Home.Nodes[1]}} {
		talk, err := netlab.NewTalk(way[0].Pods[0].Namespace, way[1].Pods[0])
		require.NoError(t, err)
		t.Cleanup(talk.Close)
		all = append(all, talk)
	}
	return all
}

// goOn says that connections are kept, and that none was without an answer for longer than that.
func goOn(t *testing.T, all []*netlab.Talk, when string, longest time.Duration) {
	t.Helper()
	for i, talk := range all {
		require.NoError(t, talk.GoesOn(patience), "connection %d goes on %s", i, when)
		gap, err := talk.Gap()
		require.NoError(t, err, "connection %d is kept %s", i, when)
		t.Logf("%s: connection %d: %v without an answer", when, i, gap)
		assert.Less(t, gap, longest, "connection %d %s", i, when)
	}
}

// hidden is how long a packet may be lost on a busy machine without anybody minding: TCP sends it again.
const hidden = 3 * time.Second

func TestFromTLSToWireGuardAndBackDropsNoConnection(t *testing.T) {
	l := joined(t, netlab.Settings{})
	awaitLanes(t, l)
	all := talks(t, l)
	goOn(t, all, "by TLS", hidden)
	tell := func(wireGuard bool) {
		l.WireGuard = wireGuard
		require.NoError(t, l.Keys())
		for _, c := range l.Clusters() {
			require.NoError(t, l.Tell(c, l.Site(c)))
		}
		awaitWireGuard(t, l, wireGuard)
	}
	require.NoError(t, l.ProvideWireGuard())
	tell(true)
	goOn(t, all, "by WireGuard", hidden)
	tell(false)
	for _, c := range l.Clusters() {
		for _, n := range c.Nodes[1:] {
			require.Eventually(t, func() bool { return !n.HasLink(plan.WireGuardDevice(l.Site(c).Remotes[0].Name)) }, patience,
				50*time.Millisecond, "%s has WireGuard no longer", n.Name)
		}
	}
	goOn(t, all, "by TLS again", hidden)
}

// TestPacketsGoOnByWireGuardWhileAgentsOfGatewaysAreRestarted has all gateways of home without a program for a while, so that nothing goes
// by TLS any more.
func TestPacketsGoOnByWireGuardWhileAgentsOfGatewaysAreRestarted(t *testing.T) {
	l := guarded(t, netlab.Settings{})
	all := talks(t, l)
	for _, n := range l.Home.Nodes[1:] {
		n.Kill()
	}
	goOn(t, all, "while nobody looks after it", hidden)
	time.Sleep(5 * time.Second)
	goOn(t, all, "and later", hidden)
	for _, n := range l.Home.Nodes[1:] {
		require.NoError(t, l.Start(n))
	}
	awaitLanes(t, l)
	awaitWireGuard(t, l, true)
	goOn(t, all, "once programs run again", hidden)
}

func TestConnectionsByWireGuardSurviveTheLossOfAGateway(t *testing.T) {
	l := guarded(t, netlab.Settings{})
	all := talks(t, l)
	goOn(t, all, "before", hidden)
	for _, n := range []*netlab.Node{l.Home.Nodes[1], l.Home.Nodes[2], l.West.Nodes[1], l.West.Nodes[2]} {
		require.NoError(t, n.Cut(true))
		time.Sleep(time.Second)
		goOn(t, all[:1], n.Name+" is cut off", hidden)
		require.NoError(t, n.Cut(false))
		awaitLanes(t, l)
		awaitWireGuard(t, l, true)
	}
}

// TestTLSCarriesWhereWireGuardDoesNot loses what home sends by WireGuard, while what it is sent still comes, and then takes WireGuard from
// a gateway, where the kernel cannot give it again.
func TestTLSCarriesWhereWireGuardDoesNot(t *testing.T) {
	l := guarded(t, netlab.Settings{})
	gateway, partner := l.Home.Nodes[1], l.West.Nodes[1]
	all := talks(t, l)
	goOn(t, all, "by WireGuard", hidden)
	byTLS := func(said string) func() bool {
		return func() bool {
			return gateway.Sends(plan.Device("west")) && partner.Sends(plan.Device("home")) && strings.Contains(gateway.Agent.Log(), said) &&
				strings.Contains(partner.Agent.Log(), "nothing comes through by WireGuard between this gateway and "+gateway.Name)
		}
	}
	require.NoError(t, partner.LoseUDP(7477, true))
	require.Eventually(t, byTLS("see whether packets come through to UDP port 7477 there"), patience, 50*time.Millisecond,
		"both gateways send by TLS, and say why")
	assert.True(t, l.Home.Nodes[2].Sends(plan.WireGuardDevice("west")), "others are not concerned")
	goOn(t, all, "while UDP is lost", hidden)
	require.NoError(t, partner.LoseUDP(7477, false))
	awaitWireGuard(t, l, true)
	goOn(t, all, "by WireGuard again", hidden)
	if !gateway.HasWireGuard() {
		require.NoError(t, gateway.RemoveLink(plan.WireGuardDevice("west")))
		require.Eventually(t, byTLS("the kernel of this node has no WireGuard"), patience, 50*time.Millisecond)
		goOn(t, all, "without WireGuard", hidden)
	}
}

func TestNoWireGuardStaysWithoutPacketFilters(t *testing.T) {
	l := newLab(t, netlab.Settings{WireGuard: true})
	require.NoError(t, l.ProvideWireGuard())
	gateway := l.Home.Nodes[1]
	release, err := gateway.Occupy()
	require.NoError(t, err)
	defer release()
	require.NoError(t, l.Join())
	require.Eventually(t, func() bool {
		return strings.Contains(gateway.Agent.Log(), "operation not permitted") && !gateway.HasLink(plan.WireGuardDevice("west"))
	}, patience, 50*time.Millisecond, "what an agent before has left is still open")
	require.Eventually(t, func() bool { return l.Home.Nodes[2].Sends(plan.WireGuardDevice("west")) }, patience, 50*time.Millisecond)
}

// TestNoWireGuardIsOpenWhileItIsTakenAway has west parted from home while no program runs on a gateway, whose link to west stays: west's
// gateway sends all the time, to a pod that is not named.
func TestNoWireGuardIsOpenWhileItIsTakenAway(t *testing.T) {
	l := guarded(t, netlab.Settings{Three: true})
	gateway, hostile := l.Home.Nodes[1], l.West.Nodes[1]
	require.NoError(t, hostile.Address4("lo", "10.2.0.77/32"))
	hostile.Kill() // what it sends goes by WireGuard from now on
	gateway.Kill()
	told := l.Site(l.Home)
	told.Remotes = slices.DeleteFunc(told.Remotes, func(r site.Remote) bool { return r.Name == "west" })
	require.NoError(t, l.Tell(l.Home, told))
	// Sends to a pod until something is true, and says whether the pod has heard anything.
	sends := func(to *netlab.Pod, until func() bool) bool {
		heard, err := to.ListenPacket(netip.AddrPortFrom(to.Address, 9001).String())
		require.NoError(t, err)
		defer heard.Close()
		require.Eventually(t, func() bool {
			say(t, hostile.Namespace, "10.2.0.77:1", "x", to.Address)
			return until()
		}, patience, 5*time.Millisecond)
		require.NoError(t, heard.SetReadDeadline(time.Now().Add(time.Second)))
		_, err = heard.Read(make([]byte, 10))
		return err == nil
	}
	times := 0
	require.True(t, sends(gateway.Pods[0], func() bool { times++; return times > 5 }), "one that is named is reached")
	require.NoError(t, l.Start(gateway))
	assert.False(t, sends(gateway.Pods[1], func() bool { return !gateway.HasLink(plan.WireGuardDevice("west")) }),
		"west, which is not joined any more, reaches a pod that is not named")
}

// TestWireGuardKnowsNoStranger has a gateway come with another key than the one that the other cluster is told of.
func TestWireGuardKnowsNoStranger(t *testing.T) {
	l := guarded(t, netlab.Settings{})
	gateway, partner := l.West.Nodes[1], l.Home.Nodes[1]
	all := talks(t, l)
	gateway.Kill()
	require.NoError(t, gateway.ForgetWireGuardKey())
	require.NoError(t, l.Start(gateway))
	byTLS := func() bool { return gateway.Sends(plan.Device("home")) && partner.Sends(plan.Device("west")) }
	require.Eventually(t, byTLS, patience, 50*time.Millisecond)
	for range 20 { // it tries all the time
		time.Sleep(100 * time.Millisecond)
		require.True(t, byTLS(), "a gateway with another key is taken for the one that was named")
	}
	goOn(t, all, "by TLS", hidden)
	require.NoError(t, l.Keys())
	require.NoError(t, l.Tell(l.Home, l.Site(l.Home)))
	awaitWireGuard(t, l, true)
	goOn(t, all, "once the key is told", hidden)
}

// TestAGatewayChangesItsWireGuardKeyAndNoConnectionIsLost has one get another key while its program runs, and while it does not.
func TestAGatewayChangesItsWireGuardKeyAndNoConnectionIsLost(t *testing.T) {
	l := guarded(t, netlab.Settings{})
	gateway, partner := l.West.Nodes[1], l.Home.Nodes[1]
	all := talks(t, l)
	goOn(t, all, "before", hidden)
	for _, runs := range []bool{true, false} {
		when := "its program runs"
		if !runs {
			when = "its program does not"
			gateway.Kill()
		}
		require.NoError(t, l.RotateWireGuard(gateway))
		if !runs {
			require.NoError(t, l.Start(gateway))
		}
		require.Eventually(t, func() bool { return gateway.Sends(plan.Device("home")) && partner.Sends(plan.Device("west")) }, patience,
			50*time.Millisecond, "TLS carries until home is told of the key that was changed while %s", when)
		goOn(t, all, "the key was changed while "+when, hidden)
		require.NoError(t, l.Tell(l.Home, l.Site(l.Home)))
		awaitWireGuard(t, l, true)
		goOn(t, all, "by the key that was changed while "+when, hidden)
	}
}

// TestNobodyElseIsReachedByWireGuard has a gateway there send what it likes: nothing filters what it sends itself.
func TestNobodyElseIsReachedByWireGuard(t *testing.T) {
	l := guarded(t, netlab.Settings{})
	gateway, inside, outside := l.West.Nodes[1], l.Home.Nodes[1].Pods[0], l.Home.Nodes[1].Pods[1]
	require.NoError(t, gateway.Address4("lo", "10.2.0.77/32", "10.9.9.9/32", "10.1.0.3/32"))
	node := l.Home.Nodes[0]
	told := l.Site(l.West) // as far as west has a say, this node is a pod
	told.Remotes[0].Ranges = append(told.Remotes[0].Ranges, netip.PrefixFrom(node.Address, 32))
	require.NoError(t, l.Tell(l.West, told))
	require.Eventually(t, func() bool {
		state, err := gateway.State()
		return err == nil && strings.Contains(state, node.Address.String()+"/32")
	}, patience, 50*time.Millisecond)
	awaitWireGuard(t, l, true)
	hears := func(source string, at *netlab.Namespace, to netip.Addr) bool {
		heard, err := at.ListenPacket(netip.AddrPortFrom(to, 9001).String())
		require.NoError(t, err)
		defer heard.Close()
		for range 3 {
			conn, err := gateway.Dial("udp", source, netip.AddrPortFrom(to, 9001).String())
			require.NoError(t, err)
			_, _ = conn.Write([]byte(source))
			_ = conn.Close()
			require.NoError(t, heard.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
			if _, err = heard.Read(make([]byte, 100)); err == nil {
				return true
			}
		}
		return false
	}
	require.True(t, hears("10.2.0.77:1", inside.Namespace, inside.Address), "an address of west's")
	for _, source := range []string{"10.9.9.9:1", "10.1.0.3:1", gateway.Address.String() + ":1"} {
		assert.False(t, hears(source, inside.Namespace, inside.Address), "%s is none of west's", source)
	}
	assert.False(t, hears("10.2.0.77:1", outside.Namespace, outside.Address), "a pod that is not named")
	assert.False(t, hears("10.2.0.77:1", node.Namespace, node.Address), "a node")
	at := l.Home.Nodes[1]
	assert.False(t, hears("10.2.0.77:1", at.Namespace, at.Range.Addr().Next()), "the gateway, by the address that it has for its pods")
	assert.True(t, hears("10.2.0.77:1", inside.Namespace, inside.Address), "all the time others are reached")
	assert.True(t, gateway.Sends(plan.WireGuardDevice("home")))
}

func TestNothingIsLeftOfWireGuard(t *testing.T) {
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
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, netlab.Settings{WireGuard: true})
			before := states(t, l)
			require.NoError(t, l.ProvideWireGuard())
			require.NoError(t, l.Join())
			await(t, l)
			awaitWireGuard(t, l, true)
			row.remove(t, l)
			requireStates(t, l, before)
		})
	}
}
