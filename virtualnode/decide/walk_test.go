package decide

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestNoSecondCopyEverRuns walks through histories in which two programs work at
// once on what may be old, requests fail, lose their answers or arrive late,
// programs restart, and people delete things on both sides. There is never more
// than one copy of the pod, and once the trouble ends everything settles.
func TestNoSecondCopyEverRuns(t *testing.T) {
	const walks = 400
	restarts, ran := 0, 0
	for seed := range walks {
		w := &world{rand: rand.New(rand.NewPCG(uint64(seed), 1)), ran: map[types.UID]bool{}}
		actors := []*actor{{world: w}, {world: w}}
		for range 1500 {
			a := actors[w.rand.IntN(len(actors))]
			switch w.rand.IntN(32) {
			case 0:
				w.controller()
			case 1:
				if w.chance(35) {
					w.trouble()
				}
			case 2, 3:
				w.agent()
			case 4:
				w.land()
			case 5:
				w.kubelet()
			case 6:
				if w.chance(20) {
					a.restart()
					restarts++
				}
			case 7, 8, 9, 10, 11, 12, 13, 14, 15, 16:
				a.see()
			default:
				a.act()
			}
			require.LessOrEqual(t, w.running(), 1, "seed %d: two copies: %v", seed, w)
		}
		settle(t, seed, w, actors)
		ran += len(w.ran)
	}
	require.Positive(t, restarts)
	require.Greater(t, ran, 2*walks, "pods ran in the remote cluster")
}

// settle ends the trouble: one program is left, and whatever is under way comes
// to its end.
func settle(t *testing.T, seed int, w *world, actors []*actor) {
	t.Helper()
	for len(w.flying) > 0 {
		w.land()
		require.LessOrEqual(t, w.running(), 1, "seed %d: two copies: %v", seed, w)
	}
	w.calm = true
	a := actors[0]
	a.restart()
	for range 300 {
		a.seenHome, a.seenShadow, a.seenRemote = w.home, w.shadow, w.remote
		for a.act(); len(a.plan) > 0; {
			a.act()
		}
		w.controller()
		w.kubelet()
		w.agent()
		require.LessOrEqual(t, w.running(), 1, "seed %d: two copies: %v", seed, w)
	}
	require.NotNil(t, w.home, "seed %d: %v", seed, w)
	require.Nil(t, w.home.DeletionTimestamp, "seed %d: it never ends: %v", seed, w)
	require.Equal(t, 1, w.running(), "seed %d: it runs somewhere: %v", seed, w)
	if w.home.Spec.NodeName == "west" {
		require.Equal(t, string(w.home.UID), w.remote.Labels[keys.PodUID], "seed %d: %v", seed, w)
	} else {
		require.Nil(t, w.shadow, "seed %d: a ShadowPod is left: %v", seed, w)
	}
}
