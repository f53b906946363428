package remotecluster

import (
	"fmt"
	"net/netip"
	"slices"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
)

// Translation says that the pods of a range are reached from the other cluster by a range of the same length: each address by that with
// the same last bits.
type Translation struct {
	// PodCIDR is the range from which the pods have their addresses.
	PodCIDR netip.Prefix `json:"podCIDR"`
	// ReachedAs is the range by which the other cluster reaches them.
	ReachedAs netip.Prefix `json:"reachedAs"`
}

// String is "10.244.0.0/16 as 100.64.0.0/16".
func (t Translation) String() string { return fmt.Sprintf("%s as %s", t.PodCIDR, t.ReachedAs) }

// Translations are those of one cluster's pods, as one other cluster reaches them. Addresses in none of the ranges stay as they are.
type Translations []Translation

// ParseTranslations reads those of an object. The error is a sentence that names the first that cannot be.
func ParseTranslations(pairs []networkv1alpha1.PodTranslation) (Translations, error) {
	var all Translations
	for _, pair := range pairs {
		both, err := ParsePodRanges([]string{pair.PodCIDR, pair.ReachedAs})
		if err != nil {
			return nil, err
		}
		all = append(all, Translation{both[0], both[1]})
	}
	return all, all.Validate()
}

// Validate returns a sentence that names the first that cannot be.
func (t Translations) Validate() error {
	var seen PodRanges
	for _, one := range t {
		both := PodRanges{one.PodCIDR, one.ReachedAs}
		for _, r := range both {
			if !r.IsValid() || !r.Addr().Is4() || r != r.Masked() || r.Bits() < 8 {
				return fmt.Errorf("the translation of %s has no IPv4 ranges from /8 on: write them as 10.244.0.0/16", one)
			}
			if mine, other, overlap := (PodRanges{r}).Overlap(seen); overlap {
				return fmt.Errorf("%s overlaps with %s, which is in a translation, too: give ranges that have no address in common", mine, other)
			}
			seen = append(seen, r)
		}
		if one.PodCIDR.Bits() != one.ReachedAs.Bits() {
			return fmt.Errorf("%s cannot be reached as %s: give a range of /%d", one.PodCIDR, one.ReachedAs, one.PodCIDR.Bits())
		}
		if _, other, overlap := (PodRanges{one.ReachedAs}).Overlap(unusable); overlap {
			return fmt.Errorf("%s cannot be reached as %s: no pod is reached by an address of %s", one.PodCIDR, one.ReachedAs, other)
		}
	}
	return nil
}

// Reached returns the address by which the other cluster reaches a pod; false if the address is one by which another pod is reached.
func (t Translations) Reached(pod netip.Addr) (address netip.Addr, ok bool) {
	pod = pod.Unmap()
	for i := range t {
		switch {
		case t[i].PodCIDR.Contains(pod):
			return move(pod, t[i].ReachedAs), true
		case t[i].ReachedAs.Contains(pod):
			return netip.Addr{}, false
		}
	}
	return pod, true
}

// Pod returns the address of the pod that the other cluster reaches by an address; false if it reaches none by that, for it is the own
// address of a pod that is reached by another.
func (t Translations) Pod(reached netip.Addr) (address netip.Addr, ok bool) {
	reached = reached.Unmap()
	for i := range t {
		switch {
		case t[i].ReachedAs.Contains(reached):
			return move(reached, t[i].PodCIDR), true
		case t[i].PodCIDR.Contains(reached):
			return netip.Addr{}, false
		}
	}
	return reached, true
}

// Object is the form that objects have.
func (t Translations) Object() (pairs []networkv1alpha1.PodTranslation) {
	for _, one := range t {
		pairs = append(pairs, networkv1alpha1.PodTranslation{PodCIDR: one.PodCIDR.String(), ReachedAs: one.ReachedAs.String()})
	}
	return pairs
}

// Reverse is the other way: from what pods are reached by to what they have.
func (t Translations) Reverse() (reverse Translations) {
	for _, one := range t {
		reverse = append(reverse, Translation{PodCIDR: one.ReachedAs, ReachedAs: one.PodCIDR})
	}
	return reverse
}

// Ranges returns by which ranges the other cluster reaches the pods of these.
func (t Translations) Ranges(pods PodRanges) PodRanges {
	reached := slices.Clone(pods)
	for i, r := range reached {
		for _, one := range t {
			if one.PodCIDR.Bits() <= r.Bits() && one.PodCIDR.Contains(r.Addr()) {
				reached[i] = netip.PrefixFrom(move(r.Addr(), one.ReachedAs), r.Bits())
			}
		}
	}
	return reached
}

// move returns the address in a range that has the same bits after the range's length.
func move(address netip.Addr, into netip.Prefix) netip.Addr {
	from, to := address.As4(), into.Addr().As4()
	for i := range from {
		mask := byte(0xff << (8 - min(max(into.Bits()-8*i, 0), 8)))
		to[i] |= from[i] &^ mask
	}
	return netip.AddrFrom4(to)
}
