package site

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/lodestone-storage/lodestone/pkg/clients"
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
