package main

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// reaches tries all that pods send to each other, one way.
func reaches(t *testing.T, caller, called *netlab.Pod) {
	t.Helper()
	seen, err := netlab.Call(caller.Namespace, called, content(1<<20))
	if assert.NoError(t, err, "%s calls %s", caller.Name, called.Name) {
		assert.Equal(t, caller.Reached.String(), seen, "who is called sees the address by which it reaches the caller")
	}
	for _, size := range []int{1, 850, 1400, 1472, 9000, 60000} {
		seen, err := askAgain(caller.Namespace, called, content(size))
		if assert.NoError(t, err, "%s asks %s with %d bytes", caller.Name, called.Name, size) {
			assert.Equal(t, caller.Reached.String(), seen)
		}
	}
	for _, size := range []int{0, 56, 4000} {
		assert.Eventually(t, func() bool { return netlab.Ping(caller.Namespace, called.Reached, size) == nil }, patience, time.Millisecond,
			"%s pings %s with %d bytes", caller.Name, called.Name, size)
	}
	assert.Eventually(t, func() bool { return refusedBy(t, caller.Namespace, called.Reached) }, patience, time.Millisecond,
		"%s is told that nobody listens at %s", caller.Name, called.Name)
}

// refusedBy says whether a packet to a port where nobody listens is answered by an ICMP error that the sender takes for one of its own.
func refusedBy(t *testing.T, from *netlab.Namespace, to netip.Addr) bool {
	t.Helper()
	conn, err := from.Dial("udp", "", netip.AddrPortFrom(to, 9099).String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("anybody?"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
	_, err = conn.Read(make([]byte, 10))
	return errors.Is(err, syscall.ECONNREFUSED)
}

func TestPodsOfTwoClustersWithOneRangeReachEachOther(t *testing.T) {
	testbed.NotInShort(t)
	l := joined(t, netlab.Settings{OneRange: true, Strict: true})
	for i, from := range l.Home.Nodes {
		for j, to := range l.West.Nodes {
			require.Equal(t, i == j, from.Pods[0].Address == to.Pods[0].Address, "pods of both clusters have the same addresses")
			reaches(t, from.Pods[0], to.Pods[0])
			reaches(t, to.Pods[0], from.Pods[0])
		}
	}
}

func TestPodsOfThreeClustersWithOneRangeReachEachOther(t *testing.T) {
	l := joined(t, netlab.Settings{OneRange: true, Three: true})
	for _, there := range []*netlab.Cluster{l.West, l.East} {
		for i, from := range l.Home.Nodes {
			to := there.Nodes[(i+1)%3].Pods[0]
			reaches(t, from.Pods[0], to)
			reaches(t, to, from.Pods[0])
		}
	}
	west, east := l.West.Nodes[0].Pods[0], l.East.Nodes[0].Pods[0]
	for _, way := range [][2]*netlab.Pod{{west, east}, {east, west}} {
		_, err := netlab.Ask(way[0].Namespace, "", way[1], []byte("x"))
		assert.Error(t, err, "remote clusters reach home, and not each other")
	}
}

// TestNobodyElseIsReachedThroughTranslation has west's gateways send what they like: they do not translate, so what leaves them is what is
// sent there.
func TestNobodyElseIsReachedThroughTranslation(t *testing.T) {
	l := joined(t, netlab.Settings{OneRange: true})
	home, west := l.Home.Nodes[0], l.West.Nodes[0]
	for what, way := range map[string][2]*netlab.Pod{
		"a pod there that is not named reaches a pod here":   {west.Pods[1], home.Pods[0]},
		"a pod there reaches a pod here that is not named":   {west.Pods[0], home.Pods[1]},
		"a pod here that is not named reaches a pod there":   {home.Pods[1], west.Pods[0]},
		"a pod here that is not named reaches another there": {home.Pods[1], west.Pods[1]},
	} {
		_, err := netlab.Ask(way[0].Namespace, "", way[1], []byte("x"))
		assert.Error(t, err, what)
	}
	require.NoError(t, l.Unmask()) // nor does anything else there change what is sent
	told := l.Site(l.West)
	told.Remotes[0].Translations = nil
	require.NoError(t, l.Tell(l.West, told))
	gateway, inside := l.West.Nodes[1], home.Pods[0]
	heard, err := inside.ListenPacket(netip.AddrPortFrom(inside.Address, 9001).String())
	require.NoError(t, err)
	defer heard.Close()
	sources := []string{"100.66.0.77", "10.244.0.77", home.Pods[1].Address.String(), home.Pods[1].Reached.String(), "10.9.9.9"}
	for _, source := range sources {
		require.NoError(t, gateway.Address4("lo", source+"/32"))
	}
	says := func(source string, to netip.Addr) {
		conn, err := gateway.Dial("udp", source+":1", netip.AddrPortFrom(to, 9001).String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte(source + " to " + to.String()))
		require.NoError(t, err)
	}
	hears := func() string {
		require.NoError(t, heard.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
		buffer := make([]byte, 100)
		n, from, err := heard.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return ""
		}
		return from.Addr().Unmap().String() + " says " + string(buffer[:n])
	}
	right := "100.66.0.77 says 100.66.0.77 to " + inside.Reached.String()
	require.Eventually(t, func() bool {
		says("100.66.0.77", inside.Reached)
		return hears() == right
	}, patience, time.Millisecond, "as one of west it is heard")
	// By the pod's own address nobody there reaches it, though that is where packets end.
	require.NoError(t, gateway.Route(inside.Address.String()+"/32", "", plan.Device("home")))
	for range 3 {
		for _, source := range sources {
			says(source, inside.Reached)
			says(source, inside.Address)
		}
	}
	for said := hears(); said != ""; said = hears() {
		assert.Equal(t, right, said)
	}
}

func TestTranslationBeginsChangesAndEnds(t *testing.T) {
	l := joined(t, netlab.Settings{})
	before := states(t, l)
	from, to := l.Home.Nodes[0].Pods[0], l.West.Nodes[0].Pods[0]
	change := func(as ...string) {
		was := to.Reached
		var translations remotecluster.Translations
		for _, one := range as {
			translations = append(translations, remotecluster.Translation{PodCIDR: l.West.Ranges[0], ReachedAs: netip.MustParsePrefix(one)})
		}
		l.West.Translate(translations)
		for _, c := range l.Clusters() {
			require.NoError(t, l.Tell(c, l.Site(c)))
		}
		await(t, l)
		reaches(t, from, to)
		reaches(t, to, from)
		assert.Eventually(t, func() bool { return netlab.Ping(from.Namespace, was, 8) != nil }, patience, time.Millisecond,
			"it is reached by %s no more", was)
	}
	change("100.66.0.0/16")
	change("100.76.0.0/16")
	change()
	requireStates(t, l, before)
}

func TestClustersWithOneRangeLeaveNothingBehind(t *testing.T) {
	l := newLab(t, netlab.Settings{OneRange: true})
	before := states(t, l)
	require.NoError(t, l.Join())
	await(t, l)
	// What cannot be is said, and changes nothing.
	told := l.Site(l.Home)
	told.Remotes[0].Ranges, told.Remotes[0].Translations = slices.Clone(l.West.Ranges), nil
	require.NoError(t, l.Tell(l.Home, told))
	agent := l.Home.Nodes[0].Agent
	require.Eventually(t, func() bool { return strings.Contains(agent.Log(), "have it reached as a range of its own") }, patience,
		50*time.Millisecond)
	reaches(t, l.Home.Nodes[0].Pods[0], l.West.Nodes[0].Pods[0])
	part(t, l)
	requireStates(t, l, before)
}
