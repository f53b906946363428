package kind

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// TestACopyInSlotsFailsOver: a disk of west has its copy in two directories at home, where nothing takes snapshots of them. Home counts on
// from where a version was, and west, once it is back, from where home was. Each start of the keeper checks the sum of a file as well.
func TestACopyInSlotsFailsOver(t *testing.T) {
	if !thorough() {
		t.Skip("it takes minutes in which west is paused: set E2E_LONG")
	}
	shop := namespace(t)
	home.apply(t, tight)
	t.Cleanup(func() {
		_, _ = home.try(context.Background(), "", "delete", "storageclass", "e2e-tight", "--ignore-not-found")
	})
	db := keepers{namespace: shop, name: "db", class: "e2e-tight", size: "512Mi", replicas: 1, spec: inWest}
	home.apply(t, db.manifest())
	db.unpin(t)
	claim := db.claim(0)
	lost, uid := volumeOf(t, shop, claim), claimOf(t, shop, claim).UID
	require.Equal(t, west, lost.in)
	replicate(t, shop, claim, "--slots")
	standby := awaitLater(t, shop, claim+"-home")
	require.Equal(t, []any{v1alpha1.InSlots, "standard"}, []any{standby.In, standby.Class})

	t.Log("West is lost.")
	unpause := loseWest(t)
	succeed(t, "failover", claim, "-n", shop, "--fence", "Declared", "--yes")
	over := volumeOf(t, shop, claim)
	require.Equal(t, home, over.in)
	require.Equal(t, uid, claimOf(t, shop, claim).UID)
	rows, starts := awaitStarts(t, over, 3)
	version, _, _ := strings.Cut(rows, starts[2])

	t.Log("West is back: its pod ends, and what it had written is kept.")
	unpause()
	awaitEnded(t, shop, claim, "app=db")
	kept := lost.read(t, "rows")
	require.Len(t, startsOf(t, kept), 2)
	require.True(t, strings.HasPrefix(kept, version), "home began with rows that west had not: %q, and west had %q", version, kept)
	t.Logf("the version had %d of the %d rows of west", strings.Count(version, "\n"), strings.Count(kept, "\n"))

	rows = over.read(t, "rows")
	succeed(t, "failback", claim, "-n", shop, "--keep-source-for", "0s")
	back := volumeOf(t, shop, claim)
	require.Equal(t, lost.directory, back.directory)
	// A disk that is being attached must not be mounted by the test, too.
	readyPod(t, shop, db.pod(0))
	now, _ := awaitStarts(t, back, 4)
	require.True(t, strings.HasPrefix(now, rows), "west has other rows than home had: %q, and home had %q", now, rows)
	finalize(t, shop, claim)
	succeed(t, "replicate", "delete", claim, "-n", shop, "--yes")
}

// awaitStarts waits until a volume has rows of so many starts of keepers, and returns all rows, and the starts.
func awaitStarts(t *testing.T, of *volume, count int) (rows string, starts []string) {
	t.Helper()
	eventually(t, "rows are written by the next start", func(c *assert.CollectT) {
		rows = of.read(t, "rows")
		starts = startsOf(t, rows)
		assert.Len(c, starts, count)
	})
	return rows, starts
}
