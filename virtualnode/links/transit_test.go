package links

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func asking(name string, change ...func(r *v1alpha1.RemoteCluster)) *v1alpha1.RemoteCluster {
	r := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RemoteClusterSpec{PodNetwork: v1alpha1.Fabric,
		PodTransit: v1alpha1.TransitEnabled}}
	for _, c := range change {
		c(r)
	}
	return r
}

func TestOnlyClustersThatAskForItReachEachOther(t *testing.T) {
	all := []*v1alpha1.RemoteCluster{asking("west", func(r *v1alpha1.RemoteCluster) { r.Spec.PodTransit = v1alpha1.TransitDirect }),
		asking("east"),
		asking("quiet", func(r *v1alpha1.RemoteCluster) { r.Spec.PodTransit = "" }),
		asking("off", func(r *v1alpha1.RemoteCluster) { r.Spec.PodTransit = v1alpha1.TransitDisabled }),
		asking("routed", func(r *v1alpha1.RemoteCluster) { r.Spec.PodNetwork = v1alpha1.Routed }),
		asking("leaving", func(r *v1alpha1.RemoteCluster) { r.DeletionTimestamp = &metav1.Time{} }), asking("north")}
	names := func(of *v1alpha1.RemoteCluster) (names []string) {
		for _, one := range passengers(of, all) {
			names = append(names, one.Name)
		}
		return names
	}
	assert.Equal(t, []string{"east", "north"}, names(all[0]))
	assert.Equal(t, []string{"north", "west"}, names(all[1]))
	for _, other := range all[2:6] {
		assert.Empty(t, names(other), other.Name)
	}
	assert.Equal(t, "west", all[0].Name, "what was read is not changed")

	all = nil
	for i := range 30 {
		all = append(all, asking(fmt.Sprintf("c%02d", i)))
	}
	for i, one := range all {
		want := maxPassengers - 1
		if i >= maxPassengers {
			want = 0
		}
		assert.Len(t, names(one), want, "each of those that take part is told of all others: %s", one.Name)
	}
}

func TestEachClusterIsToldOfOthersByWhatItReachesThemBy(t *testing.T) {
	pair := func(from, as string) []networkv1alpha1.PodTranslation {
		return []networkv1alpha1.PodTranslation{{PodCIDR: from, ReachedAs: as}}
	}
	set := func(spec v1alpha1.RemoteClusterSpec) terms {
		set, problem := termsOf(spec)
		require.Empty(t, problem)
		return set
	}
	west := set(v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.244.0.0/16", "fd00::/48"}})
	east := set(v1alpha1.RemoteClusterSpec{PodCIDRs: []string{"10.244.0.0/16"}, PodTranslations: pair("10.244.0.0/16", "100.66.0.0/16"),
		HomePodTranslations: pair("10.244.0.0/16", "100.76.0.0/16")})
	link := side("h", "10.1.0.9")
	link.Spec.Gateways = []networkv1alpha1.Gateway{{Name: "a"}, {Name: "b", MTU: 1450}, {Name: "c", MTU: 1400}}
	told := transitOf("west", west, []other{{"east", east, link}})
	assert.Equal(t, []networkv1alpha1.Transit{{Cluster: "east", PodCIDRs: []string{"100.66.0.0/16"}, MTU: 1400}}, told)
	assert.Equal(t, []networkv1alpha1.Transit{{Cluster: "west", PodCIDRs: []string{"100.76.0.0/16"}}},
		transitOf("east", east, []other{{"west", west, nil}}), "home's gateways translate what overlaps there, and carry IPv4 alone")

	assert.Equal(t, told, there(west, nil, told).Transit)
	says := func(statuses ...networkv1alpha1.TransitStatus) string {
		there1 := side("w1", "10.2.0.9")
		there1.Status.Transit = statuses
		spec := here(west, there1, told)
		require.Len(t, spec.Transit, 1)
		assert.Empty(t, spec.Transit[0].PodCIDRs)
		return spec.Transit[0].Refused
	}
	assert.Equal(t, "it has said nothing yet of cluster east", says())
	assert.Equal(t, "it has said nothing yet of cluster east", here(west, nil, told).Transit[0].Refused)
	status := networkv1alpha1.TransitStatus{Cluster: "east", Message: "they add it\nto " + strings.Repeat("x", 3000)}
	assert.Contains(t, says(status), "they add it")
	assert.LessOrEqual(t, len(says(status)), 1024, "what another cluster says is bounded")
	assert.NotContains(t, says(status), "\n")
	status = networkv1alpha1.TransitStatus{Cluster: "east"}
	assert.Equal(t, "it refuses, and does not say why", says(status))
	status.Accepted, status.PodCIDRs = true, []string{"10.99.0.0/16"}
	assert.Contains(t, says(status), "of the ranges that cluster east has now")
	status.PodCIDRs = []string{"100.66.0.0/16"}
	assert.Empty(t, says(status))
}

func TestTheConditionSaysWhichClustersAreReached(t *testing.T) {
	home, west := side("h1", "10.1.0.9"), side("w1", "10.2.0.9")
	assert.NotContains(t, ready("west", terms{}, home, west, now).Message, "through home")
	home.Status.Transit = []networkv1alpha1.TransitStatus{{Cluster: "north", Message: "cluster north: not allowed"},
		{Cluster: "zoo", Accepted: true}, {Cluster: "east", Accepted: true}}
	assert.Equal(t, []string{"east", "zoo"}, reachedThroughHome(home))
	assert.Empty(t, reachedThroughHome(nil))
	assert.Equal(t, "pods of both clusters reach each other: 2 ways between pods are probed all the time; pods there and in east, zoo reach "+
		"each other through home; north is not reached through home: cluster north: not allowed", ready("west", terms{}, home, west, now).Message)
}
