package path

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
)

func TestWhatComesBackSaysWhoWasSeen(t *testing.T) {
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 0)
	// A port that is free for both.
	for port := uint16(20000); ; port++ {
		at = netip.AddrPortFrom(at.Addr(), port)
		if Serve(t.Context(), at) == nil {
			break
		}
	}
	for _, size := range []int{1, 64, 9000, 60000} {
		seen, err := AskUDP(at, content(size))
		require.NoError(t, err)
		assert.Equal(t, at.Addr(), seen)
	}
	seen, err := AskTCP(t.Context(), at, content(1<<20))
	require.NoError(t, err)
	assert.Equal(t, at.Addr(), seen)
	_, err = AskUDP(netip.AddrPortFrom(at.Addr(), 1), content(1))
	assert.Error(t, err)
	_, err = AskTCP(t.Context(), netip.AddrPortFrom(at.Addr(), 1), content(1))
	assert.Error(t, err)
}

func TestAPathIsUpOnlyWhileAllIsAnswered(t *testing.T) {
	answered, missing := sample{answered: true, took: time.Millisecond}, sample{}
	for _, row := range []struct {
		name    string
		happens func(t *target)
		up      bool
		says    string
	}{
		{"nothing was sent yet", func(*target) {}, false, "not probed yet"},
		{"small packets alone say little", func(t *target) { t.take(answered) }, false, "not probed yet"},
		{"all is answered", func(t *target) { t.take(answered); t.takeWhole("") }, true, ""},
		{"one packet is lost", func(t *target) { t.take(answered); t.takeWhole(""); t.take(missing) }, true, ""},
		{"two are lost in a row", func(t *target) { t.take(answered); t.takeWhole(""); t.take(missing); t.take(missing) }, false,
			"small UDP packets to pod 10.2.0.1 are not answered"},
		{"and it comes back", func(t *target) { t.takeWhole(""); t.take(missing); t.take(missing); t.take(answered) }, true, ""},
		{"large ones get lost", func(t *target) { t.take(answered); t.takeWhole("UDP packets of 9000 bytes get lost") }, false,
			"UDP packets of 9000 bytes get lost"},
		{"and come through again", func(t *target) { t.takeWhole("TCP"); t.takeWhole("") }, true, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			one := newTarget(netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1"))
			row.happens(one)
			status := one.status()
			assert.Equal(t, row.up, status.Up)
			assert.Equal(t, row.says, status.Message)
		})
	}
	one := newTarget(netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1"))
	for range 100 {
		one.take(sample{answered: true, took: 3 * time.Millisecond})
	}
	for range 25 {
		one.take(missing)
	}
	assert.Equal(t, int32(50), one.status().LossPercent, "of the last 50")
	assert.Equal(t, int64(3000), one.status().RoundTripMicroseconds)
}

func TestATranslatedSourceIsSaid(t *testing.T) {
	own, other := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1")
	problem := judge("TCP", own, other, func() (netip.Addr, error) { return netip.MustParseAddr("192.0.2.1"), nil })
	assert.Equal(t, "pod 10.2.0.1 sees address 192.0.2.1 and not 10.1.0.1, by which it reaches this one: something between "+
		"translates addresses", problem)
}

func TestOnlyPodsOfRangesThatCountAreProbed(t *testing.T) {
	link := &networkv1alpha1.NetworkLink{
		Spec: networkv1alpha1.NetworkLinkSpec{Probes: []string{"10.2.0.1", "192.0.2.1", "127.0.0.1", "x", "fd00::1", "fd01::1"}},
		Status: networkv1alpha1.NetworkLinkStatus{PodCIDRs: []string{"10.2.0.0/16", "fd00::/48"},
			Conditions: []metav1.Condition{{Type: networkv1alpha1.Accepted, Status: metav1.ConditionTrue}}}}
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("fd00::1")}, Targets(link))
	link.Status.Conditions[0].Status = metav1.ConditionFalse
	assert.Empty(t, Targets(link))
}

func TestEntriesOfPodsThatAreGoneAreDropped(t *testing.T) {
	now := time.Now()
	entry := func(name string, age time.Duration) networkv1alpha1.ProbeStatus {
		return networkv1alpha1.ProbeStatus{Name: name, RenewTime: metav1.NewTime(now.Add(-age))}
	}
	names := func(entries []networkv1alpha1.ProbeStatus) (found []string) {
		for _, e := range entries {
			found = append(found, e.Name)
		}
		return found
	}
	// The clock of d's node is an hour late.
	present := []networkv1alpha1.ProbeStatus{entry("b", 3*time.Minute), entry("c", time.Minute), entry("d", time.Hour)}
	link := &networkv1alpha1.NetworkLink{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "l"}}
	link.Status.Probes = present
	links := []*networkv1alpha1.NetworkLink{link}
	p := &prober{others: sight(nil, links, now)}
	old := func(at time.Time) func(name string) bool { return p.old("n/l", at) }
	assert.Equal(t, []string{"b", "c", "d"}, names(entries(present, entry("b", 0), false, old(now.Add(stale)))))
	assert.Equal(t, []string{"c", "d"}, names(entries(present, entry("b", 0), true, old(now))), "a pod that ends takes its entry away")
	present[2] = entry("d", time.Hour-20*time.Second)
	p.others = sight(p.others, links, now.Add(stale))
	assert.Equal(t, []string{"b", "d"}, names(entries(present, entry("b", 0), false, old(now.Add(stale+1)))), "c is not renewed any more")
	p.others = sight(p.others, nil, now)
	assert.Empty(t, p.others, "of links that are gone nothing is remembered")
}

func TestAPodIsSeenByTheAddressThatItIsReachedBy(t *testing.T) {
	own := netip.MustParseAddr("10.244.3.4")
	link := &networkv1alpha1.NetworkLink{}
	assert.Equal(t, own, Seen(link, own))
	link.Status.PodTranslations = []networkv1alpha1.PodTranslation{{PodCIDR: "10.244.0.0/16", ReachedAs: "100.64.0.0/16"}}
	assert.Equal(t, netip.MustParseAddr("100.64.3.4"), Seen(link, own))
	link.Status.PodTranslations[0].ReachedAs = "x"
	assert.Equal(t, own, Seen(link, own))
}

func TestAPodProbesEachFamilyThatItHas(t *testing.T) {
	link := &networkv1alpha1.NetworkLink{}
	link.Name, link.Namespace = "l", "n"
	link.Status.Conditions = []metav1.Condition{{Type: networkv1alpha1.Accepted, Status: metav1.ConditionTrue}}
	link.Status.PodCIDRs = []string{"10.2.0.0/16", "fd00:2::/48"}
	link.Status.PodTranslations = []networkv1alpha1.PodTranslation{{PodCIDR: "10.244.0.0/16", ReachedAs: "100.64.0.0/16"}}
	link.Spec.Probes = []string{"10.2.0.1", "fd00:2::1", "fd00:3::1", "fe80::1%eth0"}
	ipv4, ipv6 := netip.MustParseAddr("10.244.0.7"), netip.MustParseAddr("fd00:1::7")
	for _, row := range []struct {
		name string
		own  []netip.Addr
		from map[string]string // what is probed, and by which address this pod is seen there
	}{
		{"both", []netip.Addr{ipv4, ipv6}, map[string]string{"10.2.0.1": "100.64.0.7", "fd00:2::1": "fd00:1::7"}},
		{"IPv6 first", []netip.Addr{ipv6, ipv4}, map[string]string{"10.2.0.1": "100.64.0.7", "fd00:2::1": "fd00:1::7"}},
		{"IPv4 alone", []netip.Addr{ipv4}, map[string]string{"10.2.0.1": "100.64.0.7"}},
		{"IPv6 alone", []netip.Addr{ipv6}, map[string]string{"fd00:2::1": "fd00:1::7"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			p := &prober{Settings: Settings{Addresses: row.own}, targets: map[netip.Addr]*running{}}
			p.aim(ctx, []*networkv1alpha1.NetworkLink{link})
			from := map[string]string{}
			for address, r := range p.targets {
				from[address.String()] = r.aimed.own.String()
			}
			assert.Equal(t, row.from, from)
			assert.Len(t, p.paths(link), len(row.from))
		})
	}
}
