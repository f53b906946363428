package score_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// offer has a cluster offer one real class with so much room; none is known if
// it is unknown.
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
		"nothing is known":                             {home: unknown, west: unknown, east: unknown, claims: []string{"new"}},
		"one cluster alone is known":                   {home: unknown, west: 10, east: unknown, claims: []string{"new"}},
		"one is known, which is full":                  {home: unknown, west: 0, east: unknown, claims: []string{"new"}, want: scores{home: 5, east: 5}},
		"two are known":                                {home: 5, west: 10, east: unknown, claims: []string{"new"}, want: scores{home: 5, west: 10, east: 5}},
		"one of those known has too little":            {home: 0, west: 10, east: unknown, claims: []string{"new"}, want: scores{west: 10, east: 5}},
		"all are known":                                {home: 2, west: 4, east: 8, claims: []string{"new"}, want: scores{home: 3, west: 5, east: 10}},
		"all are full":                                 {home: 0, west: 0, east: 0, claims: []string{"new"}},
		"there is just enough":                         {home: 1, west: 0, east: 0, claims: []string{"new"}, want: scores{home: 10}},
		"claims of one class need room together":       {home: 1, west: 2, east: unknown, claims: []string{"new", "new-2"}, want: scores{west: 10, east: 5}},
		"there is plenty everywhere":                   {home: 100, west: 100_000, east: 200, claims: []string{"new"}, want: scores{home: 10, west: 10, east: 10}},
		"of clusters that are no candidates none asks": {home: 10, west: 20, east: 80, claims: []string{"new"}, candidates: []string{"home", "west"}, want: scores{home: 5, west: 10}},
		"the claim is bound":                           {home: 2, west: 4, east: 8, claims: []string{"bound"}},
		"the claim is of another class":                {home: 2, west: 4, east: 8, claims: []string{"foreign"}},
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

// What draws a pod to a full cluster must not bring it there: its new volumes
// would be refused.
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

// The claims of a pod and their names are its user's: what they cost is bounded.
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
