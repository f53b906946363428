package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/network/agent/apply"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
)

// gateways is how many of many nodes are some.
const gateways = 2

// roles are those of nodes, each with a node that has it.
var roles = []struct {
	name string
	node int
	// budget is how many times longer it may take to set up than the yardstick.
	budget float64
}{{"gateway", 0, 4}, {"node", gateways, 2}}

// kernels is what a cluster of many nodes costs each of them in its kernel, beside as many routes that are added with nothing else.
func (b *bench) kernels(ctx context.Context) (results []measure.Result, err error) {
	if b.nodes == 0 {
		return nil, nil
	}
	took, changing := map[string][]time.Duration{}, map[string][]time.Duration{}
	var plain []time.Duration
	writes, idle := map[string]int{}, 0
	holds := map[string]netlab.Holdings{}
	for range b.rounds {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		yardstick, err := addRoutes(b.nodes)
		if err != nil {
			return nil, err
		}
		plain = append(plain, yardstick)
		for _, role := range roles {
			k, err := newKernel(role.node)
			if err != nil {
				return nil, err
			}
			some, err := k.measure(b.nodes)
			k.Close()
			if err != nil {
				return nil, fmt.Errorf("%s of %d nodes: %w", role.name, b.nodes, err)
			}
			took[role.name], changing[role.name] = append(took[role.name], some.took), append(changing[role.name], some.changing)
			writes[role.name], idle = max(writes[role.name], some.writes), max(idle, some.idle)
			holds[role.name] = some.holds
		}
	}
	// A node has a route for each range of other clusters, and a gateway one for each node of its own, too, and some more for gates.
	const ranges, rest = 1, 4
	node, gateway := holds["node"], holds["gateway"]
	results = append(results,
		measure.AtMost("network-nodes-node-routes", float64(node.Routes), ranges, ""),
		measure.AtMost("network-nodes-node-rules", float64(node.Rules), ranges, ""),
		measure.AtMost("network-nodes-gateway-routes", float64(gateway.Routes), float64(b.nodes+rest), ""),
		measure.Figure("network-nodes-gateway-rules", float64(gateway.Rules), ""),
		measure.AtMost("network-nodes-neighbours", float64(node.Neighbours+gateway.Neighbours), 0, ""),
		measure.Figure("network-nodes-node-elements", float64(node.Elements), ""),
		measure.Figure("network-nodes-gateway-elements", float64(gateway.Elements), ""),
		measure.AtMost("network-nodes-writes-at-rest", float64(idle), 0, ""),
		// The node's address in packet filters, and on gateways the route to its pods.
		measure.AtMost("network-nodes-node-change-writes", float64(writes["node"]), 2, ""),
		measure.AtMost("network-nodes-gateway-change-writes", float64(writes["gateway"]), 4, ""),
		measure.Figure("network-nodes-routes-alone", milliseconds(measure.Median(plain)), "ms"))
	for _, role := range roles {
		results = append(results,
			measure.Figure("network-nodes-"+role.name+"-set-up", milliseconds(measure.Median(took[role.name])), "ms"),
			measure.Figure("network-nodes-"+role.name+"-change", milliseconds(measure.Median(changing[role.name])), "ms"),
			measure.AtMost("network-nodes-"+role.name+"-set-up-to-routes", measure.MedianRatio(took[role.name], plain), role.budget, "x"),
			measure.AtMost("network-nodes-"+role.name+"-change-to-routes", measure.MedianRatio(changing[role.name], plain), 1, "x"))
	}
	return results, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// addRoutes is how long it takes to add as many routes as there are nodes, and nothing else, where none is.
func addRoutes(count int) (took time.Duration, err error) {
	n, err := netlab.NewNamespace("routes")
	if err != nil {
		return 0, err
	}
	defer n.Close()
	return took, n.In(func() error {
		began := time.Now()
		for i := range count {
			pods := podsOf(i)
			to := &net.IPNet{IP: pods.Addr().AsSlice(), Mask: net.CIDRMask(pods.Bits(), 32)}
			if err := netlink.RouteReplace(&netlink.Route{Dst: to, Type: unix.RTN_BLACKHOLE, Table: 7473}); err != nil {
				return err
			}
		}
		took = time.Since(began)
		return nil
	})
}

// podsOf is the range of a node's pods, addressOf its address.
func podsOf(node int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + node>>8), byte(node), 0}), 24)
}

func addressOf(node int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, byte(16 + node>>16), byte(node >> 8), byte(node)})
}

func nameOf(node int) string { return fmt.Sprintf("node-%04d", node) }

// siteOf is what one of many nodes is told.
func siteOf(count int) *site.Site {
	s := &site.Site{}
	for i := range count {
		s.Nodes = append(s.Nodes, site.Node{Name: nameOf(i), Address: addressOf(i), Pods: []netip.Prefix{podsOf(i)}, Gateway: i < gateways})
	}
	s.Remotes = []site.Remote{{Name: "west", Ranges: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, MTU: 1500,
		Gateways: []site.Gateway{{Name: "west-1", Address: "192.0.2.1:7473", Keys: []lane.Key{{1}}}},
		Pods:     []netip.Addr{podsOf(1).Addr().Next()}}}
	return s
}

// kernel is that of one node.
type kernel struct {
	*netlab.Namespace
	node int
}

func newKernel(node int) (*kernel, error) {
	n, err := netlab.NewNamespace("node")
	return &kernel{n, node}, err
}

// apply brings it in line with what it is told.
func (k *kernel) apply(s *site.Site) (took time.Duration, err error) {
	via := nameOf((k.node + 1) % gateways)
	return took, k.In(func() error {
		began := time.Now()
		err := apply.Apply(plan.Make(plan.Input{Site: s, Self: nameOf(k.node), MTU: 1500, Via: map[string]string{"west": via}}))
		took = time.Since(began)
		return err
	})
}

// measured is what is seen of a kernel: how long it takes with all nodes, what it has then, and what one more change costs.
type measured struct {
	took, changing time.Duration
	writes, idle   int
	holds          netlab.Holdings
}

func (k *kernel) measure(nodes int) (m measured, err error) {
	all := siteOf(nodes)
	if m.took, err = k.apply(all); err != nil {
		return m, err
	}
	if m.holds, err = k.Holds(); err != nil {
		return m, err
	}
	m.idle, err = k.Writes(func() error { _, err := k.apply(all); return err })
	if err != nil {
		return m, err
	}
	// Another node takes the place of the last one.
	changed := *all
	changed.Nodes = slices.Clone(all.Nodes)
	last := &changed.Nodes[nodes-1]
	last.Address, last.Pods = addressOf(nodes), []netip.Prefix{podsOf(nodes)}
	m.writes, err = k.Writes(func() error { m.changing, err = k.apply(&changed); return err })
	if m.writes == 0 && err == nil {
		err = fmt.Errorf("nothing has changed in the kernel")
	}
	return m, err
}
