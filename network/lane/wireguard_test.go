package lane

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

func TestAGatewayKeepsItsWireGuardKey(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadWireGuardKey(dir)
	require.NoError(t, err)
	again, err := LoadWireGuardKey(dir)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	info, err := os.Stat(filepath.Join(dir, wireGuardKeyFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "nobody else reads it")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, files, 1, "nothing is left of how it was made")
	other, err := LoadWireGuardKey(t.TempDir())
	require.NoError(t, err)
	assert.NotEqual(t, first.Public(), other.Public())

	require.NoError(t, ChangeWireGuardKey(dir, time.Hour))
	again, err = LoadWireGuardKey(dir)
	require.NoError(t, err)
	assert.Equal(t, first, again, "it is not yet that old")
	require.NoError(t, os.Chtimes(filepath.Join(dir, wireGuardKeyFile), time.Time{}, time.Now().Add(-2*time.Hour)))
	require.NoError(t, ChangeWireGuardKey(dir, time.Hour))
	again, err = LoadWireGuardKey(dir)
	require.NoError(t, err)
	assert.NotEqual(t, first, again)
	for _, age := range []time.Duration{0, time.Hour} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, wireGuardKeyFile), time.Time{}, time.Now().Add(2*time.Hour)))
		require.NoError(t, ChangeWireGuardKey(dir, age))
		next, err := LoadWireGuardKey(dir)
		require.NoError(t, err)
		assert.NotEqual(t, again, next, "one that was made while the clock was wrong is as old as can be, where %v may be", age)
		again = next
	}
	empty := t.TempDir()
	require.NoError(t, ChangeWireGuardKey(empty, 0))
	assert.NoFileExists(t, filepath.Join(empty, wireGuardKeyFile), "one that nobody needs is not made")

	text, err := first.Public().MarshalText()
	require.NoError(t, err)
	var read WireGuardKey
	require.NoError(t, read.UnmarshalText(text))
	assert.Equal(t, first.Public(), read)
	assert.ErrorContains(t, read.UnmarshalText(text[:40]), "lodestone-network key --wireguard")

	require.NoError(t, os.WriteFile(filepath.Join(dir, wireGuardKeyFile), []byte("x"), 0o600))
	_, err = LoadWireGuardKey(dir)
	assert.ErrorContains(t, err, "delete it, and a new one is made")
}

func TestOnlyWhatDiffersIsChangedOfWireGuard(t *testing.T) {
	private, err := wgtypes.GeneratePrivateKey()
	require.NoError(t, err)
	key, stranger := wgtypes.Key{1}, wgtypes.Key{2}
	networks := func(texts ...string) (all []net.IPNet) {
		for _, text := range texts {
			_, one, err := net.ParseCIDR(text)
			require.NoError(t, err)
			all = append(all, *one)
		}
		return all
	}
	at := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7477}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("10.3.0.0/16")}
	config := wireGuardConfig{&WireGuard{Ranges: ranges, Port: 7477}, &WireGuardEnd{Key: WireGuardKey(key)}, "192.0.2.1:7473"}
	right := func() *wgtypes.Device {
		return &wgtypes.Device{PrivateKey: private, ListenPort: 7477, Peers: []wgtypes.Peer{{PublicKey: key, Endpoint: at,
			AllowedIPs: networks("10.3.0.0/16", "10.2.0.0/16")}}}
	}
	_, differs := config.change(right(), private, at)
	assert.False(t, differs, "in whatever order ranges are told")
	_, differs = config.change(right(), private, nil)
	assert.False(t, differs, "where it is heard from is not changed")

	for name, row := range map[string]struct {
		spoil func(*wgtypes.Device)
		check func(wgtypes.Config)
	}{
		"nothing is there yet": {func(d *wgtypes.Device) { *d = wgtypes.Device{} }, func(c wgtypes.Config) {
			assert.Equal(t, private, *c.PrivateKey)
			assert.Equal(t, 7477, *c.ListenPort)
			require.Len(t, c.Peers, 1)
			assert.Equal(t, key, c.Peers[0].PublicKey)
			assert.Equal(t, at, c.Peers[0].Endpoint)
			assert.Equal(t, networks("10.2.0.0/16", "10.3.0.0/16"), c.Peers[0].AllowedIPs)
			assert.Equal(t, keepalive, *c.Peers[0].PersistentKeepaliveInterval)
		}},
		"a stranger is a peer": {func(d *wgtypes.Device) { d.Peers = append(d.Peers, wgtypes.Peer{PublicKey: stranger}) },
			func(c wgtypes.Config) {
				assert.Equal(t, []wgtypes.PeerConfig{{PublicKey: stranger, Remove: true}}, c.Peers)
			}},
		"more is let in": {func(d *wgtypes.Device) { d.Peers[0].AllowedIPs = networks("10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16") },
			func(c wgtypes.Config) {
				require.Len(t, c.Peers, 1)
				assert.True(t, c.Peers[0].ReplaceAllowedIPs)
				assert.Equal(t, networks("10.2.0.0/16", "10.3.0.0/16"), c.Peers[0].AllowedIPs)
				assert.Nil(t, c.PrivateKey)
			}},
		"it goes elsewhere": {func(d *wgtypes.Device) { d.Peers[0].Endpoint = &net.UDPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 1} },
			func(c wgtypes.Config) { assert.Equal(t, at, c.Peers[0].Endpoint) }},
	} {
		t.Run(name, func(t *testing.T) {
			has := right()
			row.spoil(has)
			change, differs := config.change(has, private, at)
			assert.True(t, differs)
			row.check(change)
		})
	}
	config.end = nil
	change, differs := config.change(right(), private, nil)
	assert.True(t, differs)
	assert.Equal(t, []wgtypes.PeerConfig{{PublicKey: key, Remove: true}}, change.Peers, "a gateway without WireGuard is no peer")
}
