package snapshot

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestFromCSINode(t *testing.T) {
	node := &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: "disk", Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(25))}},
		{Name: "none", Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(0))}},
		{Name: "any"},
		{Name: "any-too", Allocatable: &storagev1.VolumeNodeResources{}},
	}}}
	limits, ok := FromCSINode(node)
	assert.True(t, ok)
	assert.Equal(t, Limits{"disk": 25, "none": 0}, limits)
	_, ok = FromCSINode(&storagev1.CSINode{})
	assert.False(t, ok, "a node without limits has no entry")
}

func TestFromPod(t *testing.T) {
	claim := func(name string) corev1.Volume {
		return corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "web"},
		Spec: corev1.PodSpec{NodeName: "home-1", Volumes: []corev1.Volume{
			claim("data"), {Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			{Name: "empty"}, claim("data"),
		}},
	}
	use, ok := FromPod(pod)
	assert.True(t, ok)
	assert.Equal(t, Use{Node: "home-1", Claims: []string{"app/data", "app/web-scratch"}}, use, "each claim once")

	for what, change := range map[string]func(*corev1.Pod){
		"a pod that waits for a node": func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"a pod that ended":            func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"a pod that failed":           func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"a pod without claims":        func(p *corev1.Pod) { p.Spec.Volumes = p.Spec.Volumes[2:3] },
	} {
		other := pod.DeepCopy()
		change(other)
		_, ok = FromPod(other)
		assert.False(t, ok, what)
	}

	pod.Spec.Volumes = append(pod.Spec.Volumes, claim(strings.Repeat("x", 1<<20)))
	use, _ = FromPod(pod)
	assert.Equal(t, []string{"app/data", "app/web-scratch"}, use.Claims, "there is no claim of such a name")
	for i := range 2000 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, claim(fmt.Sprint(i)))
	}
	use, _ = FromPod(pod)
	assert.Less(t, len(use.Claims), 1000, "nobody can make an entry large")
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// attaches reports whether one more volume of a driver can be attached to a node with this limit.
func attaches(view *Snapshot, limit int) bool {
	view.Limits.Set("node", Limits{"disk": limit})
	return view.CanAttach("node", "disk", []string{"app/new"}, start)
}

func TestUsageOfOneNodeIsBounded(t *testing.T) {
	view := New()
	const many = 10_000
	uses := map[string]Use{}
	for i := range many {
		key := fmt.Sprintf("app/claim-%d", i)
		uses["app/pod-"+fmt.Sprint(i)] = Use{Node: "node", Claims: []string{key}}
	}
	view.Assigned.Replace(uses)
	kept := view.Assigned.Len()
	assert.Less(t, kept, many, "whoever makes pods can name a node in all of them")
	assert.Greater(t, kept, 500, "no node has so many attached")

	view.Assigned.Set("app/one-more", Use{Node: "node", Claims: []string{"app/data"}})
	assert.Equal(t, kept, view.Assigned.Len(), "there is no room for it")
	view.Assigned.Set("app/elsewhere", Use{Node: "other", Claims: []string{"app/data"}})
	assert.Equal(t, kept+1, view.Assigned.Len(), "another node has room")
	for key := range uses {
		view.Assigned.Delete(key)
	}
	view.Assigned.Delete("app/never-there")
	assert.Equal(t, 1, view.Assigned.Len())
}

func TestUsageFollowsItsUsers(t *testing.T) {
	view := New()
	for _, name := range []string{"a", "b"} {
		view.Claims.Set("app/"+name, &Claim{UID: name, VolumeName: "pv-" + name})
		view.Volumes.Set("pv-"+name, &Volume{Driver: "disk", ClaimUID: name})
	}
	use := func(node string, claims ...string) Use { return Use{Node: node, Claims: claims} }
	assert.True(t, attaches(view, 1), "an empty node")
	view.Assigned.Set("app/one", use("node", "app/a"))
	assert.False(t, attaches(view, 1))
	view.Assigned.Set("app/one", use("node", "app/a", "app/b"))
	assert.False(t, attaches(view, 2), "the same pod, made anew with more claims")
	view.Assigned.Set("app/one", use("other", "app/a", "app/b"))
	assert.True(t, attaches(view, 1), "made anew on another node")
	view.Assigned.Replace(map[string]Use{"app/two": use("node", "app/b")})
	assert.Equal(t, 1, view.Assigned.Len())
	assert.False(t, attaches(view, 1), "what a new list says counts")
	view.Assigned.Replace(nil)
	assert.True(t, attaches(view, 1))
}

func use(node string, claims int) Use {
	made := Use{Node: node}
	for i := range claims {
		made.Claims = append(made.Claims, fmt.Sprintf("app/claim-%d", i))
	}
	return made
}

// The maximum saves looking up the volumes of each node, so it must be no higher than what nodes
// really have, and never lower.
func TestPeakFollowsTheNodesThatHaveALimit(t *testing.T) {
	s := New()
	s.Limits.Set("node", Limits{"disk": 25})
	s.InFlight.Set("app/invented", use("invented", 30))
	assert.Equal(t, 0, s.InFlight.atMost(), "whoever makes claims can name a node that does not exist")
	s.InFlight.Set("app/a", use("node", 3))
	assert.Equal(t, 3, s.InFlight.atMost())
	s.Limits.Set("invented", Limits{"disk": 25})
	assert.Equal(t, 30, s.InFlight.atMost(), "its limit becomes known")
	s.InFlight.Set("app/invented", use("invented", 2))
	assert.Equal(t, 3, s.InFlight.atMost(), "the node that had most has less")
	s.InFlight.Delete("app/a")
	assert.Equal(t, 2, s.InFlight.atMost())
	s.Limits.Delete("invented")
	assert.Equal(t, 0, s.InFlight.atMost())

	s.Limits.Replace(map[string]Limits{"invented": {"disk": 25}, "other": {"disk": 25}})
	assert.Equal(t, 2, s.InFlight.atMost())
	s.InFlight.Replace(map[string]Use{"app/a": use("node", 9), "app/b": use("other", 4)})
	assert.Equal(t, 4, s.InFlight.atMost(), "node has no limit any more")
	s.Limits.Replace(map[string]Limits{"node": {"disk": 25}})
	assert.Equal(t, 9, s.InFlight.atMost())
	s.InFlight.Replace(nil)
	assert.Equal(t, 0, s.InFlight.atMost())
	assert.Equal(t, 0, s.Assigned.atMost())
}
