package kind

import (
	"context"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestAVolumeGoesToWestAndBackWhileItsPodRuns(t *testing.T) {
	t.Parallel()
	for name, db := range map[string]keepers{
		"directories": {},
		"disks":       {class: diskClass, size: "512Mi"},
		"for one pod": {class: diskClass, size: "512Mi", access: "ReadWriteOncePod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db.namespace, db.name, db.replicas, db.spec = namespace(t), "db", 1, atHome
			home.apply(t, db.manifest())
			db.unpin(t)
			claim := claimOf(t, db.namespace, db.claim(0))
			before := shell(t, db.namespace, db.pod(0), "cd /data && sha256sum blob")
			for i, target := range []struct{ cluster, node string }{{"west", virtualNode}, {keys.Home, home.node}} {
				from := volumeOf(t, db.namespace, db.claim(0))

				requireMoved(t, move(t, db.namespace, db.claim(0), target.cluster))

				pod := db.ready(t, 1)[0]
				assert.Equal(t, target.node, pod.Spec.NodeName)
				assert.NotEqual(t, from.in, volumeOf(t, db.namespace, db.claim(0)).in)
				assert.Equal(t, before, shell(t, db.namespace, db.pod(0), "cd /data && sha256sum blob"))
				assert.Len(t, startsOf(t, db.rows(t)), i+3, "the first, the one without a place of its own, and one a move")
				from.requireCopyGone(t)
				requireFree(t, db.namespace, db.claim(0), claim)
			}
		})
	}
}

// packets is how many packets the filter of block has thrown away.
var packets = regexp.MustCompile(`packets (\d+)`)

// block keeps connections to movers from leaving home, so that only the way through
// west's API server leads there. It returns how many packets it has kept back.
func block(t *testing.T) func() int {
	t.Helper()
	filter := func(ctx context.Context, args ...string) (string, error) {
		return home.inNode(ctx, append([]string{"nft"}, args...)...)
	}
	for _, command := range [][]string{
		{"add", "table", "inet", "e2e_movers"},
		{"add", "chain", "inet", "e2e_movers", "forward", "{ type filter hook forward priority -5; }"},
		{"add", "rule", "inet", "e2e_movers", "forward", "tcp", "dport", "8440-8441", "counter", "drop"},
	} {
		_, err := filter(t.Context(), command...)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		_, err := filter(context.Background(), "delete", "table", "inet", "e2e_movers")
		assert.NoError(t, err)
	})
	return func() int {
		listed, err := filter(t.Context(), "list", "table", "inet", "e2e_movers")
		require.NoError(t, err)
		match := packets.FindStringSubmatch(listed)
		require.NotNil(t, match, listed)
		count, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		return count
	}
}

// TestAMoveFindsItsWayThroughTheAPIServer: nothing else leads to the mover in west. No
// other test runs beside, whose movers would lose their connections, too.
func TestAMoveFindsItsWayThroughTheAPIServer(t *testing.T) {
	shop := namespace(t)
	kept := block(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: atHome}
	home.apply(t, db.manifest())
	db.unpin(t)
	data := volumeOf(t, shop, db.claim(0))
	before := data.sum(t, "blob")
	for _, cluster := range []string{"west", keys.Home} {
		requireMoved(t, move(t, shop, db.claim(0), cluster))
		db.ready(t, 1)
		now := volumeOf(t, shop, db.claim(0))
		assert.NotEqual(t, data.in, now.in)
		assert.Equal(t, before, now.sum(t, "blob"))
		data = now
	}
	assert.Positive(t, kept(), "packets to the movers that did not get there directly")
}
