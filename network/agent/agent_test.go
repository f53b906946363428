package agent

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// open is a lane that says when it is closed.
type open struct {
	lane.Lane
	set, closed func()
}

func (o *open) Limit(int64)                          {}
func (o *open) Translate(remotecluster.Translations) {}
func (o *open) From([]netip.Prefix)                  {}
func (o *open) Set([]lane.Peer)                      { o.set() }
func (o *open) Carry(*lane.WireGuard)                {}

func (o *open) Close() error {
	o.closed()
	return nil
}

func TestAGatewayIsReadyOnceItsLanesAreUp(t *testing.T) {
	in := plan.Input{Site: &site.Site{Nodes: []site.Node{{Name: "g", Gateway: true}, {Name: "n"}},
		Remotes: []site.Remote{{Name: "west"}, {Name: "east"}}}, Self: "g", Lanes: map[string]plan.Lane{"west": {Up: true}, "east": {}}}
	assert.False(t, ready(in, laneTime), "the other gateway is not to be restarted yet")
	assert.True(t, ready(in, laneTime+1), "a cluster that is away is not waited for for ever")
	in.Lanes["east"] = plan.Lane{Up: true}
	assert.True(t, ready(in, 0))
	delete(in.Lanes, "west")
	assert.False(t, ready(in, 0), "the lane is not yet there")
	in.Self = "n"
	assert.True(t, ready(in, 0), "a node that is no gateway has none")
	in.Self = "other"
	assert.True(t, ready(in, 0))
	in.Self, in.Site = "g", &site.Site{Nodes: in.Nodes}
	assert.True(t, ready(in, 0), "no cluster is joined")
}

func TestLanesAreOpenOnlyBehindPacketFilters(t *testing.T) {
	var happened []string
	says := func(what string) func() { return func() { happened = append(happened, what) } }
	a := &agent{Settings: Settings{Self: "g"}, server: &lane.Server{}, lanes: map[string]lane.Lane{}}
	var refused error
	a.filter = func(p plan.Plan) error {
		require.NotNil(t, p.Filter)
		require.NotNil(t, p.FilterIPv6)
		says("filter")()
		return refused
	}
	a.site = &site.Site{Nodes: []site.Node{{Name: "g", Address: netip.MustParseAddr("192.0.2.1"), Gateway: true}},
		Remotes: []site.Remote{{Name: "west"}}}
	a.mtu = 1500
	a.lanes["west"], a.lanes["east"] = &open{nil, says("west"), says("close west")}, &open{nil, says("east"), says("close east")}
	require.NoError(t, a.keepLanes(t.Context()))
	assert.Equal(t, []string{"close east", "filter", "west"}, happened, "the filter that east is to be judged by goes after its lane")

	happened, refused = nil, errors.New("no")
	require.NoError(t, a.keepLanes(t.Context()))
	assert.Equal(t, []string{"filter", "close west"}, happened)
	assert.Empty(t, a.lanes)

	happened = nil
	require.NoError(t, a.keepLanes(t.Context()))
	assert.Equal(t, []string{"filter"}, happened, "and none is opened")
	assert.Empty(t, a.lanes)

	happened, a.site.Remotes = nil, nil
	require.NoError(t, a.keepLanes(t.Context()))
	assert.Empty(t, happened)
}
