package remotecluster

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatIsNoRangeIsRefusedInWords(t *testing.T) {
	for text, says := range map[string]string{
		"":               "is no range of addresses",
		"10.0.0.1":       "is no range of addresses",
		"ten/8":          "is no range of addresses",
		"10.0.0.0/33":    "is no range of addresses",
		"10.244.1.0/16":  "the range is 10.244.0.0/16",
		"0.0.0.0/0":      "is no range of pods",
		"::/0":           "is no range of pods",
		"fe80::1%eth0/8": "is no range of addresses",
		"127.0.0.0/8":    "none has an address of 127.0.0.0/8",
		"127.1.0.0/16":   "none has an address of 127.0.0.0/8",
		"0.0.0.0/8":      "none has an address of 0.0.0.0/8",
		"169.254.0.0/16": "none has an address of 169.254.0.0/16",
		"169.0.0.0/8":    "none has an address of 169.254.0.0/16",
		"224.0.0.0/8":    "none has an address of 224.0.0.0/3",
		"240.0.0.0/16":   "none has an address of 224.0.0.0/3",
		"::1/128":        "none has an address of ::/8",
		"fe80::/16":      "none has an address of fe80::/10",
		"ff02::/64":      "none has an address of ff00::/8",
	} {
		_, err := ParsePodRanges([]string{"10.0.0.0/8", text})
		require.ErrorContains(t, err, says, text)
	}
}

func TestWhichAddressesAreInRanges(t *testing.T) {
	ranges, err := ParsePodRanges([]string{"10.244.0.0/16", "fd00:10::/56"})
	require.NoError(t, err)
	for address, in := range map[string]bool{
		"10.244.3.4": true, "::ffff:10.244.3.4": true, "fd00:10::7": true,
		"10.245.0.1": false, "10.96.0.1": false, "fd00:11::7": false, "127.0.0.1": false,
	} {
		assert.Equal(t, in, ranges.Has(netip.MustParseAddr(address)), address)
	}
	assert.False(t, PodRanges(nil).Has(netip.MustParseAddr("10.244.3.4")))
	assert.True(t, ranges.HasRange(netip.MustParsePrefix("10.244.7.0/24")))
	assert.False(t, ranges.HasRange(netip.MustParsePrefix("10.0.0.0/8")))
}

func TestRangesThatOverlapAreNamed(t *testing.T) {
	one, err := ParsePodRanges([]string{"10.1.0.0/16", "10.244.0.0/16"})
	require.NoError(t, err)
	other, err := ParsePodRanges([]string{"fd00::/48", "10.244.7.0/24"})
	require.NoError(t, err)
	mine, theirs, found := one.Overlap(other)
	assert.True(t, found)
	assert.Equal(t, "10.244.0.0/16 10.244.7.0/24", mine.String()+" "+theirs.String())
	_, _, found = one.Overlap(nil)
	assert.False(t, found)
	require.NoError(t, one.Disjoint())
	require.EqualError(t, append(one, other[1]).Disjoint(),
		"10.244.7.0/24 overlaps with 10.244.0.0/16: give ranges that have no address in common")
	require.Error(t, append(one, one[0]).Disjoint(), "twice the same")
}
