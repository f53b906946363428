package score_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestScale(t *testing.T) {
	const gi = 1 << 30
	view := snapshot.New()
	add := func(claim, cluster string, bytes int64) {
		view.Claims.Set("app/"+claim, &snapshot.Claim{UID: claim, VolumeName: "pv-" + claim})
		view.Volumes.Set("pv-"+claim, &snapshot.Volume{Cluster: cluster, Bytes: bytes, ClaimUID: claim})
	}
	add("home-1", keys.Home, gi)
	add("home-2", keys.Home, gi)
	add("west-1", "west", gi)
	add("west-18", "west", 18*gi)
	add("empty", "west", 0)
	add("vast-1", "west", math.MaxInt64)
	add("vast-2", "west", math.MaxInt64)
	view.Claims.Set("app/unbound", &snapshot.Claim{UID: "unbound"})
	view.Claims.Set("app/elsewhere", &snapshot.Claim{UID: "elsewhere", VolumeName: "pv-real"})
	view.Claims.Set("app/thief", &snapshot.Claim{UID: "thief", VolumeName: "pv-west-18"})
	view.Claims.Set("other/secret", &snapshot.Claim{UID: "west-18", VolumeName: "pv-west-18"})

	type scores struct{ home, west, east int64 }
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
		"a claim counts once, named or mounted":       {mounts: []string{"home-1"}, near: []string{"home-1", "west-1", "west-1"}, want: scores{home: 5, west: 5}},
		"near a claim that is not there":              {near: []string{"gone", "home-1"}, want: scores{home: 10}},
		"near a volume without cluster":               {near: []string{"elsewhere"}},
		"near a claim that names another's volume":    {near: []string{"thief"}},
		"near a claim of another namespace":           {near: []string{"secret", "other/secret"}},
		"volumes without capacity prefer nothing":     {near: []string{"empty"}},
		"capacities beyond 64 bits do not overflow":   {near: []string{"vast-1", "vast-2", "home-1"}, want: scores{west: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := snapshot.Pod{Namespace: "app", Near: test.near}
			for _, claim := range test.mounts {
				pod.Volumes = append(pod.Volumes, snapshot.PodVolume{ClaimName: claim})
			}
			scale := score.NewScale(view, pod)
			of := func(cluster string) int64 {
				return scale.Of(snapshot.Node{Name: "n", Cluster: cluster, Known: true})
			}
			assert.Equal(t, test.want, scores{home: of(keys.Home), west: of("west"), east: of("east")})
			assert.Zero(t, scale.Of(snapshot.Node{Name: "new"}), "a node that is not known yet")
		})
	}
}
