package peer

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// pool is where ranges are chosen by which pods are reached whose own overlap with others: RFC 6598 has it for networks that are
// translated, so it is seldom in use as it is.
var pool = netip.MustParsePrefix("100.64.0.0/10")

// parseTranslations reads what a flag gives: ranges, by those that they are reached as.
func parseTranslations(flag map[string]string) (remotecluster.Translations, error) {
	var pairs []networkv1alpha1.PodTranslation
	for _, pods := range slices.Sorted(maps.Keys(flag)) {
		pairs = append(pairs, networkv1alpha1.PodTranslation{PodCIDR: pods, ReachedAs: flag[pods]})
	}
	return remotecluster.ParseTranslations(pairs)
}

// reachedOf returns by which ranges home reaches pods of a remote cluster. What cannot be read was refused when it was written.
func reachedOf(r *v1alpha1.RemoteCluster) remotecluster.PodRanges {
	own, _ := remotecluster.ParsePodRanges(r.Spec.PodCIDRs)
	translations, _ := remotecluster.ParseTranslations(r.Spec.PodTranslations)
	return translations.Ranges(own)
}

// homeRanges returns the ranges of pods at home of which the owner of the remote cluster has listed by what they are reached.
func (p *Plan) homeRanges(o Options) (remotecluster.PodRanges, error) {
	listed, err := remotecluster.ParsePodRanges(p.Network.PodCIDRs)
	if err != nil {
		return nil, cli.Refuse("spec.network.podCIDRs of HomeCluster %q: %w", p.HomeID, err)
	}
	translations, err := parseTranslations(o.HomePodTranslations)
	if err != nil {
		return nil, cli.Misuse("--home-pod-translations: %w", err)
	}
	if p.Remote != nil && len(translations) == 0 {
		if translations, err = remotecluster.ParseTranslations(p.Remote.Spec.HomePodTranslations); err != nil {
			return nil, cli.Refuse("spec.homePodTranslations of %s: %w", describe(p.Name), err)
		}
	}
	return translations.Reverse().Ranges(listed), nil
}

// chooseTranslations sets by which ranges the pods of each cluster are reached from the other one. A range that is translated stays so, and
// one that overlaps with another gets the first range of its size in pool that is free; home gets the one that it has for other clusters.
func (p *Plan) chooseTranslations(o Options, s Situation, home remotecluster.PodRanges) error {
	texts := o.PodCIDRs
	var before v1alpha1.RemoteClusterSpec
	if p.Remote != nil {
		before = p.Remote.Spec
	}
	if len(texts) == 0 {
		texts = before.PodCIDRs
	}
	there, err := remotecluster.ParsePodRanges(texts)
	if err != nil {
		return cli.Misuse("--pod-cidrs: %w", err)
	}
	here := slices.Concat(home, s.HomeRanges, s.HomeHosts)
	far := slices.Concat(there, s.RemoteRanges, s.RemoteHosts)
	var others, behind, taken remotecluster.PodRanges // behind are reached through home; taken is all that is in use somewhere
	var shared []networkv1alpha1.PodTranslation
	for i := range s.Remotes {
		r := &s.Remotes[i]
		if r.Name == p.Name {
			continue
		}
		own, _ := remotecluster.ParsePodRanges(r.Spec.PodCIDRs)
		others = append(others, reachedOf(r)...)
		if before.PodTransit.Passes() && r.Spec.PodTransit.Passes() {
			behind = append(behind, only4(reachedOf(r))...)
		}
		taken = append(taken, own...)
		shared = append(shared, r.Spec.HomePodTranslations...)
	}
	taken = slices.Concat(taken, others, here, far)
	for _, one := range slices.Concat(shared, before.PodTranslations, before.HomePodTranslations) {
		if as, err := netip.ParsePrefix(one.ReachedAs); err == nil {
			taken = append(taken, as)
		}
	}
	given, err := parseTranslations(o.PodTranslations)
	if err != nil {
		return cli.Misuse("--pod-translations: %w", err)
	}
	givenHome, err := parseTranslations(o.HomePodTranslations)
	if err != nil {
		return cli.Misuse("--home-pod-translations: %w", err)
	}
	for _, one := range slices.Concat(given, givenHome) {
		taken = append(taken, one.ReachedAs)
	}

	for _, side := range []struct {
		flag    string
		pods    remotecluster.PodRanges
		given   remotecluster.Translations
		before  []networkv1alpha1.PodTranslation // these stay though nothing overlaps any more
		shared  []networkv1alpha1.PodTranslation
		clashes remotecluster.PodRanges
		chosen  *remotecluster.Translations
	}{
		{"--home-pod-translations", home, givenHome, before.HomePodTranslations, shared, far, &p.HomeTranslations},
		{"--pod-translations", there, given, before.PodTranslations, nil, slices.Concat(here, others), &p.Translations},
		{"--home-pod-translations", behind, nil, before.HomePodTranslations, nil, far, &p.HomeTranslations},
	} {
		for _, one := range side.given {
			if !slices.Contains(side.pods, one.PodCIDR) {
				return cli.Misuse("%s names %s, which is not a range of these pods: name one of %v", side.flag, one.PodCIDR, side.pods)
			}
		}
		for _, pods := range side.pods {
			as, err := reachAs(pods, side.given, side.before, side.shared, side.clashes, taken)
			if err != nil {
				return cli.Refuse("%w, and give it with %s", err, side.flag)
			}
			if as.IsValid() {
				taken = append(taken, as)
				*side.chosen = append(*side.chosen, remotecluster.Translation{PodCIDR: pods, ReachedAs: as})
			}
		}
	}
	return p.checkTranslations(s, home, there, here, far, others)
}

// reachAs returns by which range one is reached; not valid: by itself. clashes are ranges from which it must differ.
func reachAs(pods netip.Prefix, given remotecluster.Translations, before, shared []networkv1alpha1.PodTranslation,
	clashes, taken remotecluster.PodRanges,
) (netip.Prefix, error) {
	for _, one := range given {
		if one.PodCIDR == pods {
			return one.ReachedAs, nil
		}
	}
	own := remotecluster.PodRanges{pods}
	_, _, overlaps := own.Overlap(clashes)
	for i, one := range slices.Concat(before, shared) {
		as, err := netip.ParsePrefix(one.ReachedAs)
		if one.PodCIDR != pods.String() || err != nil || !overlaps && i >= len(before) {
			continue
		}
		if _, _, used := (remotecluster.PodRanges{as}).Overlap(clashes); !used {
			return as, nil
		}
	}
	if !overlaps || !pods.Addr().Is4() {
		return netip.Prefix{}, nil
	}
	for as := netip.PrefixFrom(pool.Addr(), pods.Bits()); pods.Bits() >= pool.Bits() && pool.Contains(as.Addr()); as = following(as) {
		if _, _, used := (remotecluster.PodRanges{as}).Overlap(taken); !used {
			return as, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("pods of %s have to be reached by another range, since others have these addresses too, and no range "+
		"of /%d is free in %s: choose one that neither cluster has", pods, pods.Bits(), pool)
}

// following is the next range of the same size.
func following(r netip.Prefix) netip.Prefix {
	bytes := r.Addr().As4()
	value := uint32(bytes[0])<<24 | uint32(bytes[1])<<16 | uint32(bytes[2])<<8 | uint32(bytes[3])
	value += 1 << (32 - r.Bits())
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), r.Bits())
}

// checkTranslations refuses ranges that are no better than those that they stand for, and notes which stands for which.
func (p *Plan) checkTranslations(s Situation, home, there, here, far, others remotecluster.PodRanges) error {
	if err := p.Translations.Validate(); err != nil {
		return cli.Refuse("--pod-translations: %w", err)
	}
	if err := p.HomeTranslations.Validate(); err != nil {
		return cli.Refuse("--home-pod-translations: %w", err)
	}
	reached, homeReached := p.Translations.Ranges(there), only4(p.HomeTranslations.Ranges(home))
	if own, other, overlap := reached.Overlap(slices.Concat(here, others)); overlap {
		return cli.Refuse("pods in the cluster of context %q would be reached by %s, which overlaps with %s, from which pods, nodes or Services "+
			"at home or pods of another RemoteCluster have their addresses: give an IPv4 range that nobody has with --pod-translations, or leave "+
			"it out of --pod-cidrs",
			s.RemoteContext, own, other)
	}
	if own, other, overlap := homeReached.Overlap(slices.Concat(far, reached)); overlap {
		return cli.Refuse("pods at home would be reached by %s, which overlaps with %s of pods, nodes or Services in the cluster of context %q: "+
			"give a range that nobody has with --home-pod-translations", own, other, s.RemoteContext)
	}
	for _, one := range p.Translations {
		p.Notes = append(p.Notes, fmt.Sprintf("home reaches pods of %s in the cluster of context %q as %s: programs there that announce their "+
			"own address are not reached by it", one.PodCIDR, s.RemoteContext, one.ReachedAs))
	}
	for _, one := range p.HomeTranslations {
		where := "at home"
		if !slices.Contains(home, one.PodCIDR) {
			where = "of another remote cluster, through home,"
		}
		p.Notes = append(p.Notes, fmt.Sprintf("the cluster of context %q reaches pods of %s %s as %s: programs among them that "+
			"announce their own address are not reached by it", s.RemoteContext, one.PodCIDR, where, one.ReachedAs))
	}
	return nil
}

// only4 are the IPv4 ranges: others are not translated, and home carries none from one remote cluster to another.
func only4(ranges remotecluster.PodRanges) remotecluster.PodRanges {
	return slices.DeleteFunc(slices.Clone(ranges), func(r netip.Prefix) bool { return !r.Addr().Is4() })
}
