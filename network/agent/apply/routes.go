package apply

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/lane"
)

// routes brings our routes in line: what is missing first, and what is too much last, so that no packet finds none; or, where these are not
// all that are wanted, only adds what is missing.
func routes(wanted []plan.Route, all bool) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	names := map[int]string{}
	indices := map[string]int{}
	for _, l := range links {
		names[l.Attrs().Index], indices[l.Attrs().Name] = l.Attrs().Name, l.Attrs().Index
	}
	present, err := listRoutes(names)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	links6, some6 := HasIPv6(), lane.HasIPv6()
	wanted = slices.DeleteFunc(slices.Clone(wanted), func(r plan.Route) bool { // the kernel takes none of these
		return r.To.Addr().Is6() && (!some6 || r.Kind == "" && !links6)
	})
	// There may be one for each pod.
	type way struct {
		table, metric int
		to            netip.Prefix
	}
	is, should := map[plan.Route]bool{}, map[way]bool{}
	for _, r := range present {
		is[r] = true
	}
	var errs []error
	for _, r := range wanted {
		should[way{r.Table, r.Metric, r.To}] = true
		if r.Kind == "" && indices[r.Device] == 0 {
			errs = append(errs, fmt.Errorf("there is no link %s for the route to %s: who has removed it? It is made again", r.Device, r.To))
			continue
		}
		if is[r] {
			continue
		}
		if err := netlink.RouteReplace(kernelRoute(r, indices[r.Device])); err != nil {
			errs = append(errs, fmt.Errorf("set the route to %s over %s: %w", r.To, r.Device, err))
		}
	}
	for _, r := range present {
		// A route that was replaced is gone already.
		if !all || should[way{r.Table, r.Metric, r.To}] {
			continue
		}
		if err := netlink.RouteDel(kernelRoute(r, indices[r.Device])); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("delete the route to %s over %s: %w", r.To, r.Device, err))
		}
	}
	return errors.Join(errs...)
}

func kernelRoute(r plan.Route, link int) *netlink.Route {
	route := &netlink.Route{Table: r.Table, Dst: network(r.To), Priority: r.Metric, LinkIndex: link, MTU: r.MTU, Protocol: plan.Protocol,
		Scope: netlink.SCOPE_LINK}
	if r.To.Addr().Is6() {
		route.Priority += metricIPv6
		route.MTULock = r.MTU != 0 // older kernels heed it for what they forward only if it is locked
	}
	switch r.Kind {
	case plan.DropAll:
		route.Type, route.Scope = unix.RTN_BLACKHOLE, netlink.SCOPE_UNIVERSE
	case plan.GoOn:
		route.Type, route.Scope = unix.RTN_THROW, netlink.SCOPE_UNIVERSE
	}
	if r.Via.IsValid() {
		route.Encap = &encapsulation{to: r.Via}
	}
	return route
}

// kinds are those of routes that lead nowhere.
var kinds = map[uint8]plan.Kind{unix.RTN_BLACKHOLE: plan.DropAll, unix.RTN_THROW: plan.GoOn}

// metricIPv6 is added to metrics of IPv6, of which 0 is another word for 1024.
const metricIPv6 = 1

func network(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// listRoutes returns our routes of both families as plans have them.
func listRoutes(names map[int]string) (found []plan.Route, err error) {
	for _, ipv6 := range []bool{false, true} {
		if hasNone(ipv6) {
			continue
		}
		some, err := listRoutesOf(ipv6, names)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// listRoutesOf returns those of one family. The library does not say where a route's tunnel leads.
func listRoutesOf(ipv6 bool, names map[int]string) (found []plan.Route, err error) {
	family, least, everywhere := uint8(unix.AF_INET), 0, netip.IPv4Unspecified()
	if ipv6 {
		family, least, everywhere = unix.AF_INET6, metricIPv6, netip.IPv6Unspecified()
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family}})
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		message := nl.DeserializeRtMsg(m)
		if message.Protocol != plan.Protocol {
			continue
		}
		attributes, err := nl.ParseRouteAttr(m[message.Len():])
		if err != nil {
			return nil, err
		}
		r := plan.Route{Kind: kinds[message.Type], To: netip.PrefixFrom(everywhere, 0)}
		for _, a := range attributes {
			switch a.Attr.Type &^ unix.NLA_F_NESTED {
			case unix.RTA_TABLE:
				r.Table = int(binary.NativeEndian.Uint32(a.Value))
			case unix.RTA_PRIORITY:
				r.Metric = int(binary.NativeEndian.Uint32(a.Value)) - least
			case unix.RTA_OIF:
				if r.Kind == "" { // of IPv6 others have one, too, loopback
					r.Device = names[int(binary.NativeEndian.Uint32(a.Value))]
				}
			case unix.RTA_DST:
				if to, ok := netip.AddrFromSlice(a.Value); ok {
					r.To = netip.PrefixFrom(to, int(message.Dst_len))
				}
			case unix.RTA_METRICS:
				if mtu := nested(a.Value, unix.RTAX_MTU); len(mtu) == 4 {
					r.MTU = int(binary.NativeEndian.Uint32(mtu))
				}
			case unix.RTA_ENCAP:
				r.Via, _ = netip.AddrFromSlice(nested(a.Value, nl.LWTUNNEL_IP6_DST))
			}
		}
		found = append(found, r)
	}
	return found, nil
}

// nested returns the value of one attribute of several, nil if it is not there.
func nested(attributes []byte, kind uint16) []byte {
	parsed, err := nl.ParseRouteAttr(attributes)
	if err != nil {
		return nil
	}
	for _, a := range parsed {
		if a.Attr.Type == kind {
			return a.Value
		}
	}
	return nil
}

// rules brings our rules of both families in line; or, where these are not all that are wanted, only adds what is missing.
func rules(wanted []plan.Rule, all bool) error {
	var errs []error
	for _, ipv6 := range []bool{false, true} {
		if !hasNone(ipv6) {
			of := slices.DeleteFunc(slices.Clone(wanted), func(r plan.Rule) bool { return r.IPv6 != ipv6 })
			errs = append(errs, rulesOf(ipv6, of, all))
		}
	}
	return errors.Join(errs...)
}

// rulesOf brings those of one family in line.
func rulesOf(ipv6 bool, wanted []plan.Rule, all bool) error {
	family := netlink.FAMILY_V4
	if ipv6 {
		family = netlink.FAMILY_V6
	}
	there, err := netlink.RuleList(family)
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	var errs []error
	var present []plan.Rule
	for _, r := range there {
		if r.Protocol != plan.Protocol {
			continue
		}
		found := plan.Rule{Priority: r.Priority, Table: r.Table, From: prefix(r.Src), To: prefix(r.Dst), In: r.IifName,
			Drop: r.Table == 0, IPv6: ipv6}
		if slices.Contains(wanted, found) && !slices.Contains(present, found) {
			present = append(present, found)
			continue
		}
		if !all {
			continue
		}
		r.Family = family
		if err := netlink.RuleDel(&r); err != nil {
			errs = append(errs, fmt.Errorf("delete the rule of priority %d: %w", r.Priority, err))
		}
	}
	for _, w := range wanted {
		if slices.Contains(present, w) {
			continue
		}
		rule := netlink.NewRule()
		rule.Family, rule.Priority, rule.Table, rule.Protocol = family, w.Priority, w.Table, plan.Protocol
		if w.From.IsValid() {
			rule.Src = network(w.From)
		}
		if w.To.IsValid() {
			rule.Dst = network(w.To)
		}
		if rule.IifName = w.In; w.Drop {
			rule.Type = unix.RTN_UNREACHABLE
		} else if w.In != "" {
			mask := uint32(plan.Mark)
			rule.Mask = &mask
		}
		if err := netlink.RuleAdd(rule); err != nil {
			errs = append(errs, fmt.Errorf("add the rule of priority %d: %w", w.Priority, err))
		}
	}
	return errors.Join(append(errs, localLast(family))...)
}

// prefix is a network as plans have it; nil: not valid.
func prefix(network *net.IPNet) netip.Prefix {
	if network == nil {
		return netip.Prefix{}
	}
	address, _ := netip.AddrFromSlice(network.IP)
	bits, _ := network.Mask.Size()
	return netip.PrefixFrom(address, bits)
}

// localLast has the rule by which a node knows its own addresses come after our gates, which have its priority, 0, for there is none before
// that. The kernel puts a rule behind those of the same priority, and deletes the first that is like it, so it is never without one.
func localLast(family int) error {
	all, err := netlink.RuleList(family)
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	local := func(r netlink.Rule) bool {
		return r.Priority == 0 && r.Table == unix.RT_TABLE_LOCAL && r.Protocol != plan.Protocol
	}
	gate := func(r netlink.Rule) bool { return r.Priority == 0 && r.Protocol == plan.Protocol }
	first, last := slices.IndexFunc(all, local), len(all)-1
	for last >= 0 && !gate(all[last]) {
		last--
	}
	if first < 0 || first > last {
		return nil
	}
	if !slices.ContainsFunc(all[last:], local) {
		if err := addLocal(family, all[first].Protocol); err != nil {
			return fmt.Errorf("add the rule for the node's own addresses behind our gates: %w", err)
		}
	}
	if err := netlink.RuleDel(&all[first]); err != nil {
		return fmt.Errorf("delete the rule for the node's own addresses before our gates: %w", err)
	}
	return nil
}

// addLocal adds that rule though there is the same one, which the library does not.
func addLocal(family int, protocol uint8) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	message := nl.NewRtMsg()
	message.Family, message.Table, message.Type = uint8(family), unix.RT_TABLE_LOCAL, nl.FR_ACT_TO_TBL
	message.Protocol, message.Scope = unix.RTPROT_UNSPEC, unix.RT_SCOPE_UNIVERSE
	request.AddData(message)
	request.AddData(nl.NewRtAttr(nl.FRA_PRIORITY, nl.Uint32Attr(0)))
	request.AddData(nl.NewRtAttr(nl.FRA_PROTOCOL, nl.Uint8Attr(protocol)))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
