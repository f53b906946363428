package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
)

// TestPacketsOfAllSizesPassNarrowerNetworks has networks on the way carry less in one piece than the others do.
func TestPacketsOfAllSizesPassNarrowerNetworks(t *testing.T) {
	t.Parallel()
	const narrow = 1360
	between := func(l *netlab.Lab) error { return l.Narrow(narrow) }
	for _, row := range []struct {
		name     string
		settings netlab.Settings
		narrow   func(l *netlab.Lab) error
		// of is the cluster whose network between nodes it is, of which the other one is told.
		of func(l *netlab.Lab) *netlab.Cluster
	}{
		{"the one between the clusters", netlab.Settings{Strict: true}, between, nil},
		{"the one between the clusters, and addresses are translated", netlab.Settings{OneRange: true}, between, nil},
		{"that of home's nodes", netlab.Settings{}, func(l *netlab.Lab) error { return l.Home.Narrow(narrow) },
			func(l *netlab.Lab) *netlab.Cluster { return l.Home }},
		{"that of west's nodes", netlab.Settings{OneRange: true}, func(l *netlab.Lab) error { return l.West.Narrow(narrow) },
			func(l *netlab.Lab) *netlab.Cluster { return l.West }},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, row.settings)
			require.NoError(t, row.narrow(l))
			require.NoError(t, l.Join())
			if row.of != nil {
				for _, c := range l.Clusters() {
					told := l.Site(c)
					if c != row.of(l) {
						told.Remotes[0].MTU = narrow
					}
					require.NoError(t, l.Tell(c, told))
				}
			}
			await(t, l)
			for i, from := range l.Home.Nodes {
				to := l.West.Nodes[(i+1)%3].Pods[0]
				reaches(t, from.Pods[0], to)
				reaches(t, to, from.Pods[0])
			}
		})
	}
}

// TestRangesChangeWhileTrafficRuns has west's pods get another range beside the one that they have, and that one be made smaller. No
// address is translated.
func TestRangesChangeWhileTrafficRuns(t *testing.T) {
	l := joined(t, netlab.Settings{})
	from, to, node := l.Home.Nodes[0].Pods[0], l.West.Nodes[0].Pods[0], l.West.Nodes[0]
	talk, err := netlab.NewTalk(from.Namespace, to)
	require.NoError(t, err)
	defer talk.Close()
	back, err := netlab.NewTalk(to.Namespace, from)
	require.NoError(t, err)
	defer back.Close()
	goesOn := func(what string) {
		t.Helper()
		for _, one := range []*netlab.Talk{talk, back} {
			require.NoError(t, one.GoesOn(patience), what)
			_, err := one.Gap()
			require.NoError(t, err, what)
		}
	}

	// One of west's pods has an address of the range that comes.
	fresh := *node.Pods[1]
	fresh.Address = netip.MustParseAddr("10.12.0.9")
	fresh.Reached = fresh.Address
	require.NoError(t, fresh.Namespace.Address("eth0", "10.12.0.9/32"))
	require.NoError(t, node.Route("10.12.0.0/24", "", "cni0"))
	serving, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	require.NoError(t, fresh.Serve(serving))
	before := states(t, l)
	tell := func(ranges ...string) {
		t.Helper()
		home, west := l.Site(l.Home), l.Site(l.West)
		home.Remotes[0].Ranges = nil
		for _, one := range ranges {
			home.Remotes[0].Ranges = append(home.Remotes[0].Ranges, netip.MustParsePrefix(one))
		}
		if len(ranges) > 1 {
			west.Nodes[0].Pods = append(west.Nodes[0].Pods, netip.MustParsePrefix("10.12.0.0/24"))
			west.Remotes[0].Pods = append(west.Remotes[0].Pods, fresh.Address)
		}
		require.NoError(t, l.Tell(l.Home, home))
		require.NoError(t, l.Tell(l.West, west))
	}
	asks := func() bool {
		_, err := netlab.Ask(from.Namespace, "", &fresh, []byte("x"))
		return err == nil
	}
	require.False(t, asks(), "nobody has been told of it")
	tell("10.2.0.0/16", "10.12.0.0/16")
	require.NoError(t, netlab.Hear(from.Namespace, &fresh, patience))
	goesOn("a range comes")
	tell("10.2.0.0/17", "10.12.0.0/24")
	require.NoError(t, netlab.Hear(from.Namespace, &fresh, patience))
	goesOn("both are smaller")
	tell("10.2.0.0/17")
	require.Eventually(t, func() bool { return !asks() }, patience, time.Millisecond, "it is reached no more")
	goesOn("a range goes")
	tell("10.2.0.0/16")
	goesOn("it is as it was")
	requireStates(t, l, before)
}

// TestANodeThatComesLaterIsReachedAndHasLanes has a node, and then a gateway, come to clusters that are joined already, of each cluster.
func TestANodeThatComesLaterIsReachedAndHasLanes(t *testing.T) {
	l := newLab(t, netlab.Settings{})
	late := []*netlab.Node{l.Home.Nodes[0], l.Home.Nodes[2], l.West.Nodes[0], l.West.Nodes[2]}
	require.NoError(t, l.JoinWithout(late...))
	from, to := l.Home.Nodes[1].Pods[0], l.West.Nodes[1].Pods[0]
	require.NoError(t, netlab.Hear(from.Namespace, to, patience))
	talk, err := netlab.NewTalk(from.Namespace, to)
	require.NoError(t, err)
	defer talk.Close()
	for i, n := range late {
		require.NoError(t, l.JoinWithout(late[i+1:]...))
		other := to
		if l.West.Nodes[0] == n || l.West.Nodes[2] == n {
			other = from
		}
		require.NoError(t, netlab.Hear(n.Pods[0].Namespace, other, patience), "%s reaches the other cluster", n.Name)
		require.NoError(t, netlab.Hear(other.Namespace, n.Pods[0], patience), "%s is reached", n.Name)
		require.NoError(t, talk.GoesOn(patience))
	}
	awaitLanes(t, l) // each of two gateways to each of two
	await(t, l)
	_, err = talk.Gap()
	assert.NoError(t, err, "the connection of before is still there")
}

// TestConnectionsOutliveARestartOfAllGatewaysAtOnce has both of a cluster be killed and start again, where TLS carries: meanwhile no packet
// passes, and nobody remembers connections but their ends.
func TestConnectionsOutliveARestartOfAllGatewaysAtOnce(t *testing.T) {
	l := joined(t, netlab.Settings{OneRange: true})
	talk, err := netlab.NewTalk(l.Home.Nodes[0].Pods[0].Namespace, l.West.Nodes[0].Pods[0])
	require.NoError(t, err)
	defer talk.Close()
	for _, clusters := range [][]*netlab.Cluster{{l.Home}, {l.West}, {l.Home, l.West}} {
		awaitLanes(t, l)
		var gateways []*netlab.Node
		for _, c := range clusters {
			gateways = append(gateways, c.Nodes[1:]...)
		}
		for _, n := range gateways {
			n.Kill()
		}
		_, err := netlab.Ask(l.Home.Nodes[0].Pods[0].Namespace, "", l.West.Nodes[0].Pods[0], []byte("x"))
		require.Error(t, err, "nothing carries")
		for _, n := range gateways {
			require.NoError(t, l.Start(n))
		}
		require.NoError(t, talk.GoesOn(patience))
		gap, err := talk.Gap()
		require.NoError(t, err, "the connection is kept")
		t.Logf("%d gateways: %v without an answer", len(gateways), gap)
	}
}

// TestPodsAreSeenByTheirOwnAddressesWhereIptablesMasquerades has the programs masquerade that clusters with kube-proxy and CNIs of old use.
func TestPodsAreSeenByTheirOwnAddressesWhereIptablesMasquerades(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"iptables-legacy", "iptables-nft"} {
		t.Run(program, func(t *testing.T) {
			if _, err := exec.LookPath(program); err != nil {
				why := fmt.Sprintf("it needs %s: apt-get install iptables", program)
				require.Empty(t, os.Getenv("LODESTONE_COMPLETE"), why+"; and nothing is to be skipped")
				t.Skip(why)
			}
			l := joined(t, netlab.Settings{Masquerade: program, Strict: true})
			for i, from := range l.Home.Nodes {
				to := l.West.Nodes[(i+1)%3].Pods[0]
				reaches(t, from.Pods[0], to)
				reaches(t, to, from.Pods[0])
			}
			// What is not between the clusters is masqueraded as before.
			node := l.Home.Nodes[0]
			listener, err := l.Home.Nodes[1].Listen(netip.AddrPortFrom(l.Home.Nodes[1].Address, 9005).String())
			require.NoError(t, err)
			defer listener.Close()
			conn, err := node.Pods[0].Dial("tcp", "", listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			heard, err := listener.Accept()
			require.NoError(t, err)
			defer heard.Close()
			seen, err := netip.ParseAddrPort(heard.RemoteAddr().String())
			require.NoError(t, err)
			assert.Equal(t, node.Address, seen.Addr().Unmap(), "a node is called by a pod under the address of the pod's node")
		})
	}
}
