package app

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// joinedWith is what a node is told that has the address of loopback.
func joinedWith(clusters ...string) *site.Site {
	s := &site.Site{Nodes: []site.Node{{Name: "n", Address: netip.MustParseAddr("127.0.0.1"), Gateway: true,
		Pods: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}}}}
	for i, name := range clusters {
		s.Remotes = append(s.Remotes, site.Remote{Name: name, MTU: 1450, Limit: 5,
			Ranges: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(9 + i)}), 16)},
			Translations: remotecluster.Translations{
				{PodCIDR: netip.MustParsePrefix("10.1.0.0/16"), ReachedAs: netip.MustParsePrefix("100.64.0.0/16")}},
			Gateways: []site.Gateway{{Name: "g", Address: "192.0.2.1:7473", Keys: []lane.Key{{1 + byte(i)}, {7 + byte(i)}}}},
			Pods:     []netip.Addr{netip.MustParseAddr("10.1.0.7")}})
	}
	return s
}

// apiServer tells once what it is given.
type apiServer struct{ says *site.Site }

func (a *apiServer) told() (*site.Site, bool, error) {
	s := a.says
	a.says = nil
	return s, s != nil, nil
}

// start starts a program that has waited long enough for its API server, if it waits.
func start(t *testing.T, dir string, waits bool) (*kept, *apiServer) {
	t.Helper()
	api := &apiServer{}
	k := newKept(dir, "n", api.told)
	if waits {
		k.began = k.began.Add(-grace)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { k.run(ctx); close(done) }()
	t.Cleanup(func() { end(); <-done })
	return k, api
}

func TestANodeThatStartsWithoutItsAPIServerGoesByWhatItWasTold(t *testing.T) {
	dir := t.TempDir()
	k, api := start(t, dir, true)
	s, changed, err := k.told()
	require.NoError(t, err)
	assert.False(t, changed || s != nil, "it was never told anything")
	both := joinedWith("west", "east")
	for _, says := range []*site.Site{joinedWith("west"), joinedWith(), both} {
		api.says = says
		s, changed, err = k.told()
		require.NoError(t, err)
		assert.True(t, changed)
		assert.Same(t, says, s)
	}
	require.Eventually(t, func() bool {
		again, _ := start(t, dir, true)
		s, changed, err = again.told()
		return err == nil && changed && len(s.Remotes) == 2
	}, 10*time.Second, 50*time.Millisecond)
	assert.Equal(t, both, s, "all of it is kept")
	info, err := os.Stat(filepath.Join(dir, keptFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	k, api = start(t, dir, false)
	_, changed, err = k.told()
	require.NoError(t, err)
	assert.False(t, changed, "an API server that is there has a moment to answer")
	k.began = k.began.Add(-grace)
	_, changed, _ = k.told()
	assert.True(t, changed)
	_, changed, _ = k.told()
	assert.False(t, changed, "once")
	api.says = joinedWith("east")
	s, changed, err = k.told()
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Len(t, s.Remotes, 1, "who was taken away meanwhile is gone once it answers")
	require.Eventually(t, func() bool {
		s, err := k.load()
		return err == nil && len(s.Remotes) == 1
	}, 10*time.Second, 50*time.Millisecond, "and does not come back")
	require.NoError(t, forget(dir))
	require.NoError(t, forget(dir))
	s, err = k.load()
	require.NoError(t, err)
	assert.Nil(t, s)
}

func TestWhatWasKeptAndCannotBeIsIgnoredInWords(t *testing.T) {
	elsewhere := joinedWith("west")
	elsewhere.Nodes[0].Address = netip.MustParseAddr("192.0.2.77")
	dir := t.TempDir()
	require.NoError(t, newKept(dir, "n", nil).keep(elsewhere))
	content, err := os.ReadFile(filepath.Join(dir, keptFile))
	require.NoError(t, err)
	for name, row := range map[string]struct{ content, says string }{
		"half of it":                  {string(content[:len(content)/2]), "read what the node is told"},
		"nothing":                     {"", "it does not name this node"},
		"what cannot be":              {`{"nodes": [{"name": "n"}]}`, "give an IPv4 address"},
		"that of a machine elsewhere": {string(content), "this node does not have the address 192.0.2.77"},
		"that of a version of later":  {`{"future": 1}`, "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, keptFile), []byte(row.content), 0o600))
			k, api := start(t, dir, true)
			s, changed, err := k.told()
			require.ErrorContains(t, err, "told.json, which this node was told when it ran last, is ignored until the API server answers: ")
			require.ErrorContains(t, err, row.says)
			assert.False(t, changed || s != nil)
			_, _, err = k.told()
			require.NoError(t, err, "it is said once")
			api.says = joinedWith("west")
			_, changed, err = k.told()
			require.NoError(t, err)
			assert.True(t, changed)
		})
	}
	k := newKept(filepath.Join(t.TempDir(), "none"), "n", nil)
	require.Error(t, k.keep(joinedWith()))
	k.cluster = func() (*site.Site, bool, error) { return nil, false, errors.New("refused") }
	_, _, err = k.told()
	require.ErrorContains(t, err, "refused")
}
