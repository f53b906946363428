package score_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const gi = 1 << 30

// scores are those of the candidate clusters.
type scores struct{ home, west, east int64 }

func scoresOf(view *snapshot.Snapshot, pod snapshot.Pod, candidates ...string) scores {
	scale := score.NewGravity(view, pod).Scale(candidates)
	return scores{home: scale.Of(keys.Home), west: scale.Of("west"), east: scale.Of("east")}
}

var everywhere = []string{keys.Home, "west", "east"}

func podWith(claims ...string) snapshot.Pod {
	pod := snapshot.Pod{Namespace: "app", Name: "web"}
	for _, claim := range claims {
		pod.Volumes = append(pod.Volumes, snapshot.PodVolume{ClaimName: claim})
	}
	return pod
}

func bound(view *snapshot.Snapshot, claim string, volume snapshot.Volume) {
	volume.ClaimUID = claim
	view.Claims.Set("app/"+claim, &snapshot.Claim{UID: claim, VolumeName: "pv-" + claim})
	view.Volumes.Set("pv-"+claim, &volume)
}

func TestDataDraws(t *testing.T) {
	view := snapshot.New()
	add := func(claim, cluster string, bytes int64) {
		bound(view, claim, snapshot.Volume{Cluster: cluster, Bytes: bytes})
	}
	add("home-1", keys.Home, gi)
	add("home-2", keys.Home, gi)
	add("west-1", "west", gi)
	add("west-18", "west", 18*gi)
	add("empty", "west", 0)
	add("vast-1", "west", math.MaxInt64)
	add("vast-2", "west", math.MaxInt64)
	bound(view, "nfs-east", snapshot.Volume{Prefers: "east", Bytes: gi})
	bound(view, "nfs", snapshot.Volume{Bytes: 100 * gi})
	view.Claims.Set("app/unbound", &snapshot.Claim{UID: "unbound"})
	view.Claims.Set("app/elsewhere", &snapshot.Claim{UID: "elsewhere", VolumeName: "pv-real"})
	view.Claims.Set("app/thief", &snapshot.Claim{UID: "thief", VolumeName: "pv-west-18"})
	view.Claims.Set("other/secret", &snapshot.Claim{UID: "west-18", VolumeName: "pv-west-18"})

	for name, test := range map[string]struct {
		mounts, near []string
		want         scores
	}{
		"no claims prefer nothing":                    {},
		"unbound claims prefer nothing":               {mounts: []string{"unbound"}},
		"bound claims: all the data is there":         {mounts: []string{"west-1", "west-18"}, want: scores{west: 10}},
		"unbound beside bound":                        {mounts: []string{"unbound", "home-1"}, want: scores{home: 10}},
		"near one claim":                              {mounts: []string{"unbound"}, near: []string{"west-1"}, want: scores{west: 10}},
		"near claims in both clusters, half and half": {near: []string{"home-1", "west-1"}, want: scores{home: 5, west: 5}},
		"near claims, one twentieth and the rest":     {near: []string{"home-1", "west-18", "west-1"}, want: scores{home: 1, west: 10}},
		"near two thirds":                             {near: []string{"home-1", "home-2", "west-1"}, want: scores{home: 7, west: 3}},
		"a claim counts once, named or mounted": {mounts: []string{"home-1"}, near: []string{"home-1", "west-1", "west-1"},
			want: scores{home: 5, west: 5}},
		"near a claim that is not there":            {near: []string{"gone", "home-1"}, want: scores{home: 10}},
		"a volume that an administrator labelled":   {mounts: []string{"nfs-east"}, want: scores{east: 10}},
		"near a volume that is labelled":            {near: []string{"nfs-east", "west-1"}, want: scores{west: 5, east: 5}},
		"a volume that may be anywhere":             {mounts: []string{"nfs"}},
		"a volume that may be anywhere beside data": {mounts: []string{"nfs", "nfs-east"}, want: scores{east: 10}},
		"near a volume that is not known":           {near: []string{"elsewhere"}},
		"near a claim that names another's volume":  {near: []string{"thief"}},
		"near a claim of another namespace":         {near: []string{"secret", "other/secret"}},
		"volumes without capacity prefer nothing":   {near: []string{"empty"}},
		"capacities beyond 64 bits do not overflow": {near: []string{"vast-1", "vast-2", "home-1"}, want: scores{west: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(test.mounts...)
			pod.Near = test.near
			assert.Equal(t, test.want, scoresOf(view, pod, everywhere...))
			gravity := score.NewGravity(view, pod)
			assert.Equal(t, test.want == scores{}, gravity.None())
			if gravity.None() {
				assert.Nil(t, gravity.Scale(everywhere), "nothing to explain")
			}
		})
	}
}

func TestScaleHasEachCandidateClusterOnce(t *testing.T) {
	view := snapshot.New()
	bound(view, "data", snapshot.Volume{Cluster: "west", Bytes: gi})
	scale := score.NewGravity(view, podWith("data")).Scale([]string{"home", "home", "east", "", "home", "east"})
	nothing := &score.Data{Pull: 0, Bytes: 0, Of: gi}
	assert.Equal(t, score.Scale{
		"home": {Cluster: "home", Data: nothing},
		"east": {Cluster: "east", Data: nothing},
	}, scale)
	assert.Zero(t, scale.Of(""), "a node that is not known yet")
	assert.Zero(t, scale.Of("west"), "not a candidate")
	assert.Empty(t, score.NewGravity(view, podWith("data")).Scale(nil))
}

func addClass(t testing.TB, view *snapshot.Snapshot, name string, parameters map[string]string) {
	t.Helper()
	class, ok := snapshot.FromStorageClass(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: keys.Driver, Parameters: parameters,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	require.True(t, ok)
	view.Classes.Set(name, class)
}

// homeRoom offers a real class with so much room at home.
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
		// siblings are the clusters with the volumes of pods 0, 1, …; empty: there is no volume.
		siblings []string
		// template is that of the siblings' claims: the name of a class.
		template string
		classes  []string
		// spreads: the pod asks for spreading or anti-affinity.
		spreads bool
		want    scores
	}{
		"the first pod of a set goes anywhere": {siblings: nil, template: "packed", classes: []string{"packed"}},
		"a class that says nothing leaves it to kube-scheduler": {siblings: []string{"west", "west"}, template: "plain",
			classes: []string{"plain"}},
		"a pod that asks to be spread is not packed": {siblings: []string{"west"}, template: "packed", classes: []string{"packed"},
			spreads: true},
		"a pod that asks to be spread is, by the class too": {siblings: []string{"west"}, template: "spread", classes: []string{"spread"},
			spreads: true, want: scores{home: 10, east: 10}},
		"they are packed": {siblings: []string{"west"}, template: "packed", classes: []string{"packed"},
			want: scores{west: 10}},
		"most are in west": {siblings: []string{"west", "home", "west"}, template: "packed",
			classes: []string{"packed"}, want: scores{home: 3, west: 7}},
		"they are spread": {siblings: []string{"west"}, template: "spread", classes: []string{"spread"},
			want: scores{home: 10, east: 10}},
		"fewest are in east": {siblings: []string{"west", "home", "west", "home", "east", "west", "west"},
			template: "spread", classes: []string{"spread"}, want: scores{home: 5, east: 8}},
		"they are spread evenly": {siblings: []string{"west", "home", "east"}, template: "spread",
			classes: []string{"spread"}},
		"they do not matter": {siblings: []string{"west", "west"}, template: "free", classes: []string{"free"}},
		"siblings without a volume count for nothing": {siblings: []string{"", "", "home"}, template: "packed", classes: []string{"packed"},
			want: scores{home: 10}},
		"claims of another template are no siblings": {siblings: []string{"west"}, template: "spread", classes: []string{"packed"}},
		"claims of two templates, one of which is bound": {siblings: []string{"west"}, template: "packed",
			classes: []string{"free", "packed", "spread"}, want: scores{west: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			view := snapshot.New()
			addClass(t, view, "packed", map[string]string{keys.Siblings: keys.SiblingsPack})
			addClass(t, view, "plain", nil)
			addClass(t, view, "spread", map[string]string{keys.Siblings: keys.SiblingsSpread})
			addClass(t, view, "free", map[string]string{keys.Siblings: keys.SiblingsIgnore})
			for i, cluster := range test.siblings {
				if cluster != "" {
					bound(view, fmt.Sprintf("%s-web-%d", test.template, i), snapshot.Volume{Cluster: cluster, Bytes: gi})
				}
			}
			pod := member(t, view, len(test.siblings), test.classes...)
			pod.Spreads = test.spreads
			assert.Equal(t, test.want, scoresOf(view, pod, everywhere...))
		})
	}
}

func TestClassesWithDifferentRulesPullByHalves(t *testing.T) {
	view := snapshot.New()
	addClass(t, view, "packed", map[string]string{keys.Siblings: keys.SiblingsPack})
	addClass(t, view, "spread", map[string]string{keys.Siblings: keys.SiblingsSpread})
	for _, claim := range []string{"packed-web-0", "spread-web-0"} {
		bound(view, claim, snapshot.Volume{Cluster: "west", Bytes: gi})
	}
	scale := score.NewGravity(view, member(t, view, 1, "packed", "spread")).Scale([]string{"west", "home"})
	assert.Equal(t, score.Scale{
		"west": {Cluster: "west", Score: 5, Siblings: &score.Siblings{Pull: 0.5, Pack: &score.Count{Here: 1, Of: 1},
			Spread: &score.Count{Here: 1, Of: 1}}},
		"home": {Cluster: "home", Score: 5, Siblings: &score.Siblings{Pull: 0.5, Pack: &score.Count{Of: 1}, Spread: &score.Count{Of: 1}}},
	}, scale)
}

// The pod's own data outweighs its siblings, and those outweigh room.
func TestPartsAreWeighed(t *testing.T) {
	view := snapshot.New()
	addClass(t, view, "packed", map[string]string{keys.LocalClass: "real", keys.RemoteClass: "real",
		keys.Siblings: keys.SiblingsPack})
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
		addClass(t, view, "packed", map[string]string{keys.LocalClass: "real", keys.RemoteClass: "real",
			keys.Siblings: keys.SiblingsPack})
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

// offer offers one real class with so much room in a cluster; the room is not known if it is
// unknown.
func offer(view *snapshot.Snapshot, cluster, class string, free int64) {
	offered := v1alpha1.OfferedClass{Name: class, Default: true}
	if free != unknown {
		offered.Free = resource.NewQuantity(free, resource.BinarySI)
	}
	view.Clusters.Set(cluster, &snapshot.Cluster{Ready: true, Offered: []v1alpha1.OfferedClass{offered}})
}

const unknown = -1

func TestRoomDraws(t *testing.T) {
	for name, test := range map[string]struct {
		// room in gibibytes; a claim asks for 1
		home, west, east int64
		claims           []string
		candidates       []string
		want             scores
	}{
		"nothing is known":           {home: unknown, west: unknown, east: unknown, claims: []string{"new"}},
		"one cluster alone is known": {home: unknown, west: 10, east: unknown, claims: []string{"new"}},
		"one is known, which is full": {home: unknown, west: 0, east: unknown, claims: []string{"new"},
			want: scores{home: 5, east: 5}},
		"two are known": {home: 5, west: 10, east: unknown, claims: []string{"new"},
			want: scores{home: 5, west: 10, east: 5}},
		"one of those known has too little": {home: 0, west: 10, east: unknown, claims: []string{"new"},
			want: scores{west: 10, east: 5}},
		"all are known": {home: 2, west: 4, east: 8, claims: []string{"new"},
			want: scores{home: 3, west: 5, east: 10}},
		"all are full":         {home: 0, west: 0, east: 0, claims: []string{"new"}},
		"there is just enough": {home: 1, west: 0, east: 0, claims: []string{"new"}, want: scores{home: 10}},
		"claims of one class need room together": {home: 1, west: 2, east: unknown, claims: []string{"new", "new-2"},
			want: scores{west: 10, east: 5}},
		"there is plenty everywhere": {home: 100, west: 100_000, east: 200, claims: []string{"new"},
			want: scores{home: 10, west: 10, east: 10}},
		"of clusters that are no candidates none asks": {home: 10, west: 20, east: 80, claims: []string{"new"},
			candidates: []string{"home", "west"}, want: scores{home: 5, west: 10}},
		"the claim is bound":            {home: 2, west: 4, east: 8, claims: []string{"bound"}},
		"the claim is of another class": {home: 2, west: 4, east: 8, claims: []string{"foreign"}},
	} {
		t.Run(name, func(t *testing.T) {
			view := snapshot.New()
			addClass(t, view, "lodestone", map[string]string{keys.LocalClass: "fast"})
			bytes := func(gibibytes int64) int64 {
				if gibibytes == unknown {
					return unknown
				}
				return gibibytes * gi
			}
			if test.home != unknown {
				homeRoom(view, "fast", bytes(test.home))
			}
			offer(view, "west", "ssd", bytes(test.west))
			offer(view, "east", "disk", bytes(test.east))
			view.Claims.Set("app/new", &snapshot.Claim{UID: "new", ClassName: "lodestone", Asked: gi})
			view.Claims.Set("app/new-2", &snapshot.Claim{UID: "new-2", ClassName: "lodestone", Asked: gi})
			view.Claims.Set("app/foreign", &snapshot.Claim{UID: "foreign", ClassName: "fast", Asked: gi})
			view.Claims.Set("app/bound", &snapshot.Claim{UID: "bound", ClassName: "lodestone", VolumeName: "pv", Asked: gi})
			if test.candidates == nil {
				test.candidates = everywhere
			}
			assert.Equal(t, test.want, scoresOf(view, podWith(test.claims...), test.candidates...))
		})
	}
}

// kube-scheduler spreads the pods of a set by itself. If the cluster with most room drew them all,
// that would be packing under another name.
func TestRoomDoesNotGatherPodsThatAreSpread(t *testing.T) {
	unlike := scores{home: 3, west: 5, east: 10}
	for name, test := range map[string]struct {
		class   string
		ordinal int
		spreads bool
		full    bool
		want    scores
	}{
		"the first pod of a set goes where there is room":             {class: "plain", want: unlike},
		"unless it asks to be spread":                                 {class: "plain", spreads: true},
		"the next one is spread":                                      {class: "plain", ordinal: 1},
		"in a class that packs, room counts":                          {class: "packed", ordinal: 1, want: unlike},
		"in a class that spreads over clusters, room counts":          {class: "spread", ordinal: 1, want: unlike},
		"in a class that packs, not for a pod that asks to be spread": {class: "packed", ordinal: 1, spreads: true},
		"a cluster without room gets none, however much others have":  {class: "plain", ordinal: 1, full: true, want: scores{home: 10, east: 10}},
		"so it is for a pod that asks to be spread": {class: "packed", spreads: true, full: true,
			want: scores{home: 10, east: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			view := snapshot.New()
			real := map[string]string{keys.LocalClass: "real", keys.RemoteClass: "real"}
			addClass(t, view, "plain", real)
			for class, rule := range map[string]string{"packed": keys.SiblingsPack, "spread": keys.SiblingsSpread} {
				parameters := maps.Clone(real)
				parameters[keys.Siblings] = rule
				addClass(t, view, class, parameters)
			}
			homeRoom(view, "real", 2*gi)
			offer(view, "west", "real", 4*gi)
			offer(view, "east", "real", 8*gi)
			if test.full {
				offer(view, "west", "real", 0)
			}
			pod := member(t, view, test.ordinal, test.class)
			pod.Spreads = test.spreads
			assert.Equal(t, test.want, scoresOf(view, pod, everywhere...))
		})
	}
}

func TestRoomIsExplained(t *testing.T) {
	view := snapshot.New()
	addClass(t, view, "lodestone", map[string]string{keys.LocalClass: "fast", keys.Classes: "gold"})
	homeRoom(view, "fast", 8*gi)
	homeRoom(view, "gold", 6*gi)
	offer(view, "west", "gold", 40*gi)
	offer(view, "east", "gold", unknown)
	choice := map[string]string{keys.Class: "gold"}
	view.Claims.Set("app/plain", &snapshot.Claim{UID: "plain", ClassName: "lodestone", Asked: gi})
	view.Claims.Set("app/golden", &snapshot.Claim{UID: "golden", ClassName: "lodestone", Asked: gi, Choice: choice})
	assert.Equal(t, score.Scale{
		"home": {Cluster: "home", Score: 3, Room: &score.Room{Pull: 0.3, Class: "gold", Free: 6 * gi, Asked: gi}},
		"west": {Cluster: "west", Score: 10, Room: &score.Room{Pull: 1, Class: "gold", Free: 40 * gi, Asked: 2 * gi}},
		"east": {Cluster: "east", Score: 5, Room: &score.Room{Pull: 0.5}},
	}, score.NewGravity(view, podWith("plain", "golden")).Scale(everywhere))
}

// A pod must not be attracted to a full cluster, which would refuse its new volumes.
func TestAFullClusterGetsNothing(t *testing.T) {
	view := snapshot.New()
	addClass(t, view, "lodestone", nil)
	bound(view, "data", snapshot.Volume{Prefers: "west", Bytes: gi})
	offer(view, "west", "ssd", gi/2)
	view.Claims.Set("app/new", &snapshot.Claim{UID: "new", ClassName: "lodestone", Asked: gi})
	scale := score.NewGravity(view, podWith("data", "new")).Scale([]string{"home", "west"})
	assert.Equal(t, score.Scale{
		"home": {Cluster: "home", Score: 1, Data: &score.Data{Of: gi}, Room: &score.Room{Pull: 0.5}},
		"west": {Cluster: "west", Data: &score.Data{Pull: 1, Bytes: gi, Of: gi}, Room: &score.Room{Class: "ssd", Free: gi / 2, Asked: gi}},
	}, scale)
}

// A pod's user writes its claims and their names: their cost is limited.
func TestOnlySoManyNewClaimsCount(t *testing.T) {
	view := snapshot.New()
	addClass(t, view, "lodestone", nil)
	offer(view, "west", "ssd", 20*gi)
	offer(view, "east", "ssd", 10*gi)
	var claims []string
	for i := range 1000 {
		claims = append(claims, fmt.Sprint(i))
		view.Claims.Set("app/"+claims[i], &snapshot.Claim{UID: claims[i], ClassName: "lodestone", Asked: gi})
	}
	scale := score.NewGravity(view, podWith(claims...)).Scale([]string{"west", "east"})
	assert.InDelta(t, 16*gi, scale["west"].Room.Asked, 1)
	assert.Equal(t, int64(10), scale.Of("west"))
	assert.Zero(t, scale.Of("east"))
}
