package netlab

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/network/agent/plan"
)

// State is all links, addresses, rules, routes and packet filters of a namespace as text, to be compared.
func (n *Namespace) State() (string, error) {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	links, err := n.links.LinkList()
	if err != nil {
		return "", err
	}
	for _, l := range links {
		a := l.Attrs()
		add("link %d %s %s mtu %d %s master %d", a.Index, a.Name, l.Type(), a.MTU, a.Flags&^net.FlagRunning, a.MasterIndex) // carriers come late
		addresses, err := n.links.AddrList(l, netlink.FAMILY_V4)
		if err != nil {
			return "", err
		}
		for _, address := range addresses {
			add("address %s of %s", address.IPNet, a.Name)
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := n.links.RuleList(family)
		if err != nil {
			return "", err
		}
		for _, r := range rules {
			add("%d %s", family, r)
		}
		routes, err := n.links.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return "", err
		}
		for _, r := range routes {
			if family == netlink.FAMILY_V6 && r.Protocol == unix.RTPROT_KERNEL {
				continue // they come and go with links, of which each has its own
			}
			add("route table %d %s metric %d protocol %d", r.Table, r, r.Priority, r.Protocol)
		}
	}
	addresses, err := n.Addresses6("lode")
	if err != nil {
		return "", err
	}
	lines = append(lines, addresses...)
	filters, err := n.filters()
	if err != nil {
		return "", err
	}
	slices.Sort(lines)
	return strings.Join(append(lines, filters...), "\n"), nil
}

// filters are all tables of nftables, with the handles of rules: who replaces a rule gives it another one.
func (n *Namespace) filters() (lines []string, err error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.handle)))
	if err != nil {
		return nil, err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		lines = append(lines, fmt.Sprintf("table %d %s", t.Family, t.Name))
		sets, err := conn.GetSets(t)
		if err != nil {
			return nil, err
		}
		for _, s := range sets {
			elements, err := conn.GetSetElements(s)
			if err != nil {
				return nil, err
			}
			var keys []string
			for _, e := range elements {
				keys = append(keys, fmt.Sprint(e.Key, e.IntervalEnd))
			}
			slices.Sort(keys)
			lines = append(lines, fmt.Sprintf("set %s %v", s.Name, keys))
		}
	}
	chains, err := conn.ListChains()
	if err != nil {
		return nil, err
	}
	for _, c := range chains {
		lines = append(lines, fmt.Sprintf("chain %s %s", c.Table.Name, c.Name))
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			lines = append(lines, fmt.Sprintf("rule %s %s handle %d %s", c.Table.Name, c.Name, r.Handle, strings.Trim(string(r.UserData), "\x00")))
		}
	}
	return lines, nil
}

// Spoil changes something of each kind that an agent has made on a node.
func (n *Node) Spoil() error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := n.links.RuleList(family)
		if err != nil {
			return err
		}
		for _, r := range rules {
			if r.Protocol == plan.Protocol {
				if err := n.links.RuleDel(&r); err != nil {
					return err
				}
			}
		}
		stray := netlink.NewRule()
		stray.Family, stray.Priority, stray.Table, stray.Protocol = family, 3, 7472, plan.Protocol
		if err := n.links.RuleAdd(stray); err != nil {
			return err
		}
	}
	tunnel, err := n.links.LinkByName(plan.Tunnel)
	if err != nil {
		return err
	}
	if err := n.links.LinkSetMTU(tunnel, 1300); err != nil {
		return err
	}
	for _, text := range []string{"10.77.0.0/16", "fd00:77::/48"} {
		_, elsewhere, _ := net.ParseCIDR(text)
		err = n.links.RouteAdd(&netlink.Route{Table: 7472, Dst: elsewhere, LinkIndex: tunnel.Attrs().Index, Protocol: plan.Protocol,
			Scope: netlink.SCOPE_LINK})
		if err != nil {
			return err
		}
	}
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.handle)))
	if err != nil {
		return err
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		conn.FlushTable(&nftables.Table{Family: family, Name: plan.FilterName})
	}
	return conn.Flush()
}

// FlushRuleset does what `nft flush ruleset` does: no table of nftables is left, whoever has made it.
func (n *Node) FlushRuleset() error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.handle)))
	if err != nil {
		return err
	}
	conn.FlushRuleset()
	return conn.Flush()
}
