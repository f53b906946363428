package score_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func addClass(t testing.TB, view *snapshot.Snapshot, name string, parameters map[string]string) {
	t.Helper()
	class, ok := snapshot.FromStorageClass(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: keys.Driver, Parameters: parameters,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	require.True(t, ok)
	view.Classes.Set(name, class)
}

// homeRoom has home offer a real class with so much room.
func homeRoom(view *snapshot.Snapshot, class string, free int64) {
	view.StorageClasses().Set(class, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "disk.example.com"})
	view.Room.Set(class, snapshot.Capacity{ClassName: class, Bytes: free})
}

// member returns a pod of StatefulSet web with a claim for each class, none of
// which has a volume.
func member(t testing.TB, view *snapshot.Snapshot, ordinal int, classes ...string) snapshot.Pod {
	t.Helper()
	pod := snapshot.Pod{Namespace: "app", Name: fmt.Sprintf("web-%d", ordinal), StatefulSet: "web"}
	for _, class := range classes {
		claim := fmt.Sprintf("%s-%s", class, pod.Name)
		view.Claims.Set("app/"+claim, &snapshot.Claim{UID: claim, ClassName: class, Asked: gi})
		pod.Volumes = append(pod.Volumes, snapshot.PodVolume{ClaimName: claim})
	}
	return pod
}

func TestSiblingsDraw(t *testing.T) {
	for name, test := range map[string]struct {
		// siblings are the clusters that hold the volumes of pods 0, 1, …; empty:
		// there is no volume.
		siblings []string
		// template is that of the siblings' claims: the name of a class.
		template string
		classes  []string
		want     scores
	}{
		"the first pod of a set goes anywhere":           {siblings: nil, template: "packed", classes: []string{"packed"}},
		"they are packed":                                {siblings: []string{"west"}, template: "packed", classes: []string{"packed"}, want: scores{west: 10}},
		"most are in west":                               {siblings: []string{"west", "home", "west"}, template: "packed", classes: []string{"packed"}, want: scores{home: 3, west: 7}},
		"they are spread":                                {siblings: []string{"west"}, template: "spread", classes: []string{"spread"}, want: scores{home: 10, east: 10}},
		"fewest are in east":                             {siblings: []string{"west", "home", "west", "home", "east", "west", "west"}, template: "spread", classes: []string{"spread"}, want: scores{home: 5, east: 8}},
		"they are spread evenly":                         {siblings: []string{"west", "home", "east"}, template: "spread", classes: []string{"spread"}},
		"they do not matter":                             {siblings: []string{"west", "west"}, template: "free", classes: []string{"free"}},
		"siblings without a volume count for nothing":    {siblings: []string{"", "", "home"}, template: "packed", classes: []string{"packed"}, want: scores{home: 10}},
		"claims of another template are no siblings":     {siblings: []string{"west"}, template: "spread", classes: []string{"packed"}},
		"claims of two templates, one of which is bound": {siblings: []string{"west"}, template: "packed", classes: []string{"free", "packed", "spread"}, want: scores{west: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			view := snapshot.New()
			addClass(t, view, "packed", nil)
			addClass(t, view, "spread", map[string]string{keys.Siblings: keys.SiblingsSpread})
			addClass(t, view, "free", map[string]string{keys.Siblings: keys.SiblingsIgnore})
			for i, cluster := range test.siblings {
				if cluster != "" {
					bound(view, fmt.Sprintf("%s-web-%d", test.template, i), snapshot.Volume{Cluster: cluster, Bytes: gi})
				}
			}
			assert.Equal(t, test.want, scoresOf(view, member(t, view, len(test.siblings), test.classes...), everywhere...))
		})
	}
}

func TestClassesWithDifferentRulesPullByHalves(t *testing.T) {
	view := snapshot.New()
	addClass(t, view, "packed", nil)
	addClass(t, view, "spread", map[string]string{keys.Siblings: keys.SiblingsSpread})
	for _, claim := range []string{"packed-web-0", "spread-web-0"} {
		bound(view, claim, snapshot.Volume{Cluster: "west", Bytes: gi})
	}
	scale := score.NewGravity(view, member(t, view, 1, "packed", "spread")).Scale([]string{"west", "home"})
	assert.Equal(t, score.Scale{
		"west": {Cluster: "west", Score: 5, Siblings: &score.Siblings{Pull: 0.5, Pack: &score.Count{Here: 1, Of: 1}, Spread: &score.Count{Here: 1, Of: 1}}},
		"home": {Cluster: "home", Score: 5, Siblings: &score.Siblings{Pull: 0.5, Pack: &score.Count{Of: 1}, Spread: &score.Count{Of: 1}}},
	}, scale)
}

// The pod's own data outweighs its siblings, and those outweigh room.
func TestPartsAreWeighed(t *testing.T) {
	view := snapshot.New()
	addClass(t, view, "packed", map[string]string{keys.LocalClass: "real", keys.RemoteClass: "real"})
	bound(view, "warehouse", snapshot.Volume{Cluster: "west", Bytes: gi})
	bound(view, "packed-web-0", snapshot.Volume{Cluster: keys.Home, Bytes: gi})
	homeRoom(view, "real", 10*gi)
	offer(view, "west", "real", 10*gi)
	offer(view, "east", "real", 20*gi)
	pod := member(t, view, 1, "packed")
	assert.Equal(t, scores{home: 9, west: 1, east: 3}, scoresOf(view, pod, everywhere...), "(3×1+½)/4, ½/4, 1/4")
	pod.Near = []string{"warehouse"}
	assert.Equal(t, scores{home: 4, west: 7, east: 1}, scoresOf(view, pod, everywhere...), "(3×1+½)/10, (6×1+½)/10, 1/10")
}

// Whatever the numbers are, kube-scheduler gets 0 to 10: it checks nothing.
func TestScoresStayInRange(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		view := snapshot.New()
		addClass(t, view, "packed", map[string]string{keys.LocalClass: "real", keys.RemoteClass: "real"})
		addClass(t, view, "spread", map[string]string{keys.Siblings: keys.SiblingsSpread})
		pod := member(t, view, 5, "packed", "spread")
		for i := range 5 {
			cluster := everywhere[random.IntN(3)]
			for _, claim := range []string{fmt.Sprintf("packed-web-%d", i), fmt.Sprintf("spread-web-%d", i), fmt.Sprintf("near-%d", i)} {
				if random.IntN(3) > 0 {
					bound(view, claim, snapshot.Volume{Cluster: cluster, Bytes: random.Int64() - gi})
				}
			}
			pod.Near = append(pod.Near, fmt.Sprintf("near-%d", i))
		}
		homeRoom(view, "real", random.Int64N(20*gi))
		offer(view, "west", "real", random.Int64())
		offer(view, "east", "real", -random.Int64())
		for _, mark := range score.NewGravity(view, pod).Scale(everywhere) {
			assert.GreaterOrEqual(t, mark.Score, int64(0))
			assert.LessOrEqual(t, mark.Score, int64(score.Max))
		}
	}
}
