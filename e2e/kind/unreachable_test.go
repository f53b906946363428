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
	// These last for seconds: by the limit of bandwidth, the end of the pod, and keepSourceFor.
	// One of the others may be over before anybody can see it.
	lasting := []v1alpha1.MovePhase{v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce, v1alpha1.MoveFinalSync, v1alpha1.MoveRetain}
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
	var missed []v1alpha1.MovePhase
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
			at := reaches(t, made, all[slices.Index(all, phase):]...)
			require.Contains(t, all, at.Status.Phase, at.Status.Message)
			require.NoError(t, west.container(t.Context(), "pause"))
			t.Cleanup(func() { _ = west.container(context.Background(), "unpause") })
			cut, err := moves(t, shop).Get(t.Context(), made.Name, metav1.GetOptions{})
			require.NoError(t, err)
			t.Logf("west went away between %s and %s", at.Status.Phase, cut.Status.Phase)
			if slices.Contains(lasting, phase) {
				assert.Equal(t, phase, cut.Status.Phase, "this phase lasts for seconds, and was missed")
			} else if cut.Status.Phase != phase {
				missed = append(missed, phase)
			}
			time.Sleep(away())
			during, err := moves(t, shop).Get(t.Context(), made.Name, metav1.GetOptions{})
			require.NoError(t, err)
			t.Logf("after %s without it, in %s: %s", away(), during.Status.Phase, during.Status.Message)
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
	t.Logf("west went away in each of %v but %v", phases, missed)
}
