// Package agent is what each node does for the network fabric: it keeps links, rules, routes and filters in line with what it is told and
// with what it finds out about gateways; and on a gateway it keeps the lanes to other clusters. What is in the kernel stays when the
// agent ends, so that packets go on while it is restarted.
package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/network/agent/apply"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/agent/probe"
	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
)

// Settings are what an Agent needs.
type Settings struct {
	// Self is the name of the node.
	Self string
	// State is a directory that only the program can read. A gateway keeps its key for WireGuard there.
	State string
	// Keys are those of a gateway for TLS, and KeyAge is after how long it changes its key; 0: never.
	Keys   *lane.Keys
	KeyAge time.Duration
	// Listen is where other clusters' gateways dial; empty: nowhere.
	Listen string
	// WireGuardPort is the first UDP port at which a gateway listens for WireGuard; 0: it has none.
	WireGuardPort int
	// Connections is how many TLS connections a lane has.
	Connections int
	// Told returns what the node is told, and has changed when that differs from last time.
	Told func() (s *site.Site, changed bool, err error)
	// Ready is called once the node is as it should be, and a gateway has a lane to each cluster, or has waited long enough for it.
	Ready func()
	// Metrics is where lanes are measured.
	Metrics prometheus.Registerer
	// Report is called every second with what the node knows as a gateway, nil while it is none. It must not block.
	Report func(*Report)
}

// Report is what a gateway knows.
type Report struct {
	// MTU is that of the network between nodes.
	MTU int
	// Lanes are the ways to gateways of other clusters, by the name of the cluster, or by site.Remote's DirectName.
	Lanes map[string][]lane.Status
	// WireGuard is this gateway's end of it in the lanes that have one, by the name of the cluster.
	WireGuard map[string]lane.WireGuardEnd
}

const (
	// look is how often the agent looks whether something has changed.
	look = 25 * time.Millisecond
	// again is when it compares with the kernel, though nothing has; and retry when that did not succeed.
	again, retry = 30 * time.Second, time.Second
	// often is how often it reports.
	often = time.Second
	// settle is how long gateways have to answer before the agent changes anything that it finds when it starts.
	settle = 500 * time.Millisecond
	// laneTime is how long a gateway waits for its lanes before it is ready: a cluster that is away must not hold up a rollout.
	laneTime = 30 * time.Second
)

// agent is an Agent that runs.
type agent struct {
	Settings
	server *lane.Server
	// filter brings packet filters in line.
	filter func(plan.Plan) error
	prober *probe.Prober
	// from is the node as it was when it began to ask.
	from    site.Node
	unprobe context.CancelFunc

	site *site.Site // nil: it is told nothing yet
	mtu  int
	via  map[string]string
	// said is why TLS carries packets to a cluster, by its name, where WireGuard is asked for.
	said map[string]string
	// keyProblem is why the key cannot be changed, as it was said.
	keyProblem string
	// ipv6Problem is why IPv6 does not come through here, as it was said.
	ipv6Problem string

	mu    sync.Mutex
	lanes map[string]lane.Lane // only Run changes it
	nodes map[netip.Addr]bool  // that may ask: each does so ten times a second
	up    []string             // clusters to which there is a lane, on a node that is as it should be
}

// Run keeps the node in line until ctx ends.
func Run(ctx context.Context, settings Settings) error {
	a := &agent{Settings: settings, filter: apply.Filters, lanes: map[string]lane.Lane{}, via: map[string]string{}}
	settings.Metrics.MustRegister(a)
	ctx, cancel := context.WithCancel(ctx)
	defer a.stop()
	defer cancel()
	clock := time.NewTicker(look)
	defer clock.Stop()
	var done *plan.Input // nil: the node may not be as it should be
	var next time.Time
	settled := time.Now().Add(settle)
	var reported, told time.Time // told: when the node was told something first
	for {
		if err := a.told(ctx); err != nil {
			return err
		}
		if a.site != nil && time.Now().After(settled) {
			in := a.input(ctx)
			if done == nil || !reflect.DeepEqual(in, *done) || time.Now().After(next) {
				all := done == nil || done.Site != in.Site || !sameDevices(done.Lanes, in.Lanes) || time.Now().After(next)
				if all {
					next = time.Now().Add(again)
					if err := a.keepLanes(ctx); err != nil {
						return err
					}
					in = a.input(ctx)
				}
				done = &in
				if !a.apply(ctx, in, all) {
					done, settled = nil, time.Now().Add(retry)
				}
			}
			if told.IsZero() {
				told = time.Now()
			}
			if done != nil && ready(in, time.Since(told)) {
				a.Ready()
			}
		}
		if a.site != nil && time.Since(reported) >= often {
			if done != nil && done.Node(done.Self) != nil && len(done.Remotes) > 0 && !apply.Filtered() {
				done = nil // until they are back nothing but gates judges what passes
			}
			report := a.report()
			a.say(ctx, report)
			if done != nil { // else it has no links yet
				a.sayIPv6(ctx)
			}
			a.Report(report)
			a.rotate(ctx)
			reported = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-clock.C:
		}
	}
}

// ready says whether a node that is as it should be does its work, so that the next one may be restarted.
func ready(in plan.Input, waited time.Duration) bool {
	self := in.Node(in.Self)
	if self == nil || !self.Gateway || waited > laneTime {
		return true
	}
	return !slices.ContainsFunc(in.Remotes, func(r site.Remote) bool { return !in.Lanes[r.Name].Up })
}

// report is what the node knows as a gateway, nil if it is none.
func (a *agent) report() *Report {
	self := a.site.Node(a.Self)
	if self == nil || !self.Gateway {
		return nil
	}
	r := &Report{MTU: a.mtu, Lanes: a.statuses(), WireGuard: map[string]lane.WireGuardEnd{}}
	for name, l := range a.lanes {
		if end := l.End(); end != nil {
			r.WireGuard[name] = *end
		}
	}
	return r
}

// say has the log say what carries packets, where WireGuard is asked for, when that changes.
func (a *agent) say(ctx context.Context, report *Report) {
	said := map[string]string{}
	for _, r := range a.site.Remotes {
		w := plan.WireGuard(plan.Input{Site: a.site, Self: a.Self, MTU: a.mtu}, r, a.WireGuardPort)
		if report == nil || w == nil {
			continue
		}
		up, why := false, w.Instead
		for _, s := range report.Lanes[r.Name] {
			if s.Peer == w.Peer {
				up, why = s.WireGuard, s.Instead
			}
		}
		if !up && why == "" {
			continue // nobody knows yet
		}
		before, ok := a.said[r.Name]
		said[r.Name] = why
		switch {
		case ok && before == why:
		case up:
			klog.FromContext(ctx).Info("WireGuard carries packets", "cluster", r.Name, "gateway", w.Peer)
		default:
			klog.FromContext(ctx).Info("TLS carries packets, and not WireGuard", "cluster", r.Name, "reason", why)
		}
	}
	a.said = said
}

// sayIPv6 has the log say why IPv6 does not come through, where ranges of it are named and this node is in the way, when that changes.
func (a *agent) sayIPv6(ctx context.Context) {
	problem := ""
	for _, r := range a.site.Remotes {
		switch named := slices.ContainsFunc(r.All(), func(one netip.Prefix) bool { return one.Addr().Is6() }); {
		case !named || a.site.Node(a.Self) == nil:
		case !plan.CarriesIPv6(a.mtu, r):
			problem = fmt.Sprintf("to cluster %s the networks on the way carry %d bytes in one piece, and IPv6 needs 1280: give them a larger MTU",
				r.Name, plan.LaneMTU(a.mtu, r))
		case !apply.HasIPv6():
			problem = "it is switched off on this node: set net.ipv6.conf.all.disable_ipv6 and net.ipv6.conf.default.disable_ipv6 to 0, and " +
				"restart this pod"
		case !forwardsIPv6():
			problem = "this node does not forward it: set net.ipv6.conf.all.forwarding to 1"
		}
	}
	if problem != "" && problem != a.ipv6Problem {
		klog.FromContext(ctx).Info("IPv6 does not come through here", "reason", problem)
	}
	a.ipv6Problem = problem
}

// forwardsIPv6 says whether the node forwards IPv6, as far as that can be read.
func forwardsIPv6() bool {
	value, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/forwarding")
	return err != nil || strings.TrimSpace(string(value)) != "0"
}

// sameDevices says that packets may come by the same links.
func sameDevices(a, b map[string]plan.Lane) bool {
	return maps.EqualFunc(a, b, func(a, b plan.Lane) bool { return slices.Equal(a.Devices, b.Devices) })
}

// rotate goes on with a change of the gateway's key.
func (a *agent) rotate(ctx context.Context) {
	if self := a.site.Node(a.Self); a.server == nil || self == nil || !self.Gateway {
		return // whoever deletes the key of a node that is no gateway wants it gone
	}
	problem := ""
	if err := a.server.Rotate(a.KeyAge); err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != a.keyProblem {
		klog.FromContext(ctx).Info("The gateway's key cannot be changed: it is tried again", "err", problem)
	}
	a.keyProblem = problem
}

// statuses are those of all lanes.
func (a *agent) statuses() map[string][]lane.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	statuses := map[string][]lane.Status{}
	for name, l := range a.lanes {
		statuses[name] = l.Status()
	}
	return statuses
}

// apply brings the node in line, all of it or only what may change from one moment to the next; false: that did not succeed.
func (a *agent) apply(ctx context.Context, in plan.Input, all bool) bool {
	change := apply.Routes
	if all {
		change = apply.Apply
	}
	if err := change(plan.Make(in)); err != nil {
		klog.FromContext(ctx).Error(err, "The node could not be brought in line with the network: it is tried again")
		a.announce(nil)
		return false
	}
	a.announce(in.Lanes)
	return true
}

// stop ends what takes part; what is in the kernel stays, but for lanes over TLS.
func (a *agent) stop() {
	for _, l := range a.lanes {
		_ = l.Release()
	}
	if a.server != nil {
		_ = a.server.Close()
	}
}

// told takes over what the node is told, if it has changed.
func (a *agent) told(ctx context.Context) error {
	s, changed, err := a.Told()
	if err != nil {
		klog.FromContext(ctx).Error(err, "What the node is told cannot be used: it goes on with what it was told before")
		return nil
	}
	if !changed {
		return nil
	}
	self := s.Node(a.Self)
	if self == nil && len(s.Remotes) > 0 {
		klog.FromContext(ctx).Info("The node is not among those that take part: it has nothing of the network", "node", a.Self)
	}
	if self != nil {
		if a.mtu, err = mtuOf(self.Address); err != nil {
			return err
		}
		if err := a.probe(ctx, self); err != nil {
			return err
		}
		a.prober.Set(s, a.Self)
	}
	a.site = s
	a.mu.Lock()
	a.nodes = map[netip.Addr]bool{}
	for _, n := range s.Nodes {
		a.nodes[n.Address] = true
	}
	a.mu.Unlock()
	return a.keepLanes(ctx)
}

// probe asks gateways from the node's address, and answers on a gateway.
func (a *agent) probe(ctx context.Context, self *site.Node) error {
	if self.Address == a.from.Address && self.Gateway == a.from.Gateway {
		return nil
	}
	if a.unprobe != nil {
		a.unprobe()
	}
	ctx, a.unprobe = context.WithCancel(ctx)
	a.from = *self
	var err error
	if a.prober, err = probe.Start(ctx, self.Address); err != nil || !self.Gateway {
		return err
	}
	return probe.Answer(ctx, self.Address, func(from netip.Addr) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.nodes[from]
	}, func() []string {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.up
	})
}

// keepLanes has a lane to each cluster, on a gateway, while packet filters are in force: what comes by a lane is for them to judge. So they
// come first, and go last.
func (a *agent) keepLanes(ctx context.Context) error {
	self := a.site.Node(a.Self)
	wanted := map[string]site.Remote{}
	if self != nil && self.Gateway {
		for _, r := range a.site.WithLanes() {
			wanted[r.Name] = r
		}
	}
	a.closeLanes(func(name string) bool { _, ok := wanted[name]; return !ok })
	if len(wanted) == 0 {
		return nil
	}
	in := plan.Input{Site: a.site, Self: a.Self, MTU: a.mtu}
	if err := a.filter(plan.Make(in)); err != nil {
		klog.FromContext(ctx).Error(err, "No lane is open while packet filters cannot be set: it is tried again")
		a.closeLanes(func(string) bool { return true })
		for name := range wanted { // one of an agent before this one may still be there
			if err := lane.RemoveLink(plan.WireGuardDevice(name)); err != nil {
				klog.FromContext(ctx).Error(err, "A lane over WireGuard is still open")
			}
		}
		return nil
	}
	if a.server == nil {
		var err error
		if a.server, err = lane.NewServer(ctx, a.Keys, a.Listen); err != nil {
			return err
		}
	}
	for name, r := range wanted {
		if a.lanes[name] == nil {
			trunk, err := a.server.NewTrunk(plan.Device(name), a.Connections)
			if err != nil {
				return err
			}
			a.mu.Lock()
			a.lanes[name] = lane.NewDual(trunk, plan.WireGuardDevice(name), a.State)
			a.mu.Unlock()
		}
		var peers []lane.Peer
		for _, g := range r.Gateways {
			peers = append(peers, lane.Peer{Name: g.Name, Address: g.Address, Keys: g.Keys, WireGuard: g.WireGuard})
		}
		a.lanes[name].Limit(r.Limit)
		a.lanes[name].Translate(r.Translations)
		a.lanes[name].From(plan.Reached(a.mtu, r))
		a.lanes[name].Set(peers)
		a.lanes[name].Carry(plan.WireGuard(in, r, a.WireGuardPort))
	}
	return nil
}

func (a *agent) closeLanes(which func(name string) bool) {
	for name, l := range a.lanes {
		if which(name) {
			_ = l.Close()
			a.mu.Lock()
			delete(a.lanes, name)
			a.mu.Unlock()
		}
	}
}

// input is what the plan is made from now.
func (a *agent) input(ctx context.Context) plan.Input {
	in := plan.Input{Site: a.site, Self: a.Self, MTU: a.mtu, Lanes: map[string]plan.Lane{}, Via: map[string]string{},
		Silent: map[string]bool{}}
	for name, l := range a.lanes {
		in.Lanes[name] = plan.Lane{Up: l.Up(), Device: l.Device(), Devices: l.Devices()}
	}
	for i, r := range a.site.WithLanes() {
		if a.prober == nil {
			break
		}
		via := plan.Choose(a.site, a.Self, r.Name, a.via[r.Name], func(gateway string) bool { return a.prober.Answers(gateway, r.Name) })
		answers := a.prober.Answers(via, r.Name)
		if instead := i >= len(a.site.Remotes); via == "" || instead && !answers {
			continue // what is reached directly is else reached through a Remote
		}
		in.Via[r.Name], in.Silent[r.Name] = via, !answers
	}
	for name, via := range in.Via {
		if a.via[name] != via {
			klog.FromContext(ctx).Info("A cluster is reached through a gateway", "cluster", name, "gateway", via, "before", a.via[name])
		}
	}
	a.via = maps.Clone(in.Via)
	return in
}

// announce has the lanes that are up be told to nodes that ask.
func (a *agent) announce(lanes map[string]plan.Lane) {
	var up []string
	for name, l := range lanes {
		if l.Up {
			up = append(up, name)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.up = up
}

// mtuOf returns the MTU of the link that has an address.
func mtuOf(address netip.Addr) (int, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return 0, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		addresses, err := netlink.AddrList(l, netlink.FAMILY_V4)
		if err != nil {
			return 0, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range addresses {
			if has, ok := netip.AddrFromSlice(a.IP); ok && has.Unmap() == address {
				return l.Attrs().MTU, nil
			}
		}
	}
	return 0, errors.New("no link of this node has its address " + address.String() + ": is it the one at which other nodes reach it?")
}
