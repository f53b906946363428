package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// linkOfHome is the one by which a home cluster tells what there is.
var linkOfHome = Key{keys.TenantPrefix + "h", keys.Home}

// allowing is a remote cluster that is told of two others and their gateways, and whose owner allows lanes to both.
func allowing() Observation {
	o := announced("10.3.0.0/16", "100.66.0.0/16", "10.4.0.0/16")
	o.Homes["h"].Spec.Network.DirectTransit = remotev1alpha1.DirectAllowed
	o.Links[0].Spec.Transit[0].Gateways = []networkv1alpha1.Gateway{{Name: "e1", Keys: []string{"E" + key[1:], "F" + key[1:]}}, {Name: "e2"}}
	o.Links[0].Spec.Transit[1].Gateways = []networkv1alpha1.Gateway{{Name: "n1", Address: "192.0.2.77:7473", Keys: []string{"N" + key[1:]}}}
	return o
}

func keyOf(t *testing.T, text string) (k lane.Key) {
	t.Helper()
	require.NoError(t, k.UnmarshalText([]byte(text)))
	return k
}

func TestGatewaysOfOtherClustersAreReachedDirectlyWhereTheOwnerAllowsIt(t *testing.T) {
	s, verdicts := Make(allowing())
	require.NoError(t, s.Validate())
	behind := s.Remotes[0].Behind
	require.Len(t, behind, 2)
	assert.Equal(t, []site.Gateway{{Name: "e1", Keys: []lane.Key{keyOf(t, "E"+key[1:]), keyOf(t, "F"+key[1:])}}}, behind[0].Direct,
		"both keys of one that changes its key; one without a key is not there yet")
	assert.Equal(t, []site.Gateway{{Name: "n1", Address: "192.0.2.77:7473", Keys: []lane.Key{keyOf(t, "N"+key[1:])}}}, behind[1].Direct)
	for _, status := range verdicts[linkOfHome].Transit {
		assert.True(t, status.Accepted && status.Direct, status.Cluster)
		assert.Empty(t, status.DirectMessage)
	}
}

func TestWhatHindersDirectLanesHindersNothingElse(t *testing.T) {
	for name, row := range map[string]struct {
		change func(o *Observation)
		says   string // empty: nothing, for none are asked for
	}{
		"the owner says nothing": {func(o *Observation) { o.Homes["h"].Spec.Network.DirectTransit = "" },
			"the owner of this cluster has not allowed lanes to cluster east: they set spec.network.directTransit of HomeCluster h to Allowed"},
		"the owner refuses": {func(o *Observation) { o.Homes["h"].Spec.Network.DirectTransit = remotev1alpha1.DirectRefused },
			"has not allowed lanes to cluster east"},
		"home names no gateway": {func(o *Observation) { o.Links[0].Spec.Transit[0].Gateways = nil }, ""},
		"no gateway has a key": {func(o *Observation) { o.Links[0].Spec.Transit[0].Gateways[0].Keys = []string{"x"} },
			"names no gateway of cluster east"},
		"a key is one of home": {func(o *Observation) {
			o.Links[0].Spec.Transit[0].Gateways[0].Keys = []string{key}
		}, "has the key of a gateway of cluster h"},
		"a key is one of another cluster": {func(o *Observation) {
			o.Links[0].Spec.Transit[0], o.Links[0].Spec.Transit[1] = o.Links[0].Spec.Transit[1], o.Links[0].Spec.Transit[0]
			o.Links[0].Spec.Transit[1].Gateways[0].Keys = []string{"N" + key[1:]}
		}, "gateway e1 of cluster h/east has the key of a gateway of cluster h/north"},
		"two gateways have one name": {func(o *Observation) {
			o.Links[0].Spec.Transit[0].Gateways = append(o.Links[0].Spec.Transit[0].Gateways, o.Links[0].Spec.Transit[0].Gateways[0])
		}, "two of the name"},
	} {
		t.Run(name, func(t *testing.T) {
			o := allowing()
			row.change(&o)
			s, verdicts := Make(o)
			require.NoError(t, s.Validate())
			require.Len(t, s.Remotes[0].Behind, 2)
			for _, b := range s.Remotes[0].Behind {
				if b.Name == "east" {
					assert.Empty(t, b.Direct)
				}
			}
			for _, status := range verdicts[linkOfHome].Transit {
				assert.True(t, status.Accepted, "through home it is reached")
				if status.Cluster != "east" {
					continue
				}
				assert.False(t, status.Direct)
				if row.says == "" {
					assert.Empty(t, status.DirectMessage)
				} else {
					assert.Contains(t, status.DirectMessage, row.says)
				}
			}
		})
	}
}

func TestAClusterThatIsNotLetInIsNotReachedDirectly(t *testing.T) {
	o := allowing()
	o.Homes["h"].Spec.Network.TransitPodCIDRs = []string{"10.4.0.0/16"}
	s, verdicts := Make(o)
	require.Len(t, s.Remotes[0].Behind, 1)
	assert.False(t, verdicts[linkOfHome].Transit[0].Direct)
	assert.Contains(t, verdicts[linkOfHome].Transit[0].Message, "has not allowed")
	assert.True(t, verdicts[linkOfHome].Transit[1].Direct)
}

func TestKeysOfADirectLaneKeepOutNoOtherHome(t *testing.T) {
	o := allowing()
	// The first home says of east that it has the key of the second one's gateway.
	o.Links[0].Spec.Transit[0].Gateways[0].Keys = []string{"I" + key[1:]}
	second := joinedBySecond(o, "10.10.0.0/16")
	o.Links = append(o.Links, second)
	s, verdicts := Make(o)
	require.Len(t, s.Remotes, 2)
	assert.True(t, verdicts[KeyOf(second)].Accepted)
	assert.Contains(t, verdicts[linkOfHome].Transit[0].DirectMessage, "has the key of a gateway of cluster i")
}

// TestNoNameLeadsIntoTheLaneOfAnotherHome has the first home choose a name for east that makes the links of that lane those of the second
// home's, as whoever tries some millions of names finds one.
func TestNoNameLeadsIntoTheLaneOfAnotherHome(t *testing.T) {
	o := allowing()
	first, second := o.Links[0], o.Links[0].DeepCopy()
	home := o.Homes["h"]
	delete(o.Homes, "h")
	first.Namespace, second.Namespace = keys.TenantPrefix+"12345678", keys.TenantPrefix+"8ed3fd5c"
	first.Spec.Transit[0].Cluster = "east-4814"
	second.Spec.Transit, second.Spec.Gateways = nil, keyed(second.Spec.Gateways, "I")
	other := home.DeepCopy()
	home.Name, other.Name = "12345678", "8ed3fd5c"
	other.Spec.Network.PodCIDRs, other.Spec.Network.TransitPodCIDRs = []string{"10.10.0.0/16"}, nil
	o.Homes[home.Name], o.Homes[other.Name] = home, other
	o.Links = append(o.Links, second)
	s, verdicts := Make(o)
	links := map[string]string{}
	for _, r := range s.WithLanes() {
		assert.Empty(t, links[plan.Device(r.Name)], "%s and another one have the link %s", r.Name, plan.Device(r.Name))
		links[plan.Device(r.Name)] = r.Name
	}
	assert.Len(t, links, 3, "both homes, and north")
	assert.Contains(t, verdicts[KeyOf(first)].Transit[0].DirectMessage, "give one of them another name")
}

func TestAHomeClusterHasNoDirectLanes(t *testing.T) {
	o := between()
	for _, l := range o.Links {
		l.Spec.Transit[0].Gateways = []networkv1alpha1.Gateway{{Name: "x", Address: "192.0.2.77:7473", Keys: []string{"X" + key[1:]}}}
		l.Spec.Transit[0].Direct = &networkv1alpha1.DirectLanes{Lanes: 4, Up: 4}
	}
	s, verdicts := Make(o)
	assert.Len(t, s.WithLanes(), 2, "what its own objects say of others' gateways is nothing to it")
	for _, l := range o.Links {
		require.Len(t, verdicts[KeyOf(l)].Transit, 1)
		assert.True(t, verdicts[KeyOf(l)].Transit[0].Accepted)
	}
}

func TestAGatewaySaysHowItIsWithDirectLanes(t *testing.T) {
	verdict := Verdict{Transit: []networkv1alpha1.TransitStatus{{Cluster: "east", Direct: true}, {Cluster: "north", Direct: true},
		{Cluster: "south"}, {Cluster: "zoo", Direct: true}}}
	told := directLanes(map[string][]lane.Status{
		"h":       {{Peer: "h1", Up: true}},
		"h/east":  {{Peer: "e1", Up: true, Since: time.Now()}, {Peer: "e2", Problem: "connection refused"}},
		"h/north": {{Peer: "n1", Problem: "no\nroute"}, {Peer: "n2", Problem: strings.Repeat("x", 2000)}, {Peer: "n3"}},
	}, "h", verdict)
	require.Len(t, told, 3)
	assert.Equal(t, networkv1alpha1.DirectStatus{Cluster: "east", DirectLanes: networkv1alpha1.DirectLanes{Lanes: 2, Up: 1}}, told[0])
	assert.EqualValues(t, 3, told[1].Lanes)
	assert.True(t, strings.HasPrefix(told[1].Message, "n2: xxx"))
	assert.LessOrEqual(t, len(told[1].Message), networkv1alpha1.MaxMessage)
	assert.Equal(t, networkv1alpha1.DirectStatus{Cluster: "zoo"}, told[2], "the lanes are not there yet")
}
