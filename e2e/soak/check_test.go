package soak

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// intact is a world with one bound claim, whose data is in west.
func intact() (w world, owners map[types.UID]wish, bound map[types.UID]bool) {
	shadow := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "soak-a", Name: "data", UID: "shadow",
			Labels: map[string]string{keys.ClaimUID: "uid"}, Finalizers: []string{keys.BackingFinalizer},
		},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "real"},
	}
	claim := fabric.NewClaim("soak-a", "data", fabric.Class)
	claim.UID, claim.Spec.VolumeName, claim.Status.Phase = "uid", "pvc-uid", corev1.ClaimBound
	virtual := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-uid",
			Annotations: map[string]string{keys.Backing: backing.RefTo(fabric.WestNode, shadow).String()}},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "uid"}},
	}
	w = world{
		claims:   []*corev1.PersistentVolumeClaim{claim},
		backings: map[string][]*corev1.PersistentVolumeClaim{fabric.WestNode: {shadow}},
		volumes:  map[string][]*corev1.PersistentVolume{keys.Home: {virtual}, fabric.WestNode: {{ObjectMeta: metav1.ObjectMeta{Name: "real"}}}},
		stored:   map[string][]fakeprovisioner.Volume{fabric.WestNode: {{Handle: "real"}}},
	}
	return w, map[types.UID]wish{"uid": {namespace: "soak-a", name: "data"}}, map[types.UID]bool{"uid": true}
}

func TestProblems(t *testing.T) {
	for name, test := range map[string]struct {
		harm func(w *world, bound map[types.UID]bool)
		want string
	}{
		"nothing is wrong": {harm: func(*world, map[types.UID]bool) {}},
		"the claim was deleted and its data kept": {harm: func(w *world, bound map[types.UID]bool) {
			w.claims = nil
			delete(bound, "uid")
		}},
		"a claim is pending": {
			harm: func(w *world, _ map[types.UID]bool) { w.claims[0].Status.Phase = corev1.ClaimPending },
			want: "claim soak-a/data is Pending",
		},
		"a claim is gone": {
			harm: func(w *world, _ map[types.UID]bool) { w.claims = nil },
			want: "claim soak-a/data is gone",
		},
		"a claim should be gone": {
			harm: func(_ *world, bound map[types.UID]bool) { delete(bound, "uid") },
			want: "is there and should not be",
		},
		"a claim is bound to another volume": {
			harm: func(w *world, _ map[types.UID]bool) { w.claims[0].Spec.VolumeName = "other" },
			want: "is bound to the volume other",
		},
		"a second backing claim": {
			harm: func(w *world, _ map[types.UID]bool) {
				twin := w.backings[fabric.WestNode][0].DeepCopy()
				twin.UID, twin.Spec.VolumeName = "twin", ""
				w.backings[keys.Home] = append(w.backings[keys.Home], twin)
			},
			want: "claim soak-a/data has 2 backing claims",
		},
		"no backing claim": {
			harm: func(w *world, _ map[types.UID]bool) { w.backings = nil },
			want: "claim soak-a/data has 0 backing claims",
		},
		"a backing claim that is not marked": {
			harm: func(w *world, _ map[types.UID]bool) {
				w.backings[fabric.WestNode][0].Annotations = map[string]string{keys.Unpublished: "true"}
			},
			want: "is not marked as published",
		},
		"a backing claim that lost its volume": {
			harm: func(w *world, _ map[types.UID]bool) {
				w.volumes[fabric.WestNode], w.stored = nil, nil
			},
			want: "has lost its real volume",
		},
		"a backing claim that was left behind": {
			harm: func(w *world, _ map[types.UID]bool) {
				left := w.backings[fabric.WestNode][0].DeepCopy()
				left.UID, left.Spec.VolumeName, left.Labels[keys.ClaimUID] = "left", "", "another"
				w.backings[fabric.WestNode] = append(w.backings[fabric.WestNode], left)
			},
			want: "was left behind",
		},
		"a real volume that was left behind": {
			harm: func(w *world, _ map[types.UID]bool) {
				w.volumes[keys.Home] = append(w.volumes[keys.Home], &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "left"}})
			},
			want: "real volume left of home belongs to no backing claim",
		},
		"storage without an object": {
			harm: func(w *world, _ map[types.UID]bool) {
				w.stored[fabric.WestNode] = append(w.stored[fabric.WestNode], fakeprovisioner.Volume{Handle: "lost"})
			},
			want: "the storage of west holds 2 volumes for 1 objects",
		},
		"a virtual volume of no claim": {
			harm: func(w *world, _ map[types.UID]bool) {
				other := w.volumes[keys.Home][0].DeepCopy()
				other.Name, other.Spec.ClaimRef.UID = "pvc-other", "other"
				w.volumes[keys.Home] = append(w.volumes[keys.Home], other)
			},
			want: "virtual volume pvc-other belongs to no claim",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, owners, bound := intact()
			test.harm(&w, bound)
			wrong := w.problems(owners, bound)
			if test.want == "" {
				assert.Empty(t, wrong)
				return
			}
			assert.Contains(t, strings.Join(wrong, "\n"), test.want)
		})
	}
}

func TestPlanIsTheSameForTheSameSeedAndHasAllRoutes(t *testing.T) {
	planned := func(seed uint64) []wish {
		return plan(rand.New(rand.NewPCG(seed, 0)), namespaces, 500)
	} //nolint:gosec // it is to be repeatable
	wishes := planned(7)
	require.Len(t, wishes, 500)
	assert.Equal(t, wishes, planned(7))
	assert.NotEqual(t, wishes, planned(8))

	seen := map[string]int{}
	for _, w := range wishes {
		seen["class "+w.class]++
		seen["node "+w.node]++
		seen["place "+w.place]++
		if w.with != "" {
			seen["with another"]++
		}
		if w.doomed {
			seen["doomed"]++
		}
	}
	for _, kind := range []string{"class " + fabric.Class, "class " + nowClass, "class " + keptClass, "node ", "node " + homeNode, "node " +
		fabric.WestNode,
		"place ", "place " + keys.Home, "place " + fabric.WestNode, "with another", "doomed"} {
		assert.Positive(t, seen[kind], kind)
	}

	used := 0
	for _, pod := range pods(wishes) {
		used += len(pod.Spec.Volumes)
	}
	sent := seen["node "+homeNode] + seen["node "+fabric.WestNode]
	assert.Equal(t, len(wishes), used+sent, "each claim is used by one pod or sent to a node")
}
