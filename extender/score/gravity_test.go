package score_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
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
		"a claim counts once, named or mounted":       {mounts: []string{"home-1"}, near: []string{"home-1", "west-1", "west-1"}, want: scores{home: 5, west: 5}},
		"near a claim that is not there":              {near: []string{"gone", "home-1"}, want: scores{home: 10}},
		"a volume that an administrator labelled":     {mounts: []string{"nfs-east"}, want: scores{east: 10}},
		"near a volume that is labelled":              {near: []string{"nfs-east", "west-1"}, want: scores{west: 5, east: 5}},
		"a volume that may be anywhere":               {mounts: []string{"nfs"}},
		"a volume that may be anywhere beside data":   {mounts: []string{"nfs", "nfs-east"}, want: scores{east: 10}},
		"near a volume that is not known":             {near: []string{"elsewhere"}},
		"near a claim that names another's volume":    {near: []string{"thief"}},
		"near a claim of another namespace":           {near: []string{"secret", "other/secret"}},
		"volumes without capacity prefer nothing":     {near: []string{"empty"}},
		"capacities beyond 64 bits do not overflow":   {near: []string{"vast-1", "vast-2", "home-1"}, want: scores{west: 10}},
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
