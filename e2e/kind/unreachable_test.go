package kind

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// away is how long west stands still in the midst of a move: longer than a pod takes to
// be missed, or in a thorough run longer than any lease holds.
func away() time.Duration {
	if thorough() {
		return pauseTime()
	}
	return 20 * time.Second
}

// TestAMoveOutlivesThatWestIsAway: whatever was going on, the move goes on by itself, and
// nothing is lost.
func TestAMoveOutlivesThatWestIsAway(t *testing.T) {
	all := []v1alpha1.MovePhase{v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce, v1alpha1.MoveFence, v1alpha1.MoveFinalSync,
		v1alpha1.MoveVerifying, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain}
	phases := all
	if !thorough() {
		phases = []v1alpha1.MovePhase{v1alpha1.MoveFinalSync}
	}
	shop := namespace(t)
	// It takes some seconds to end, and leaves the last pass something to do.
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: atHome,
		leave: "dd if=/dev/urandom of=/data/late bs=64k count=96 2>/dev/null; sha256sum late >late.sum; sleep 3"}
	home.apply(t, db.manifest())
	db.unpin(t)
	before := shell(t, shop, db.pod(0), "sha256sum /data/blob")
	starts := 2
	for i, phase := range phases {
		// To and fro: west is the target, and then the source.
		cluster := "west"
		if i%2 == 1 {
			cluster = keys.Home
		}
		t.Run(string(phase), func(t *testing.T) {
			from := volumeOf(t, shop, db.claim(0))
			made := move(t, shop, db.claim(0), cluster, func(spec *v1alpha1.VolumeMoveSpec) {
				limit := resource.MustParse("2Mi")
				spec.BandwidthLimit = &limit
				spec.KeepSourceFor.Duration = 15 * time.Second
			})
			// One of the short phases may be over before anybody can see it.
			at := reaches(t, made, all[slices.Index(all, phase):]...)
			require.Contains(t, all, at.Status.Phase, at.Status.Message)
			require.NoError(t, west.container(t.Context(), "pause"))
			t.Cleanup(func() { _ = west.container(context.Background(), "unpause") })
			time.Sleep(away())
			during, err := moves(t, shop).Get(t.Context(), made.Name, metav1.GetOptions{})
			require.NoError(t, err)
			t.Logf("west went away in %s; after %s without it, in %s: %s", at.Status.Phase, away(), during.Status.Phase, during.Status.Message)
			require.NoError(t, west.container(t.Context(), "unpause"))

			requireMoved(t, made)

			starts++
			db.ready(t, 1)
			assert.NotEqual(t, from.in, volumeOf(t, shop, db.claim(0)).in)
			assert.Equal(t, before, shell(t, shop, db.pod(0), "sha256sum /data/blob"))
			shell(t, shop, db.pod(0), "cd /data && sha256sum -c late.sum")
			assert.Len(t, startsOf(t, db.rows(t)), starts)
			from.requireCopyGone(t)
		})
	}
}
