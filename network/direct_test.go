package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
)

// joinedDirectly makes three clusters that are joined, of which west and east have lanes to each other, and waits until all nodes of these
// two send by them.
func joinedDirectly(t *testing.T, settings netlab.Settings) *netlab.Lab {
	t.Helper()
	settings.Three, settings.Transit, settings.Direct = true, true, true
	l := newLab(t, settings)
	require.NoError(t, l.Join())
	awaitTransit(t, l)
	awaitDirect(t, l, true)
	return l
}

// awaitDirect waits until all nodes of west and east have a way to the other one by direct lanes, or until none has.
func awaitDirect(t *testing.T, l *netlab.Lab, want bool) {
	t.Helper()
	for c, to := range map[*netlab.Cluster]*netlab.Cluster{l.West: l.East, l.East: l.West} {
		prefix := fmt.Sprintf("Dst: %s ", to.Translations.Ranges(to.Ranges)[0])
		for _, n := range c.Nodes {
			last := ""
			awaited := assert.Eventually(t, func() bool {
				state, err := n.State()
				if err != nil {
					return false
				}
				last = state
				ways := 0
				for line := range strings.Lines(state) {
					if strings.HasPrefix(line, "route table 7472 ") && strings.Contains(line, prefix) {
						ways++
					}
				}
				if n.Gateway { // by its own lane and by that of the other gateway, before those to home
					return want == (ways > 2)
				}
				return want == (ways > 1)
			}, patience, 50*time.Millisecond)
			require.True(t, awaited, "%s goes directly: %v is awaited, and it has\n%s", n.Name, want, last)
		}
	}
}

// carried is how many packets home's gateways have sent to west and to east.
func carried(t *testing.T, l *netlab.Lab) (packets uint64) {
	t.Helper()
	for _, n := range l.Home.Nodes[1:] {
		for _, to := range []string{"west", "east"} {
			count, err := n.Sent(plan.Device(to))
			require.NoError(t, err)
			packets += count
		}
	}
	return packets
}

func TestRemoteClustersReachEachOtherDirectly(t *testing.T) {
	t.Parallel()
	for _, settings := range []netlab.Settings{{}, {Strict: true}, {OneRange: true}} {
		t.Run(fmt.Sprintf("one range %v, strict %v", settings.OneRange, settings.Strict), func(t *testing.T) {
			if !settings.OneRange {
				testbed.NotInShort(t)
			}
			settings.Three, settings.Transit, settings.Direct = true, true, true
			l := newLab(t, settings)
			before := states(t, l)
			require.NoError(t, l.Join())
			await(t, l)
			awaitTransit(t, l)
			awaitDirect(t, l, true)
			was := carried(t, l)
			for i, from := range l.West.Nodes {
				to := l.East.Nodes[(i+1)%3].Pods[0]
				reaches(t, from.Pods[0], to)
				reaches(t, to, from.Pods[0])
			}
			assert.Equal(t, was, carried(t, l), "nothing of it passes home")
			reaches(t, l.Home.Nodes[0].Pods[0], l.East.Nodes[0].Pods[0])
			assert.Greater(t, carried(t, l), was, "what passes home is counted")
			west, east := l.West.Nodes[0], l.East.Nodes[0]
			unheard(t, map[string][2]*netlab.Pod{
				"a pod of west that is not named reaches east":  {west.Pods[1], east.Pods[0]},
				"a pod of west reaches one of east that is not": {west.Pods[0], east.Pods[1]},
				"a pod of east that is not named reaches west":  {east.Pods[1], west.Pods[0]},
				"one that is not named reaches one that is not": {west.Pods[1], east.Pods[1]},
			})
			part(t, l)
			requireStates(t, l, before)
		})
	}
}

// TestRemoteClustersKeepTheirConnectionsWithoutHomeAndWithoutDirectLanes has home go, and come back, and then the direct lanes.
func TestRemoteClustersKeepTheirConnectionsWithoutHomeAndWithoutDirectLanes(t *testing.T) {
	testbed.NotInShort(t)
	l := joinedDirectly(t, netlab.Settings{})
	west, east := l.West.Nodes[0].Pods[0], l.East.Nodes[0].Pods[0]
	talk, err := netlab.NewTalk(west.Namespace, east)
	require.NoError(t, err)
	defer talk.Close()
	goesOn := func(what string) {
		t.Helper()
		for range 20 {
			require.NoError(t, talk.GoesOn(patience), what)
		}
		gap, err := talk.Gap()
		require.NoError(t, err, "the connection is kept: "+what)
		t.Logf("%s: %v without an answer", what, gap)
	}
	goesOn("all is there")
	for _, n := range l.Home.Nodes {
		n.Kill()
		require.NoError(t, n.Cut(true))
	}
	goesOn("home is lost")
	other, err := netlab.NewTalk(east.Namespace, l.West.Nodes[1].Pods[0])
	require.NoError(t, err, "a connection begins while home is lost")
	defer other.Close()
	require.NoError(t, other.GoesOn(patience))

	for _, n := range l.Home.Nodes {
		require.NoError(t, n.Cut(false))
		require.NoError(t, l.Start(n))
	}
	await(t, l)
	for _, n := range l.West.Nodes[1:] {
		require.NoError(t, n.Lose("172.30.3.0/24", true))
	}
	awaitDirect(t, l, false)
	was := carried(t, l)
	goesOn("no direct lane is up")
	assert.Greater(t, carried(t, l), was, "it passes home")
	for _, n := range l.West.Nodes[1:] {
		require.NoError(t, n.Lose("172.30.3.0/24", false))
	}
	awaitDirect(t, l, true)
	goesOn("direct lanes are up again")
	was = carried(t, l)
	goesOn("and are used again")
	assert.Equal(t, was, carried(t, l), "nothing passes home any more")
	require.NoError(t, other.GoesOn(patience))
}

// TestADirectLaneGoesOverTheNextGateway has each of west's gateways lose the way to east in turn.
func TestADirectLaneGoesOverTheNextGateway(t *testing.T) {
	testbed.NotInShort(t)
	l := joinedDirectly(t, netlab.Settings{})
	for _, n := range l.Home.Nodes {
		n.Kill() // there is no other way
	}
	talk, err := netlab.NewTalk(l.West.Nodes[0].Pods[0].Namespace, l.East.Nodes[0].Pods[0])
	require.NoError(t, err)
	defer talk.Close()
	for _, n := range l.West.Nodes[1:] {
		require.NoError(t, n.Lose("172.30.3.0/24", true))
		require.Eventually(t, func() bool {
			up, err := n.Lanes()
			return err == nil && up == 0
		}, patience, 50*time.Millisecond, n.Name)
		for range 20 {
			require.NoError(t, talk.GoesOn(patience), "nothing goes on without the lane of %s", n.Name)
		}
		require.NoError(t, n.Lose("172.30.3.0/24", false))
		require.Eventually(t, func() bool {
			up, err := n.Lanes()
			return err == nil && up == 2
		}, patience, 50*time.Millisecond, n.Name)
	}
	_, err = talk.Gap()
	require.NoError(t, err, "the connection is kept")
}

// TestADirectLaneIsNoWayToAnybodyElse has a gateway of east send what it likes into its lane to west: under addresses of others, to what
// east is not to reach, and on to home.
func TestADirectLaneIsNoWayToAnybodyElse(t *testing.T) {
	t.Parallel()
	for _, oneRange := range []bool{false, true} {
		t.Run(fmt.Sprintf("one range %v", oneRange), func(t *testing.T) {
			if oneRange {
				testbed.NotInShort(t)
			}
			l := joinedDirectly(t, netlab.Settings{OneRange: oneRange})
			require.NoError(t, l.Unmask())
			told := l.Site(l.East)
			told.Remotes[0].Translations = nil // what it sends goes out as it is
			require.NoError(t, l.Tell(l.East, told))
			gateway, honest := l.East.Nodes[1], l.East.Nodes[0].Pods[0]
			named, unnamed, home := l.West.Nodes[0].Pods[0], l.West.Nodes[0].Pods[1], l.Home.Nodes[0].Pods[0]
			sources := []string{honest.Reached.String(), home.Reached.String(), l.West.Nodes[1].Pods[0].Reached.String(),
				l.West.Nodes[1].Address.String(), "10.4.0.5", "198.51.100.7"}
			for _, source := range sources {
				require.NoError(t, gateway.Address4("lo", source+"/32"))
			}
			listen := func(on *netlab.Namespace, at netip.Addr) func() string {
				heard, err := on.ListenPacket(netip.AddrPortFrom(at, 9001).String())
				require.NoError(t, err)
				t.Cleanup(func() { _ = heard.Close() })
				return func() string {
					require.NoError(t, heard.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
					buffer := make([]byte, 100)
					n, by, err := heard.ReadFromUDPAddrPort(buffer)
					if err != nil {
						return ""
					}
					return by.Addr().Unmap().String() + " says " + string(buffer[:n])
				}
			}
			hears := listen(named.Namespace, named.Address)
			silent := map[netip.Addr]func() string{unnamed.Reached: listen(unnamed.Namespace, unnamed.Address),
				home.Reached: listen(home.Namespace, home.Address)}
			for _, n := range l.West.Nodes {
				if !n.Gateway { // the lane itself goes to the addresses of gateways
					silent[n.Address] = listen(n.Namespace, n.Address)
				}
				at := n.Range.Addr().Next()
				reached, _ := l.West.Translations.Reached(at)
				silent[reached] = listen(n.Namespace, at)
			}
			targets := []netip.Addr{named.Reached}
			for to := range silent {
				targets = append(targets, to)
			}
			for _, to := range targets {
				require.NoError(t, gateway.Route(to.String()+"/32", "", plan.Device("home/west")))
			}
			says := func(source string, to netip.Addr) { say(t, gateway.Namespace, source+":1", source, to) }
			right := honest.Reached.String() + " says " + honest.Reached.String()
			heard := func() {
				t.Helper()
				require.Eventually(t, func() bool {
					says(honest.Reached.String(), named.Reached)
					return hears() == right
				}, patience, time.Millisecond, "as a pod of east it is heard")
			}
			heard()
			for range 3 {
				for _, source := range sources {
					for _, to := range targets {
						says(source, to)
					}
				}
			}
			for said := hears(); said != ""; said = hears() {
				assert.Equal(t, right, said, "it is taken for another one")
			}
			heard() // the lane is still there
			for to, hears := range silent {
				assert.Empty(t, hears(), "%s is reached", to)
			}
		})
	}
}

// TestNoLaneIsTakenFromAClusterThatTheOwnerDoesNotAllow has west dial east, which is not told of west's gateways, and then of other keys:
// packets go through home.
func TestNoLaneIsTakenFromAClusterThatTheOwnerDoesNotAllow(t *testing.T) {
	testbed.NotInShort(t)
	l := joinedDirectly(t, netlab.Settings{})
	west, east := l.West.Nodes[0].Pods[0], l.East.Nodes[0].Pods[0]
	talk, err := netlab.NewTalk(west.Namespace, east)
	require.NoError(t, err)
	defer talk.Close()
	for what, change := range map[string]func(b *site.Behind){
		"it has no lanes to west": func(b *site.Behind) { b.Direct = nil },
		"the keys are others":     func(b *site.Behind) { b.Direct[0].Keys, b.Direct[1].Keys = []lane.Key{{1}}, []lane.Key{{2}} },
	} {
		told := l.Site(l.East)
		change(&told.Remotes[0].Behind[0])
		require.NoError(t, l.Tell(l.East, told))
		awaitDirect(t, l, false)
		require.NoError(t, talk.GoesOn(patience), what)
		was := carried(t, l)
		for range 20 {
			require.NoError(t, talk.GoesOn(patience), what)
		}
		assert.Greater(t, carried(t, l), was, "%s: it passes home", what)
		require.NoError(t, l.Tell(l.East, l.Site(l.East)))
		awaitDirect(t, l, true)
	}
	_, err = talk.Gap()
	require.NoError(t, err, "the connection is kept")
}

// TestAGatewayChangesItsKeyInDirectLanesToo has a gateway of east, which is dialed, get another key.
func TestAGatewayChangesItsKeyInDirectLanesToo(t *testing.T) {
	testbed.NotInShort(t)
	l := joinedDirectly(t, netlab.Settings{})
	talk, err := netlab.NewTalk(l.West.Nodes[0].Pods[0].Namespace, l.East.Nodes[0].Pods[0])
	require.NoError(t, err)
	defer talk.Close()
	changed := l.East.Nodes[1]
	require.NoError(t, l.Rotate(changed))
	require.Len(t, changed.Keys, 2)
	was := changed.Keys[0]
	// Home is told, and west is not: nothing changes.
	require.NoError(t, l.Tell(l.Home, l.Site(l.Home)))
	time.Sleep(3 * time.Second)
	require.NoError(t, l.KeysOf(changed))
	require.Len(t, changed.Keys, 2, "the gateways of each lane are waited for")
	require.Equal(t, was, changed.Keys[0])
	require.NoError(t, l.Tell(l.West, l.Site(l.West)))
	require.Eventually(t, func() bool {
		require.NoError(t, l.KeysOf(changed))
		return len(changed.Keys) == 1 && changed.Keys[0] != was
	}, 2*patience, 200*time.Millisecond)
	require.NoError(t, l.Tell(l.Home, l.Site(l.Home)))
	require.NoError(t, l.Tell(l.West, l.Site(l.West)))
	awaitDirect(t, l, true)
	require.NoError(t, talk.GoesOn(patience))
	_, err = talk.Gap()
	require.NoError(t, err, "the connection is kept")
}
