package snapshot_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

func TestVolumeOf(t *testing.T) {
	view := snapshot.New()
	view.Volumes.Set("pv-1", &snapshot.Volume{Cluster: "west", ClaimUID: "uid-1"})
	view.Volumes.Set("pv-2", &snapshot.Volume{Cluster: "west"})

	for name, test := range map[string]struct {
		claim snapshot.Claim
		found bool
	}{
		"the volume names the claim":                   {claim: snapshot.Claim{UID: "uid-1", VolumeName: "pv-1"}, found: true},
		"the claim names another tenant's volume":      {claim: snapshot.Claim{UID: "uid-2", VolumeName: "pv-1"}},
		"neither has a UID":                            {claim: snapshot.Claim{VolumeName: "pv-2"}},
		"the volume is not known yet, or not confined": {claim: snapshot.Claim{UID: "uid-1", VolumeName: "pv-3"}},
		"the claim is not bound":                       {claim: snapshot.Claim{UID: "uid-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, found := view.VolumeOf(&test.claim)
			assert.Equal(t, test.found, found)
		})
	}
}

func TestClaimsOf(t *testing.T) {
	view := snapshot.New()
	data := &snapshot.Claim{UID: "uid-data", VolumeName: "pv"}
	volume := &snapshot.Volume{Cluster: "west", ClaimUID: "uid-data"}
	view.Volumes.Set("pv", volume)
	scratch := &snapshot.Claim{UID: "uid-scratch", OwnerUID: "pod-uid"}
	view.Claims.Set("app/data", data)
	view.Claims.Set("app/web-scratch", scratch)
	view.Claims.Set("other/secret", &snapshot.Claim{UID: "uid-secret"})

	pod := func(volumes ...snapshot.PodVolume) snapshot.Pod {
		return snapshot.Pod{Namespace: "app", Name: "web", UID: "pod-uid", Volumes: volumes}
	}
	for name, test := range map[string]struct {
		pod  snapshot.Pod
		want []snapshot.PodClaim
	}{
		"no volumes":                               {pod: pod()},
		"a claim":                                  {pod: pod(snapshot.PodVolume{ClaimName: "data"}), want: []snapshot.PodClaim{{Name: "data", Claim: data, Volume: volume}}},
		"a claim mounted twice counts once":        {pod: pod(snapshot.PodVolume{ClaimName: "data"}, snapshot.PodVolume{ClaimName: "data"}), want: []snapshot.PodClaim{{Name: "data", Claim: data, Volume: volume}}},
		"a claim that is not there yet":            {pod: pod(snapshot.PodVolume{ClaimName: "later"})},
		"a claim of another namespace":             {pod: pod(snapshot.PodVolume{ClaimName: "secret"})},
		"an ephemeral volume of this pod":          {pod: pod(snapshot.PodVolume{ClaimName: "web-scratch", Ephemeral: true}), want: []snapshot.PodClaim{{Name: "web-scratch", Claim: scratch}}},
		"an ephemeral volume's name is taken":      {pod: pod(snapshot.PodVolume{ClaimName: "data", Ephemeral: true})},
		"an ephemeral volume of a pod without UID": {pod: snapshot.Pod{Namespace: "app", Name: "web", Volumes: []snapshot.PodVolume{{ClaimName: "data", Ephemeral: true}}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, view.ClaimsOf(test.pod))
			assert.Equal(t, len(test.pod.Volumes) == 0 || len(test.want) > 0, view.Knows(test.pod))
		})
	}
}

func TestClaimsOfAPodWithVeryMany(t *testing.T) {
	view := snapshot.New()
	pod := snapshot.Pod{Namespace: "app"}
	var want []snapshot.PodClaim
	for i := range 50 {
		name := fmt.Sprintf("claim-%d", i)
		claim := &snapshot.Claim{UID: name}
		view.Claims.Set("app/"+name, claim)
		want = append(want, snapshot.PodClaim{Name: name, Claim: claim})
		pod.Volumes = append(pod.Volumes, snapshot.PodVolume{ClaimName: name}, snapshot.PodVolume{ClaimName: "claim-3"})
	}
	pod.Volumes = append(pod.Volumes, pod.Volumes...)
	claims := view.ClaimsOf(pod)
	require.Len(t, claims, len(want), "each once")
	assert.ElementsMatch(t, want, claims)
}

func TestClaimsNear(t *testing.T) {
	view := snapshot.New()
	logs := &snapshot.Claim{UID: "uid-logs"}
	for _, name := range []string{"data", "logs"} {
		view.Claims.Set("app/"+name, logs)
	}
	assert.Equal(t, []snapshot.PodClaim{{Name: "logs", Claim: logs, Near: true}}, view.ClaimsNear(snapshot.Pod{
		Namespace: "app", Volumes: []snapshot.PodVolume{{ClaimName: "data"}}, Near: []string{"logs", "data", "gone", "logs"},
	}), "each once, and none that is mounted or not there")
}

func TestNode(t *testing.T) {
	view := snapshot.New()
	view.Nodes.Set("virtual-west", "west")
	assert.Equal(t, snapshot.Node{Name: "virtual-west", Cluster: "west", Known: true}, nodeOf(view, "virtual-west"))
	assert.Equal(t, snapshot.Node{Name: "new"}, nodeOf(view, "new"))
}

// nodeOf returns what is known of a node.
func nodeOf(view *snapshot.Snapshot, name string) (found snapshot.Node) {
	view.EachNode([]string{name}, func(_ int, node snapshot.Node) { found = node })
	return found
}
