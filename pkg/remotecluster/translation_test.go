package remotecluster

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
)

func pair(pods, as string) networkv1alpha1.PodTranslation {
	return networkv1alpha1.PodTranslation{PodCIDR: pods, ReachedAs: as}
}

func TestTranslationsThatCannotBeAreRefusedInWords(t *testing.T) {
	for _, row := range []struct {
		name  string
		pairs []networkv1alpha1.PodTranslation
		says  string
	}{
		{"no range", []networkv1alpha1.PodTranslation{pair("10.244.0.0/16", "x")}, `"x" is no range of addresses`},
		{"IPv6", []networkv1alpha1.PodTranslation{pair("fd00::/48", "fd01::/48")}, "no IPv4 ranges"},
		{"another length", []networkv1alpha1.PodTranslation{pair("10.244.0.0/16", "100.64.0.0/17")}, "give a range of /16"},
		{"itself", []networkv1alpha1.PodTranslation{pair("10.244.0.0/16", "10.244.0.0/16")}, "10.244.0.0/16 overlaps with 10.244.0.0/16"},
		{"two ranges as one", []networkv1alpha1.PodTranslation{pair("10.244.0.0/16", "100.64.0.0/16"), pair("10.1.0.0/16", "100.64.0.0/16")},
			"100.64.0.0/16 overlaps with 100.64.0.0/16"},
		{"loopback", []networkv1alpha1.PodTranslation{pair("10.244.0.0/16", "127.1.0.0/16")}, "none has an address of 127.0.0.0/8"},
		{"multicast", []networkv1alpha1.PodTranslation{pair("10.244.0.0/16", "225.1.0.0/16")}, "none has an address of 224.0.0.0/3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := ParseTranslations(row.pairs)
			assert.ErrorContains(t, err, row.says)
		})
	}
}

func TestEachPodHasOneAddressByWhichItIsReached(t *testing.T) {
	all, err := ParseTranslations([]networkv1alpha1.PodTranslation{pair("10.244.0.0/16", "100.64.0.0/16"),
		pair("10.8.0.0/13", "100.72.0.0/13"), pair("10.99.1.64/27", "10.98.7.32/27")})
	require.NoError(t, err)
	for pod, reached := range map[string]string{
		"10.244.3.4": "100.64.3.4", "10.15.255.255": "100.79.255.255", "10.8.0.1": "100.72.0.1", "10.99.1.95": "10.98.7.63",
		"192.0.2.1": "192.0.2.1", "fd00::7": "fd00::7",
	} {
		as, ok := all.Reached(netip.MustParseAddr(pod))
		assert.True(t, ok)
		assert.Equal(t, reached, as.String(), pod)
		back, ok := all.Pod(netip.MustParseAddr(reached))
		assert.True(t, ok)
		assert.Equal(t, pod, back.String())
	}
	_, ok := all.Reached(netip.MustParseAddr("100.64.3.4"))
	assert.False(t, ok, "another pod is reached by that")
	_, ok = all.Pod(netip.MustParseAddr("10.244.3.4"))
	assert.False(t, ok, "the pod is reached by another one")
	assert.Equal(t, ranges(t, "100.64.0.0/16", "192.0.2.0/24", "100.64.7.0/24"),
		all.Ranges(ranges(t, "10.244.0.0/16", "192.0.2.0/24", "10.244.7.0/24")))
	same, ok := Translations(nil).Reached(netip.MustParseAddr("10.244.3.4"))
	assert.True(t, ok)
	assert.Equal(t, "10.244.3.4", same.String())
}

func ranges(t *testing.T, texts ...string) PodRanges {
	t.Helper()
	parsed, err := ParsePodRanges(texts)
	require.NoError(t, err)
	return parsed
}
