package main

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/site"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// awaitTransit waits until each first pod of west reaches that of each node of east, and is reached.
func awaitTransit(t *testing.T, l *netlab.Lab) {
	t.Helper()
	for _, from := range l.West.Nodes {
		for _, to := range l.East.Nodes {
			for _, way := range [][2]*netlab.Node{{from, to}, {to, from}} {
				require.NoError(t, netlab.Hear(way[0].Pods[0].Namespace, way[1].Pods[0], patience), "%s does not reach %s", way[0].Name,
					way[1].Name)
			}
		}
	}
}

// unheard says of each way that packets there are not answered. Lanes are up, so that nothing else is the reason.
func unheard(t *testing.T, ways map[string][2]*netlab.Pod) {
	t.Helper()
	var asking sync.WaitGroup
	defer asking.Wait()
	for what, way := range ways {
		asking.Go(func() {
			for range 3 {
				_, err := netlab.Ask(way[0].Namespace, "", way[1], []byte("x"))
				assert.Error(t, err, what)
			}
		})
	}
}

func TestRemoteClustersReachEachOtherThroughHome(t *testing.T) {
	t.Parallel()
	for _, settings := range []netlab.Settings{
		{Three: true, Transit: true}, {Three: true, Transit: true, Strict: true}, {Three: true, Transit: true, OneRange: true, Dual: true},
	} {
		t.Run(fmt.Sprintf("one range %v, strict %v", settings.OneRange, settings.Strict), func(t *testing.T) {
			if !settings.OneRange {
				testbed.NotInShort(t)
			}
			l := newLab(t, settings)
			before := states(t, l)
			require.NoError(t, l.Join())
			await(t, l)
			awaitTransit(t, l)
			for i, from := range l.West.Nodes {
				to := l.East.Nodes[(i+1)%3].Pods[0]
				reaches(t, from.Pods[0], to)
				reaches(t, to, from.Pods[0])
			}
			reaches(t, l.Home.Nodes[0].Pods[0], l.East.Nodes[0].Pods[0])
			west, east := l.West.Nodes[0], l.East.Nodes[0]
			unheard(t, map[string][2]*netlab.Pod{
				"a pod of west that is not named reaches east":  {west.Pods[1], east.Pods[0]},
				"a pod of west reaches one of east that is not": {west.Pods[0], east.Pods[1]},
				"a pod of east that is not named reaches west":  {east.Pods[1], west.Pods[0]},
				"a pod of east reaches one of west that is not": {east.Pods[0], west.Pods[1]},
				"a pod of home that is not named reaches east":  {l.Home.Nodes[0].Pods[1], east.Pods[0]},
				"one that is not named reaches one that is not": {west.Pods[1], east.Pods[1]},
			})
			if settings.Dual {
				reaches(t, west.Pods[0].IPv6(), east.Pods[0].IPv6())
				unheard(t, map[string][2]*netlab.Pod{
					"a pod of west that is not named reaches east by IPv6":  {west.Pods[1], east.Pods[0].IPv6()},
					"a pod of west reaches one of east that is not by IPv6": {west.Pods[0], east.Pods[1].IPv6()},
				})
			}
			part(t, l)
			requireStates(t, l, before)
		})
	}
}

// TestHomeSaysWhichPodsOfRemoteClustersReachEachOther has west and east let all of their pods pass, as home's namespaces there may be more
// than those that both have: home lets pass those that it has named.
func TestHomeSaysWhichPodsOfRemoteClustersReachEachOther(t *testing.T) {
	testbed.NotInShort(t)
	l := newLab(t, netlab.Settings{Three: true, Transit: true, OneRange: true})
	require.NoError(t, l.Join())
	for _, c := range []*netlab.Cluster{l.West, l.East} {
		told := l.Site(c)
		for _, n := range c.Nodes {
			told.Remotes[0].Pods = append(told.Remotes[0].Pods, n.Pods[1].Address)
		}
		require.NoError(t, l.Tell(c, told))
	}
	awaitTransit(t, l)
	west, east := l.West.Nodes[0], l.East.Nodes[2]
	require.NoError(t, netlab.Hear(west.Pods[1].Namespace, l.Home.Nodes[0].Pods[0], patience), "west lets its second pod pass")
	unheard(t, map[string][2]*netlab.Pod{
		"from a pod that home has not named": {west.Pods[1], east.Pods[0]}, "to a pod that home has not named": {west.Pods[0], east.Pods[1]},
		"back": {east.Pods[1], west.Pods[0]}, "between two": {east.Pods[1], west.Pods[1]},
	})
	// As it is named, it is let in, and once it is not any more, it is refused: sets follow, and no rule changes.
	talk, err := netlab.NewTalk(west.Pods[0].Namespace, east.Pods[0])
	require.NoError(t, err)
	defer talk.Close()
	told := l.Site(l.Home)
	for i := range told.Remotes {
		if told.Remotes[i].Name == "west" {
			told.Remotes[i].Transit[0].Pods = append(told.Remotes[i].Transit[0].Pods, west.Pods[1].Reached)
		}
	}
	require.NoError(t, l.Tell(l.Home, told))
	hears := func() bool {
		_, err := netlab.Ask(west.Pods[1].Namespace, "", east.Pods[0], []byte("x"))
		return err == nil
	}
	require.NoError(t, netlab.Hear(west.Pods[1].Namespace, east.Pods[0], patience))
	require.NoError(t, l.Tell(l.Home, l.Site(l.Home)))
	require.Eventually(t, func() bool { return !hears() }, patience, 50*time.Millisecond)
	_, err = talk.Gap()
	assert.NoError(t, err, "others are not disturbed")
}

// TestARemoteClusterIsNotTakenForAnother has a gateway of west, and then one of east, send under addresses of others to all that home
// carries packets to, and to what they are not to reach.
func TestARemoteClusterIsNotTakenForAnother(t *testing.T) {
	t.Parallel()
	for _, oneRange := range []bool{false, true} {
		for _, liar := range []string{"west", "east"} {
			t.Run(fmt.Sprintf("%s, one range %v", liar, oneRange), func(t *testing.T) {
				if oneRange || liar != "west" {
					testbed.NotInShort(t)
				}
				l := newLab(t, netlab.Settings{Three: true, Transit: true, OneRange: oneRange})
				require.NoError(t, l.Join())
				await(t, l)
				awaitTransit(t, l)
				require.NoError(t, l.Unmask())
				if liar == "west" {
					lies(t, l, l.West, l.East)
				} else {
					lies(t, l, l.East, l.West)
				}
			})
		}
	}
}

// lies has a gateway of one cluster, which translates nothing, send what it likes.
func lies(t *testing.T, l *netlab.Lab, from, other *netlab.Cluster) {
	t.Helper()
	told := l.Site(from)
	told.Remotes[0].Translations = nil
	// Its own packet filter is as it is told: it lets all of the others' addresses out, and home's gateways have to know better.
	require.NoError(t, l.Tell(from, told))
	gateway, honest := from.Nodes[1], from.Nodes[0].Pods[0]
	named, unnamed := other.Nodes[0].Pods[0], other.Nodes[0].Pods[1]
	home := l.Home.Nodes[0].Pods[0]
	sources := []string{honest.Reached.String(), from.Nodes[0].Pods[1].Reached.String(), other.Nodes[1].Pods[0].Reached.String(),
		home.Reached.String(), l.Home.Nodes[2].Pods[0].Address.String(), l.Home.Nodes[1].Address.String(), "198.51.100.7"}
	for _, source := range sources {
		require.NoError(t, gateway.Address4("lo", source+"/32"))
	}
	listen := map[*netlab.Pod]func() string{}
	for _, p := range []*netlab.Pod{named, unnamed, home} {
		heard, err := p.ListenPacket(netip.AddrPortFrom(p.Address, 9001).String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = heard.Close() })
		listen[p] = func() string {
			require.NoError(t, heard.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
			buffer := make([]byte, 100)
			n, by, err := heard.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return ""
			}
			return by.Addr().Unmap().String() + " says " + string(buffer[:n])
		}
	}
	// What the gateway itself sends goes into its lane, wherever to.
	for _, to := range []netip.Addr{named.Reached, unnamed.Reached, home.Reached} {
		require.NoError(t, gateway.Route(to.String()+"/32", "", plan.Device("home")))
	}
	says := func(source string, to netip.Addr) { say(t, gateway.Namespace, source+":1", source, to) }
	right := honest.Reached.String() + " says " + honest.Reached.String()
	require.Eventually(t, func() bool {
		says(honest.Reached.String(), named.Reached)
		return listen[named]() == right
	}, patience, time.Millisecond, "as a pod that is named it is heard")
	for range 3 {
		for _, source := range sources {
			for p := range listen {
				says(source, p.Reached)
			}
		}
	}
	for p, hears := range listen {
		for said := hears(); said != ""; said = hears() {
			switch {
			case p == named:
				assert.Equal(t, right, said, "%s hears another one", p.Name)
			case p == unnamed:
				assert.Fail(t, "it is reached", "%s hears %s", p.Name, said)
			default: // home lets in all that are of its ranges
				assert.Contains(t, []string{right, from.Nodes[0].Pods[1].Reached.String() + " says " + from.Nodes[0].Pods[1].Reached.String()}, said)
			}
		}
	}
}

// TestOneClusterThatRefusesDisturbsNoOther has east not let in what is behind home.
func TestOneClusterThatRefusesDisturbsNoOther(t *testing.T) {
	testbed.NotInShort(t)
	l := newLab(t, netlab.Settings{Three: true, Transit: true, OneRange: true})
	require.NoError(t, l.Join())
	awaitTransit(t, l)
	talk, err := netlab.NewTalk(l.West.Nodes[0].Pods[0].Namespace, l.Home.Nodes[0].Pods[0])
	require.NoError(t, err)
	defer talk.Close()
	told := l.Site(l.East)
	told.Remotes[0].Behind = nil
	require.NoError(t, l.Tell(l.East, told))
	west, east := l.West.Nodes[0].Pods[0], l.East.Nodes[0].Pods[0]
	require.Eventually(t, func() bool {
		_, err := netlab.Ask(west.Namespace, "", east, []byte("x"))
		return err != nil
	}, patience, 50*time.Millisecond)
	unheard(t, map[string][2]*netlab.Pod{"west to east": {west, east}, "east to west": {east, west}})
	reaches(t, west, l.Home.Nodes[1].Pods[0])
	reaches(t, l.Home.Nodes[1].Pods[0], east)
	_, err = talk.Gap()
	assert.NoError(t, err, "connections of others are kept")
	require.NoError(t, l.Tell(l.East, l.Site(l.East)))
	awaitTransit(t, l)
}

// TestWhatOneClusterCallsThePodsOfAnother has east's own range be one by which home reaches west's pods: east reaches them by a third one,
// which home's gateways translate.
func TestWhatOneClusterCallsThePodsOfAnother(t *testing.T) {
	testbed.NotInShort(t)
	l := newLab(t, netlab.Settings{Three: true, Transit: true, OneRange: true})
	require.NoError(t, l.Join())
	awaitTransit(t, l)
	as := remotecluster.Translation{PodCIDR: l.West.Translations[0].ReachedAs, ReachedAs: netip.MustParsePrefix("100.76.0.0/16")}
	told := l.Site(l.Home)
	i := slices.IndexFunc(told.Remotes, func(r site.Remote) bool { return r.Name == "east" })
	told.Remotes[i].Translations = append(slices.Clone(told.Remotes[i].Translations), as)
	require.NoError(t, l.Tell(l.Home, told))
	east := l.Site(l.East)
	east.Remotes[0].Behind[0].Ranges = []netip.Prefix{as.ReachedAs}
	require.NoError(t, l.Tell(l.East, east))
	west, caller := *l.West.Nodes[0].Pods[0], l.East.Nodes[1].Pods[0]
	was := west
	west.Reached, _ = told.Remotes[i].Translations.Reached(west.Reached)
	require.Equal(t, "100.76.0.2", west.Reached.String())
	require.NoError(t, netlab.Hear(caller.Namespace, &west, patience))
	reaches(t, caller, &west)
	_, err := netlab.Ask(caller.Namespace, "", &was, []byte("x"))
	assert.Error(t, err, "by what home reaches it, it is not reached from there")
	seen, err := askAgain(west.Namespace, caller, content(9000))
	require.NoError(t, err)
	assert.Equal(t, west.Reached.String(), seen, "each cluster sees one address of it")
}

// TestTransitGoesOverTheNextGateway has each of home's gateways lose the way to east in turn, while west reaches it.
func TestTransitGoesOverTheNextGateway(t *testing.T) {
	testbed.NotInShort(t)
	l := newLab(t, netlab.Settings{Three: true, Transit: true})
	require.NoError(t, l.Join())
	awaitTransit(t, l)
	talk, err := netlab.NewTalk(l.West.Nodes[0].Pods[0].Namespace, l.East.Nodes[0].Pods[0])
	require.NoError(t, err)
	defer talk.Close()
	lanes := func(n *netlab.Node, want int) {
		t.Helper()
		require.Eventually(t, func() bool {
			up, err := n.Lanes()
			return err == nil && up == want
		}, patience, 50*time.Millisecond, "%s does not have %d lanes", n.Name, want)
	}
	for _, n := range l.Home.Nodes[1:] {
		lanes(n, 4)
		require.NoError(t, n.Lose("172.30.3.0/24", true))
		lanes(n, 2)
		require.NoError(t, talk.GoesOn(patience), "nothing goes on without the lane of %s", n.Name)
		for range 20 {
			require.NoError(t, talk.GoesOn(patience))
		}
		gap, err := talk.Gap()
		require.NoError(t, err, "the connection is kept")
		t.Logf("%s: %v without an answer", n.Name, gap)
		require.NoError(t, n.Lose("172.30.3.0/24", false))
	}
}
