package site

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

func TestWhatIsReachedDirectlyHasALaneOfItsOwn(t *testing.T) {
	ranges := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	home := Remote{Name: "home", Ranges: ranges("10.1.0.0/16"), Limit: 1 << 20, Carrier: WireGuard, MTU: 1400,
		Pods:         []netip.Addr{netip.MustParseAddr("10.2.0.2")},
		Translations: remotecluster.Translations{{PodCIDR: ranges("10.2.0.0/16")[0], ReachedAs: ranges("100.64.0.0/16")[0]}},
		Behind:       []Behind{{Name: "north", Ranges: ranges("10.4.0.0/16")}, {Name: "east", Ranges: ranges("10.3.0.0/16"), MTU: 1450}}}
	s := &Site{Remotes: []Remote{home, {Name: "other"}}}
	assert.Equal(t, s.Remotes, s.WithLanes())
	gateways := []Gateway{{Name: "e1", Keys: []lane.Key{{1}}}}
	s.Remotes[0].Behind[1].Direct = gateways
	assert.Equal(t, append(s.Remotes, Remote{Name: "home/east", Ranges: ranges("10.3.0.0/16"), Limit: 1 << 20, MTU: 1450, Pods: home.Pods,
		Translations: home.Translations, Gateways: gateways}), s.WithLanes(),
		"of its own ranges, to the same pods, by the same addresses, over TLS")
}
