package remotecluster

import (
	"fmt"
	"net/netip"
	"slices"
)

// PodRanges are the ranges from which pods of a cluster have their addresses (spec.podCIDRs of its RemoteCluster);
// none means that they are not known. Whatever a remote cluster calls the address of a pod becomes one that
// Services at home send to, so it must be one that the administrator has given to that cluster.
type PodRanges []netip.Prefix

// ParsePodRanges reads ranges such as 10.244.0.0/16. The error is a sentence that names the first that is none.
func ParsePodRanges(texts []string) (PodRanges, error) {
	var ranges PodRanges
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is no range of addresses: give one such as 10.244.0.0/16", text)
		case prefix != prefix.Masked():
			return nil, fmt.Errorf("%q is an address in a range: the range is %s", text, prefix.Masked())
		case prefix.Bits() < 8:
			return nil, fmt.Errorf("%q is no range of pods: give one of /8 or smaller", text)
		}
		if _, other, overlap := (PodRanges{prefix}).Overlap(unusable); overlap {
			return nil, fmt.Errorf("%q is no range of pods: none has an address of %s", text, other)
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}

// unusable are ranges that no pod has an address from: what hosts keep for themselves, and for several at once.
var unusable = PodRanges{netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("::/8"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8")}

// Disjoint returns a sentence that names the first two that have an address in common.
func (r PodRanges) Disjoint() error {
	for i, one := range r {
		if _, other, overlap := (PodRanges{one}).Overlap(r[:i]); overlap {
			return fmt.Errorf("%s overlaps with %s: give ranges that have no address in common", one, other)
		}
	}
	return nil
}

// Has reports whether an address is in one of the ranges.
func (r PodRanges) Has(address netip.Addr) bool {
	address = address.Unmap()
	return slices.ContainsFunc(r, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// HasRange reports whether a range is within one of the ranges.
func (r PodRanges) HasRange(other netip.Prefix) bool {
	return slices.ContainsFunc(r, func(prefix netip.Prefix) bool {
		return prefix.Bits() <= other.Bits() && prefix.Contains(other.Addr())
	})
}

// Overlap returns a range of r and one of others that have addresses in common; false if there are none.
func (r PodRanges) Overlap(others PodRanges) (own, other netip.Prefix, found bool) {
	for _, own := range r {
		for _, other := range others {
			if own.Overlaps(other) {
				return own, other, true
			}
		}
	}
	return netip.Prefix{}, netip.Prefix{}, false
}
