package site

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

func TestMovesHaveTheirOwnRateInARemoteCluster(t *testing.T) {
	connect := func() remote.Access {
		config := &rest.Config{Host: "https://west.example", RateLimiter: flowcontrol.NewTokenBucketRateLimiter(50, 60)}
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		agent, err := clients.NewRemoteClient(config)
		require.NoError(t, err)
		return remote.Access{Client: client, Config: config, UID: "u", Remote: agent}
	}
	var own ownClients
	first := connect()
	got, err := own.of("west", first)
	require.NoError(t, err)
	assert.NotSame(t, first.Client, got.Client)
	assert.NotSame(t, first.Remote, got.Remote)
	assert.NotNil(t, got.Dynamic)
	assert.Equal(t, "u", got.UID)
	assert.Same(t, first.Config, got.Config, "streams have no rate")
	limiter := got.Client.CoreV1().RESTClient().GetRateLimiter()
	assert.InDelta(t, QPS, limiter.QPS(), 0)
	assert.NotSame(t, first.Client.CoreV1().RESTClient().GetRateLimiter(), limiter, "what claims need is not used up")

	again, err := own.of("west", first)
	require.NoError(t, err)
	assert.Same(t, got.Client, again.Client, "watches need one client a connection")
	other, err := own.of("west", connect())
	require.NoError(t, err)
	assert.NotSame(t, got.Client, other.Client, "new credentials are used")

	without := first
	without.Remote = nil
	got, err = own.of("west", without)
	require.NoError(t, err)
	assert.Nil(t, got.Remote, "a cluster without an agent has none for moves either")
}

func TestTheNetworkOfAClusterIsThatOfItsRemoteCluster(t *testing.T) {
	objects := cache.NewSharedIndexInformer(nil, nil, 0, nil)
	require.NoError(t, objects.GetStore().Add(&v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"},
		Spec: v1alpha1.RemoteClusterSpec{PodNetwork: v1alpha1.Routed, PodCIDRs: []string{"10.1.0.0/16"}}}))
	sites := New(remote.Access{}, remote.New(remote.Config{Objects: objects}))
	west := sites.Network("west")
	assert.Equal(t, v1alpha1.Routed, west.Network)
	assert.True(t, west.Ranges.Has(netip.MustParseAddr("10.1.2.3")))
	assert.False(t, west.Ranges.Has(netip.MustParseAddr("10.2.2.3")))
	for _, other := range []string{keys.Home, "gone"} {
		assert.Empty(t, sites.Network(other).Network, other)
		assert.Empty(t, sites.Network(other).Ranges, other)
	}
}
