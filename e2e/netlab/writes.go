package netlab

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/network/agent/plan"
)

// Holdings are how much of the network fabric a namespace has in its kernel.
type Holdings struct {
	Routes, Rules int
	// Neighbours are those on the tunnel's link.
	Neighbours int
	// Elements are those of all sets of packet filters.
	Elements int
}

// Holds counts it.
func (n *Namespace) Holds() (h Holdings, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := n.links.RouteListFiltered(family, &netlink.Route{Protocol: plan.Protocol},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			return h, err
		}
		rules, err := n.links.RuleList(family)
		if err != nil {
			return h, err
		}
		h.Routes += len(routes)
		h.Rules += len(slices.DeleteFunc(rules, func(r netlink.Rule) bool { return r.Protocol != plan.Protocol }))
	}
	tunnel, err := n.links.LinkByName(plan.Tunnel)
	if err != nil {
		return h, err
	}
	neighbours, err := n.links.NeighList(tunnel.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		return h, err
	}
	h.Neighbours = len(neighbours)
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.handle)))
	if err != nil {
		return h, err
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		sets, err := conn.GetSets(&nftables.Table{Family: family, Name: plan.FilterName})
		if err != nil {
			return h, err
		}
		for _, s := range sets {
			elements, err := conn.GetSetElements(s)
			if err != nil {
				return h, err
			}
			h.Elements += len(elements)
		}
	}
	return h, nil
}

// Writes counts how many routes, rules and parts of packet filters of the namespace change while something runs: the kernel tells of each.
func (n *Namespace) Writes(run func() error) (count int, err error) {
	routes, err := nl.SubscribeAt(n.handle, netns.None(), unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return 0, fmt.Errorf("hear of routes of %s: %w", n.Name, err)
	}
	defer routes.Close()
	filters, err := nl.SubscribeAt(n.handle, netns.None(), unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return 0, fmt.Errorf("hear of packet filters of %s: %w", n.Name, err)
	}
	defer filters.Close()
	if err := run(); err != nil {
		return 0, err
	}
	for _, socket := range []*nl.NetlinkSocket{routes, filters} {
		some, err := told(socket)
		if err != nil {
			return 0, fmt.Errorf("hear what has changed of %s: %w", n.Name, err)
		}
		count += some
	}
	return count, nil
}

// told counts what a socket has been told of changes until now.
func told(socket *nl.NetlinkSocket) (count int, err error) {
	if err := socket.SetReceiveTimeout(&unix.Timeval{Usec: 100_000}); err != nil {
		return 0, err
	}
	const generation = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN // that something has changed, and nothing more
	for {
		messages, _, err := socket.Receive()
		if errors.Is(err, unix.EAGAIN) {
			return count, nil
		}
		if err != nil {
			return count, err
		}
		for _, m := range messages {
			if m.Header.Type != generation {
				count++
			}
		}
	}
}
