// Package apply brings links, rules, routes and packet filters of a node in line with a plan, by comparing: what is as it should be is not
// touched, and packets go on while the rest is changed. All of it can be done again at any time.
package apply

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/lane"
)

// Apply brings the node in line with a plan. It goes on after an error, as far as that makes sense.
func Apply(p plan.Plan) error {
	// Nothing is to pass that the filter would not let pass: it comes first, and goes last.
	if p.Filter != nil {
		if err := Filters(p); err != nil {
			return err
		}
		if err := tunnel(p.MTU); err != nil {
			return err
		}
		for _, device := range p.Devices {
			if err := loosen(device); err != nil {
				return err
			}
		}
		return errors.Join(Routes(p), rules(slices.Concat(p.Gates, p.Rules), true), strays(append(p.Guarded, p.Devices...)))
	}
	if err := errors.Join(strays(nil), rules(nil, true), routes(nil, true), tunnel(0)); err != nil {
		return err
	}
	return Filters(p)
}

// Filters brings only packet filters in line, and sets up gates, which keep everybody else from being reached while there are none. A link
// that would no longer be judged goes before: those over WireGuard stay when the program ends, whatever the node is told meanwhile.
func Filters(p plan.Plan) error {
	if err := strays(p.Judged); err != nil {
		return err
	}
	wanted := p.FilterIPv6
	if !lane.HasIPv6() {
		wanted = nil // there is nothing to be filtered, and may be no such table
	}
	return errors.Join(filter(nftables.TableFamilyIPv4, p.Filter), filter(nftables.TableFamilyIPv6, wanted),
		routes(p.GateRoutes, false), rules(p.Gates, false))
}

// hasNone says that something is of IPv6, and the kernel has none of that.
func hasNone(ipv6 bool) bool { return ipv6 && !lane.HasIPv6() }

// HasIPv6 says whether the tunnel's link may carry IPv6, which may be switched off though the kernel has it.
func HasIPv6() bool {
	value, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + plan.Tunnel + "/disable_ipv6")
	return err == nil && strings.TrimSpace(string(value)) == "0"
}

// Routes brings only routes in line: of a plan that was applied nothing else changes when another gateway or lane is used.
func Routes(p plan.Plan) error { return routes(slices.Concat(p.GateRoutes, p.Routes), true) }

// Remove removes all that Apply has ever made on the node.
func Remove() error { return Apply(plan.Plan{}) }
