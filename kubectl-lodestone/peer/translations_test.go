package peer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

func TestByWhichRangesPodsAreReachedWhereTheirOwnOverlap(t *testing.T) {
	ranges := func(texts ...string) remotecluster.PodRanges {
		parsed, err := remotecluster.ParsePodRanges(texts)
		require.NoError(t, err)
		return parsed
	}
	pairs := func(texts ...string) (all []networkv1alpha1.PodTranslation) {
		for i := 0; i < len(texts); i += 2 {
			all = append(all, networkv1alpha1.PodTranslation{PodCIDR: texts[i], ReachedAs: texts[i+1]})
		}
		return all
	}
	const kind = "10.244.0.0/16"
	east := remoteCluster("east", "east-uid", func(r *v1alpha1.RemoteCluster) {
		r.Spec.PodNetwork, r.Spec.PodCIDRs = v1alpha1.Fabric, []string{kind}
		r.Spec.PodTranslations, r.Spec.HomePodTranslations = pairs(kind, "100.65.0.0/16"), pairs(kind, "100.64.0.0/16")
	})
	west := remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) {
		r.Spec.PodNetwork, r.Spec.PodCIDRs = v1alpha1.Fabric, []string{kind}
		r.Spec.PodTranslations, r.Spec.HomePodTranslations = pairs(kind, "100.99.0.0/16"), pairs(kind, "100.98.0.0/16")
	})
	passing := remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) {
		r.Spec.PodNetwork, r.Spec.PodCIDRs, r.Spec.PodTransit = v1alpha1.Fabric, []string{kind}, v1alpha1.TransitEnabled
	})
	terms := &remotev1alpha1.HomeCluster{Spec: remotev1alpha1.HomeClusterSpec{Network: &remotev1alpha1.NetworkPolicy{
		PodCIDRs: []string{"100.98.0.0/16"}}}}
	for name, row := range map[string]struct {
		home, there string
		// homeHosts and remoteHosts are ranges, with spaces between them.
		homeHosts, remoteHosts string

		others      []v1alpha1.RemoteCluster
		have        *v1alpha1.RemoteCluster
		terms       *remotev1alpha1.HomeCluster
		given, own  map[string]string
		pods, homes []networkv1alpha1.PodTranslation
		listed      string
		says        string
		code        cli.ExitCode
	}{
		"nothing overlaps": {home: "10.1.0.0/16", there: kind, listed: "10.1.0.0/16"},
		"two clusters with one range": {home: kind, there: kind, pods: pairs(kind, "100.65.0.0/16"), homes: pairs(kind, "100.64.0.0/16"),
			listed: "100.64.0.0/16"},
		"three clusters with one range: home is reached as it is from the other one": {home: kind, there: kind,
			others: []v1alpha1.RemoteCluster{east}, pods: pairs(kind, "100.66.0.0/16"), homes: pairs(kind, "100.64.0.0/16"),
			listed: "100.64.0.0/16"},
		"only the other one has the range": {home: "10.1.0.0/16", there: kind, listed: "10.1.0.0/16",
			others: []v1alpha1.RemoteCluster{remoteCluster("east", "e", func(r *v1alpha1.RemoteCluster) { r.Spec.PodCIDRs = []string{kind} })},
			pods:   pairs(kind, "100.64.0.0/16")},
		"the other one has the range, and is reached through home": {home: "10.1.0.0/16", there: kind, listed: "10.1.0.0/16", have: &passing,
			others: []v1alpha1.RemoteCluster{remoteCluster("east", "e", func(r *v1alpha1.RemoteCluster) {
				r.Spec.PodCIDRs, r.Spec.PodTransit = []string{kind}, v1alpha1.TransitEnabled
			})},
			pods: pairs(kind, "100.64.0.0/16"), homes: pairs(kind, "100.65.0.0/16")},
		"another one that is reached through home has another range": {home: "10.1.0.0/16", there: kind, listed: "10.1.0.0/16", have: &passing,
			others: []v1alpha1.RemoteCluster{remoteCluster("east", "e", func(r *v1alpha1.RemoteCluster) {
				r.Spec.PodCIDRs, r.Spec.PodTransit = []string{"10.3.0.0/16"}, v1alpha1.TransitEnabled
			})}},
		"ranges of other sizes": {home: "10.244.7.0/24", there: kind, pods: pairs(kind, "100.65.0.0/16"),
			homes: pairs("10.244.7.0/24", "100.64.0.0/24"), listed: "100.64.0.0/24"},
		"what was chosen stays": {home: kind, there: kind, have: &west, terms: terms, pods: west.Spec.PodTranslations,
			homes: west.Spec.HomePodTranslations, listed: "100.98.0.0/16"},
		"the user chooses": {home: kind, there: kind, given: map[string]string{kind: "10.201.0.0/16"},
			own: map[string]string{kind: "10.200.0.0/16"}, pods: pairs(kind, "10.201.0.0/16"), homes: pairs(kind, "10.200.0.0/16"),
			listed: "10.200.0.0/16"},
		"the owner of west has listed by what home is to be reached": {home: kind, there: kind, own: map[string]string{kind: "100.98.0.0/16"},
			terms: terms, pods: pairs(kind, "100.64.0.0/16"), homes: pairs(kind, "100.98.0.0/16"), listed: "100.98.0.0/16"},
		"the user chooses what pods at home have": {home: kind, there: kind, given: map[string]string{kind: "10.244.0.0/16"}, code: cli.Usage,
			says: "--pod-translations: 10.244.0.0/16 overlaps"},
		"the user chooses what others have": {home: "10.1.0.0/16", there: kind, given: map[string]string{kind: "10.1.0.0/16"}, code: cli.Refused,
			says: "would be reached by 10.1.0.0/16, which overlaps with 10.1.0.0/16"},
		"the user chooses one range for both": {home: kind, there: kind, given: map[string]string{kind: "10.9.0.0/16"},
			own: map[string]string{kind: "10.9.0.0/16"}, code: cli.Refused, says: "pods at home would be reached by 10.9.0.0/16"},
		"the user names a range that is none": {home: kind, there: kind, given: map[string]string{"10.7.0.0/16": "10.9.0.0/16"}, code: cli.Usage,
			says: "--pod-translations names 10.7.0.0/16, which is not a range of these pods"},
		"a range that is larger than all that is free": {home: "10.0.0.0/8", there: "10.0.0.0/8", code: cli.Refused,
			says: "no range of /8 is free in 100.64.0.0/10: choose one that neither cluster has, and give it with --home-pod-translations"},
		"pods there have addresses of Services at home": {home: "10.1.0.0/16", there: "10.96.0.0/12", homeHosts: "10.96.0.0/16",
			listed: "10.1.0.0/16", pods: pairs("10.96.0.0/12", "100.64.0.0/12")},
		"pods at home have the address of a node there, and nodes there those that would be chosen": {home: "10.1.0.0/16", there: "10.2.0.0/16",
			remoteHosts: "10.1.2.3/32 100.64.3.4/32", listed: "100.65.0.0/16", homes: pairs("10.1.0.0/16", "100.65.0.0/16")},
		"the user chooses what Services there have": {home: kind, there: "10.2.0.0/16", own: map[string]string{kind: "10.96.0.0/16"},
			remoteHosts: "10.96.0.0/12", code: cli.Refused, says: "which overlaps with 10.96.0.0/12 of pods, nodes or Services in the cluster of"},
		"IPv6 is not translated": {home: "fd00::/48", there: "fd00::/56", code: cli.Refused, says: "give an IPv4 range that nobody has"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Plan{Name: "west", Remote: row.have, Home: row.terms}
			o := Options{PodNetwork: "Fabric", PodCIDRs: []string{row.there}, PodTranslations: row.given, HomePodTranslations: row.own}
			s := Situation{RemoteContext: "west", Remotes: row.others, HomeRanges: ranges(row.home), RemoteRanges: ranges(row.there),
				HomeHosts: ranges(strings.Fields(row.homeHosts)...), RemoteHosts: ranges(strings.Fields(row.remoteHosts)...)}
			err := plan.chooseRanges(o, s)
			if err == nil {
				err = plan.chooseTerms(o, s)
			}
			assert.Equal(t, row.code, cli.ExitCodeOf(err))
			if row.says != "" {
				require.ErrorContains(t, err, row.says)
				return
			}
			remote := plan.remoteCluster(o, westUID)
			assert.Equal(t, row.pods, remote.Spec.PodTranslations)
			assert.Equal(t, row.homes, remote.Spec.HomePodTranslations)
			assert.Equal(t, []string{row.listed}, plan.Network.PodCIDRs)
			assert.Len(t, plan.Notes, len(row.pods)+len(row.homes), "the user is told")
		})
	}
	plan := Plan{Name: "west", Remote: &west, Home: terms}
	require.NoError(t, plan.chooseTerms(Options{PodNetwork: "Isolated"}, Situation{}))
	assert.Empty(t, plan.remoteCluster(Options{PodNetwork: "Isolated"}, westUID).Spec.PodTranslations, "it goes with the fabric")
	err := plan.chooseTerms(Options{PodNetwork: "Routed", PodTranslations: map[string]string{kind: "10.9.0.0/16"}}, Situation{})
	require.ErrorContains(t, err, "are for --pod-network Fabric")
}

func TestTheCarrierIsThatOfTheFabricAndStays(t *testing.T) {
	plan := Plan{Name: "west"}
	err := plan.chooseTerms(Options{PodNetwork: "Routed", PodCarrier: "WireGuard"}, Situation{})
	require.ErrorContains(t, err, "--pod-carrier is for --pod-network Fabric")
	plan.Remote = plan.remoteCluster(Options{PodNetwork: "Fabric", PodCarrier: "WireGuard"}, westUID)
	assert.Equal(t, networkv1alpha1.WireGuard, plan.Remote.Spec.PodCarrier)
	assert.Equal(t, networkv1alpha1.WireGuard, plan.remoteCluster(Options{}, westUID).Spec.PodCarrier, "without the flag it stays")
	assert.Equal(t, networkv1alpha1.TLS, plan.remoteCluster(Options{PodCarrier: "TLS"}, westUID).Spec.PodCarrier)
}
