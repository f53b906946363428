package snapshot

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestVolumeOf(t *testing.T) {
	view := New()
	view.Volumes.Set("pv-1", &Volume{Cluster: "west", ClaimUID: "uid-1"})
	view.Volumes.Set("pv-2", &Volume{Cluster: "west"})

	for name, test := range map[string]struct {
		claim Claim
		found bool
	}{
		"the volume names the claim":                   {claim: Claim{UID: "uid-1", VolumeName: "pv-1"}, found: true},
		"the claim names another tenant's volume":      {claim: Claim{UID: "uid-2", VolumeName: "pv-1"}},
		"neither has a UID":                            {claim: Claim{VolumeName: "pv-2"}},
		"the volume is not known yet, or not confined": {claim: Claim{UID: "uid-1", VolumeName: "pv-3"}},
		"the claim is not bound":                       {claim: Claim{UID: "uid-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, found := view.VolumeOf(&test.claim)
			assert.Equal(t, test.found, found)
		})
	}
}

func TestClaimsOf(t *testing.T) {
	view := New()
	data := &Claim{UID: "uid-data", VolumeName: "pv"}
	volume := &Volume{Cluster: "west", ClaimUID: "uid-data"}
	view.Volumes.Set("pv", volume)
	scratch := &Claim{UID: "uid-scratch", OwnerUID: "pod-uid"}
	view.Claims.Set("app/data", data)
	view.Claims.Set("app/web-scratch", scratch)
	view.Claims.Set("other/secret", &Claim{UID: "uid-secret"})

	pod := func(volumes ...PodVolume) Pod {
		return Pod{Namespace: "app", Name: "web", UID: "pod-uid", Volumes: volumes}
	}
	for name, test := range map[string]struct {
		pod  Pod
		want []PodClaim
	}{
		"no volumes": {pod: pod()},
		"a claim": {pod: pod(PodVolume{ClaimName: "data"}),
			want: []PodClaim{{Name: "data", Claim: data, Volume: volume}}},
		"a claim mounted twice counts once": {pod: pod(PodVolume{ClaimName: "data"}, PodVolume{ClaimName: "data"}),
			want: []PodClaim{{Name: "data", Claim: data, Volume: volume}}},
		"a claim that is not there yet": {pod: pod(PodVolume{ClaimName: "later"})},
		"a claim of another namespace":  {pod: pod(PodVolume{ClaimName: "secret"})},
		"an ephemeral volume of this pod": {pod: pod(PodVolume{ClaimName: "web-scratch", Ephemeral: true}),
			want: []PodClaim{{Name: "web-scratch", Claim: scratch}}},
		"an ephemeral volume's name is taken": {pod: pod(PodVolume{ClaimName: "data", Ephemeral: true})},
		"an ephemeral volume of a pod without UID": {pod: Pod{Namespace: "app", Name: "web",
			Volumes: []PodVolume{{ClaimName: "data", Ephemeral: true}}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, view.ClaimsOf(test.pod))
			assert.Equal(t, len(test.pod.Volumes) == 0 || len(test.want) > 0, view.Knows(test.pod))
		})
	}
}

func TestClaimsOfAPodWithVeryMany(t *testing.T) {
	view := New()
	pod := Pod{Namespace: "app"}
	var want []PodClaim
	for i := range 50 {
		name := fmt.Sprintf("claim-%d", i)
		claim := &Claim{UID: name}
		view.Claims.Set("app/"+name, claim)
		want = append(want, PodClaim{Name: name, Claim: claim})
		pod.Volumes = append(pod.Volumes, PodVolume{ClaimName: name}, PodVolume{ClaimName: "claim-3"})
	}
	pod.Volumes = append(pod.Volumes, pod.Volumes...)
	claims := view.ClaimsOf(pod)
	require.Len(t, claims, len(want), "each once")
	assert.ElementsMatch(t, want, claims)
}

func TestClaimsNear(t *testing.T) {
	view := New()
	logs := &Claim{UID: "uid-logs"}
	for _, name := range []string{"data", "logs"} {
		view.Claims.Set("app/"+name, logs)
	}
	assert.Equal(t, []PodClaim{{Name: "logs", Claim: logs, Near: true}}, view.ClaimsNear(Pod{
		Namespace: "app", Volumes: []PodVolume{{ClaimName: "data"}}, Near: []string{"logs", "data", "gone", "logs"},
	}), "each once, and none that is mounted or not there")
}

func TestNode(t *testing.T) {
	view := New()
	view.Nodes.Set("virtual-west", "west")
	assert.Equal(t, Node{Name: "virtual-west", Cluster: "west", Known: true}, nodeOf(view, "virtual-west"))
	assert.Equal(t, Node{Name: "new"}, nodeOf(view, "new"))
}

// nodeOf returns what is known of a node.
func nodeOf(view *Snapshot, name string) (found Node) {
	view.EachNode([]string{name}, func(_ int, node Node) { found = node })
	return found
}

// A copy is judged by its source's volume: if Kubernetes has bound the source,
// that volume will be seen in a moment. A user cannot write that it is bound.
func TestKnowsWaitsForTheVolumeOfASource(t *testing.T) {
	view := New()
	pod := Pod{Namespace: "app", Volumes: []PodVolume{{ClaimName: "copy"}}}
	view.Claims.Set("app/copy", &Claim{UID: "copy", Source: "data"})
	assert.True(t, view.Knows(pod), "the source may never be made")
	view.Claims.Set("app/data", &Claim{UID: "data", VolumeName: "pv"})
	assert.True(t, view.Knows(pod), "its user wrote the volume's name")
	view.Claims.Set("app/data", &Claim{UID: "data", VolumeName: "pv", Bound: true})
	assert.False(t, view.Knows(pod))
	view.Volumes.Set("pv", &Volume{Cluster: "west", ClaimUID: "data"})
	assert.True(t, view.Knows(pod))
}

// Which nodes a volume allows is not known before the volume is.
func TestKnowsWaitsForTheVolumeOfAClaim(t *testing.T) {
	view := New()
	pod := Pod{Namespace: "app", Volumes: []PodVolume{{ClaimName: "data"}}}
	view.Claims.Set("app/data", &Claim{UID: "data", VolumeName: "pv"})
	assert.True(t, view.Knows(pod), "its user wrote the volume's name")
	view.Claims.Set("app/data", &Claim{UID: "data", VolumeName: "pv", Bound: true})
	assert.False(t, view.Knows(pod))
	view.Volumes.Set("pv", &Volume{ClaimUID: "data"})
	assert.True(t, view.Knows(pod), "a volume that may be anywhere is known as well")
}

// A virtual class may be created and used within the same second: until it is seen,
// it would count as one that is not virtual.
func TestKnowsWaitsForTheClassOfAClaim(t *testing.T) {
	for name, provisioner := range map[string]string{"a virtual class": keys.Driver, "a real class": "disk.example.com"} {
		t.Run(name, func(t *testing.T) {
			view := New()
			pod := Pod{Namespace: "app", Volumes: []PodVolume{{ClaimName: "data"}}}
			view.Claims.Set("app/data", &Claim{UID: "data"})
			assert.True(t, view.Knows(pod), "it names no class")
			view.Claims.Set("app/data", &Claim{UID: "data", ClassName: "new"})
			assert.False(t, view.Knows(pod))
			class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Provisioner: provisioner}
			view.StorageClasses().Set("new", class)
			assert.True(t, view.Knows(pod))
			view.StorageClasses().Delete("new")
			assert.False(t, view.Knows(pod))
			view.StorageClasses().Replace(map[string]*storagev1.StorageClass{"new": class})
			assert.True(t, view.Knows(pod))
			view.StorageClasses().Replace(nil)
			view.Claims.Set("app/data", &Claim{UID: "data", ClassName: "new", VolumeName: "pv"})
			assert.True(t, view.Knows(pod), "where a volume is named, the class no longer matters")
		})
	}
}

func TestSiblings(t *testing.T) {
	add := func(view *Snapshot, claim, cluster string) {
		view.Claims.Set("app/"+claim, &Claim{UID: claim, VolumeName: "pv-" + claim})
		view.Volumes.Set("pv-"+claim, &Volume{Cluster: cluster, ClaimUID: claim})
	}
	view := New()
	for i := range 200 {
		add(view, fmt.Sprintf("data-db-%d", i), fmt.Sprint(i))
	}
	add(view, "data-db-07", "odd")
	add(view, "data-db--1", "odd")
	add(view, "log-db-1", "log")
	add(view, "data-db-1-0", "other set")
	view.Claims.Set("app/soft-db-1", &Claim{UID: "soft", VolumeName: "pv-soft"})
	view.Volumes.Set("pv-soft", &Volume{Prefers: "soft", ClaimUID: "soft"})
	view.Claims.Set("app/soft-db-2", &Claim{UID: "thief", VolumeName: "pv-soft"})
	view.Claims.Set("app/soft-db-3", &Claim{UID: "new"})
	view.Claims.Set("app/new-db-1", &Claim{UID: "new-1", SelectedNode: "node"})
	view.Claims.Set("app/new-db-2", &Claim{UID: "new-2", SelectedNode: "gone"})
	view.Claims.Set("app/new-db-3", &Claim{UID: "new-3"})
	view.Nodes.Set("node", "west")

	numbers := func(from, to, but int) []string {
		var all []string
		for i := from; i <= to; i++ {
			if i != but {
				all = append(all, fmt.Sprint(i))
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		pod, set, claim string
		want            []string
	}{
		"64 above the first pod":                    {pod: "db-0", set: "db", claim: "data-db-0", want: numbers(1, 64, -1)},
		"64 on either side":                         {pod: "db-100", set: "db", claim: "data-db-100", want: numbers(36, 164, 100)},
		"those that are left above":                 {pod: "db-198", set: "db", claim: "data-db-198", want: numbers(134, 199, 198)},
		"another template":                          {pod: "db-0", set: "db", claim: "log-db-0", want: []string{"log"}},
		"a volume with a label, of which one tells": {pod: "db-0", set: "db", claim: "soft-db-0", want: []string{"soft"}},
		"volumes that are being made":               {pod: "db-0", set: "db", claim: "new-db-0", want: []string{"west"}},
		"a set whose name ends like an ordinal":     {pod: "db-1-1", set: "db-1", claim: "data-db-1-1", want: []string{"other set"}},
		"a pod of no set":                           {pod: "db-0", claim: "data-db-0"},
		"a pod of another set":                      {pod: "db-0", set: "web", claim: "data-db-0"},
		"a pod whose ordinal is none":               {pod: "db-x", set: "db", claim: "data-db-x"},
		"a pod whose ordinal has a zero before":     {pod: "db-07", set: "db", claim: "data-db-07"},
		"a pod whose ordinal is negative":           {pod: "db--1", set: "db", claim: "data-db--1"},
		"a pod whose ordinal is too large":          {pod: "db-99999999999999999999", set: "db", claim: "data-db-99999999999999999999"},
		"the largest ordinal":                       {pod: "db-2147483647", set: "db", claim: "data-db-2147483647"},
		"a claim that is not by a template":         {pod: "db-0", set: "db", claim: "shared"},
		"a claim of another pod":                    {pod: "db-0", set: "db", claim: "data-db-1"},
		"a claim without a template":                {pod: "db-0", set: "db", claim: "-db-0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := slices.Collect(view.Siblings(Pod{Namespace: "app", Name: test.pod, StatefulSet: test.set}, PodClaim{Name: test.claim}))
			assert.Equal(t, test.want, got)
		})
	}
	for cluster := range view.Siblings(Pod{Namespace: "app", Name: "db-0", StatefulSet: "db"}, PodClaim{Name: "data-db-0"}) {
		assert.Equal(t, "1", cluster)
		break
	}
	assert.Empty(t, slices.Collect(view.Siblings(Pod{Namespace: "other", Name: "db-0", StatefulSet: "db"}, PodClaim{Name: "data-db-0"})),
		"of another namespace")
}
