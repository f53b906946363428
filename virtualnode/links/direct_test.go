package links

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// asksForLanes are the terms of a cluster that asks for direct lanes.
func asksForLanes(t *testing.T, spec v1alpha1.RemoteClusterSpec) terms {
	t.Helper()
	spec.PodTransit = v1alpha1.TransitDirect
	set, problem := termsOf(spec)
	require.Empty(t, problem)
	return set
}

// linkTo is home's link to a cluster, which home's gateways accept.
func linkTo(name string) *networkv1alpha1.NetworkLink {
	link := side("h", "10.1.0.9")
	link.Name = name
	link.Spec.Gateways = []networkv1alpha1.Gateway{{Name: name + "1", Address: name + "1:7473", Keys: []string{"k", "l"}, MTU: 1450,
		WireGuard: &networkv1alpha1.WireGuardEnd{Port: 7477}}}
	return link
}

func TestTheFirstOfTwoClustersIsToldWhereTheOtherOneIs(t *testing.T) {
	west := asksForLanes(t, v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.2.0.0/16"}})
	east := asksForLanes(t, v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.3.0.0/16"}})
	told := transitOf("east", east, []other{{"west", west, linkTo("west")}})
	require.Len(t, told, 1)
	assert.Equal(t, []networkv1alpha1.Gateway{{Name: "west1", Address: "west1:7473", Keys: []string{"k", "l"}}}, told[0].Gateways,
		"both keys of one that changes its key")
	assert.Equal(t, &networkv1alpha1.DirectLanes{}, told[0].Direct)
	back := transitOf("west", west, []other{{"east", east, linkTo("east")}})
	assert.Equal(t, []networkv1alpha1.Gateway{{Name: "east1", Keys: []string{"k", "l"}}}, back[0].Gateways, "east dials")

	spec := there(west, nil, back)
	assert.Equal(t, back[0].Gateways, spec.Transit[0].Gateways)
	assert.Nil(t, spec.Transit[0].Direct)
	assert.NotNil(t, back[0].Direct, "what was given is not changed")
	assert.Empty(t, here(west, nil, back).Transit[0].Gateways, "home has no use for them there")
}

func TestWhatHindersDirectLanes(t *testing.T) {
	pair := func(from, as string) []networkv1alpha1.PodTranslation {
		return []networkv1alpha1.PodTranslation{{PodCIDR: from, ReachedAs: as}}
	}
	west := v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.2.0.0/16"}}
	east := v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.3.0.0/16"}}
	translated := v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.244.0.0/16"}, PodTranslations: pair("10.244.0.0/16", "100.66.0.0/16"),
		HomePodTranslations: pair("10.244.0.0/16", "100.64.0.0/16")}
	twice := translated
	twice.HomePodTranslations = pair("10.2.0.0/16", "100.76.0.0/16")
	unaccepted := linkTo("east")
	unaccepted.Status.Conditions[0].Status = metav1.ConditionFalse
	nowhere := linkTo("east")
	nowhere.Spec.Gateways[0].Address = ""
	for _, row := range []struct {
		name       string
		west, east v1alpha1.RemoteClusterSpec
		link       *networkv1alpha1.NetworkLink
		says       string
	}{
		{"nothing", west, east, linkTo("east"), ""},
		{"each translates for its own pods", west, translated, linkTo("east"), ""},
		{"home's gateways translate for both", west, twice, linkTo("east"), "home's gateways translate between the two clusters"},
		{"home's gateways translate for both, the other way round", twice, west, linkTo("east"), "home's gateways translate"},
		{"home knows nothing of it", west, east, nil, "cluster east is not joined with home yet"},
		{"home does not accept it", west, east, unaccepted, "cluster east is not joined with home yet"},
	} {
		t.Run(row.name, func(t *testing.T) {
			told := transitOf("west", asksForLanes(t, row.west), []other{{"east", asksForLanes(t, row.east), row.link}})
			require.Len(t, told, 1)
			require.NotNil(t, told[0].Direct)
			assert.NotEmpty(t, told[0].PodCIDRs, "through home it is reached")
			if row.says == "" {
				assert.Empty(t, told[0].Direct.Message)
				assert.NotEmpty(t, told[0].Gateways)
				return
			}
			assert.Empty(t, told[0].Gateways)
			assert.Contains(t, told[0].Direct.Message, row.says)
			assert.Equal(t, told[0].Direct, here(terms{}, side("w", "10.2.0.9"), told).Transit[0].Direct, "home's object says so")
		})
	}
	told := transitOf("a", asksForLanes(t, west), []other{{"east", asksForLanes(t, east), nowhere}})
	assert.Contains(t, told[0].Direct.Message, "has an address at which it is reached")
	only, problem := termsOf(v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.3.0.0/16"}, PodTransit: v1alpha1.TransitEnabled})
	require.Empty(t, problem)
	told = transitOf("west", asksForLanes(t, west), []other{{"east", only, linkTo("east")}})
	assert.Nil(t, told[0].Direct, "one of the two does not ask for it")
	assert.Empty(t, told[0].Gateways)
}

func TestHomeHearsOfDirectLanes(t *testing.T) {
	asked := networkv1alpha1.Transit{Cluster: "east", Gateways: []networkv1alpha1.Gateway{{Name: "e"}}, Direct: &networkv1alpha1.DirectLanes{}}
	says := func(accepted networkv1alpha1.TransitStatus, gateways ...networkv1alpha1.DirectStatus) networkv1alpha1.DirectLanes {
		link := side("w1", "10.2.0.9")
		link.Status.Transit = []networkv1alpha1.TransitStatus{accepted}
		for _, g := range gateways {
			link.Status.Gateways = append(link.Status.Gateways, networkv1alpha1.GatewayStatus{Gateway: networkv1alpha1.Gateway{Name: "w"},
				Direct: []networkv1alpha1.DirectStatus{{Cluster: "other", DirectLanes: networkv1alpha1.DirectLanes{Up: 7}}, g}})
		}
		told := lanes(asked, link)
		require.NotNil(t, told)
		return *told
	}
	of := func(lanes, up int32, message string) networkv1alpha1.DirectStatus {
		return networkv1alpha1.DirectStatus{Cluster: "east", DirectLanes: networkv1alpha1.DirectLanes{Lanes: lanes, Up: up, Message: message}}
	}
	assert.Nil(t, lanes(networkv1alpha1.Transit{Cluster: "east"}, side("w1", "10.2.0.9")), "nobody asks for them")
	assert.Contains(t, lanes(asked, nil).Message, "it has said nothing yet of lanes to cluster east")
	assert.Contains(t, says(networkv1alpha1.TransitStatus{Cluster: "north"}).Message, "it has said nothing yet of lanes")
	assert.Equal(t, "not allowed", says(networkv1alpha1.TransitStatus{Cluster: "east", Accepted: true, DirectMessage: "not allowed"}).Message)
	assert.Equal(t, "no ranges", says(networkv1alpha1.TransitStatus{Cluster: "east", Message: "no ranges"}).Message)
	good := networkv1alpha1.TransitStatus{Cluster: "east", Accepted: true, Direct: true}
	assert.Contains(t, says(good).Message, "no gateway there has said anything yet")
	assert.Equal(t, networkv1alpha1.DirectLanes{Lanes: 4, Up: 3}, says(good, of(2, 2, ""), of(2, 1, "")))
	assert.Equal(t, "gateway w does not reach e1: refused", says(good, of(2, 0, "e1: refused")).Message)
	assert.Empty(t, says(good, of(2, 0, "e1: refused"), of(2, 1, "")).Message, "one is up")
	hostile := says(good, of(-5, -5, strings.Repeat("x\n", 3000)), of(1<<30, 0, ""), of(1<<30, 0, ""), of(1<<30, 0, ""))
	assert.Equal(t, int32(1<<31-1), hostile.Lanes)
	assert.Zero(t, hostile.Up)
	assert.LessOrEqual(t, len(hostile.Message), 1024, "what another cluster says is bounded")
	assert.NotContains(t, hostile.Message, "\n")
}

func TestClustersReachEachOtherDirectlyWhileBothSaySo(t *testing.T) {
	link := func(name, to string, up int32) *networkv1alpha1.NetworkLink {
		l := side("h1", "10.1.0.9")
		l.Name, l.Spec.Transit = name, []networkv1alpha1.Transit{{Cluster: to, Direct: &networkv1alpha1.DirectLanes{Lanes: 2, Up: up}}}
		l.Status.Transit = []networkv1alpha1.TransitStatus{{Cluster: to, Accepted: true}}
		return l
	}
	west := link("west", "east", 2)
	assert.Equal(t, []string{"east"}, reachedDirectly(west, []other{{"north", terms{}, nil}, {"east", terms{}, link("east", "west", 1)}}))
	assert.Empty(t, reachedDirectly(west, []other{{"east", terms{}, link("east", "west", 0)}}))
	assert.Empty(t, reachedDirectly(link("west", "east", 0), []other{{"east", terms{}, link("east", "west", 1)}}))
	assert.Empty(t, reachedDirectly(nil, []other{{"east", terms{}, link("east", "west", 1)}}))
	assert.Contains(t, ready("west", terms{}, west, side("w1", "10.2.0.9"), now).Message,
		"; pods there and in east reach each other by lanes that do not lead through home")
	assert.NotContains(t, ready("west", terms{}, west, side("w1", "10.2.0.9"), now).Message, "each other through home")
	down := link("west", "east", 0)
	down.Spec.Transit[0].Direct.Message = "refused"
	assert.Contains(t, ready("west", terms{}, down, side("w1", "10.2.0.9"), now).Message,
		"; pods there and in east reach each other through home; there is no lane to east: refused")
}
