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

	"github.com/lodestone-storage/lodestone/pkg/keys"
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

// flying is a snapshot with a clock, and with a node to which one volume of class "fast" can be
// attached.
type flying struct {
	*Snapshot
	claims *Claims
	now    time.Time
}

func newFlying() *flying {
	f := &flying{Snapshot: New(), now: start}
	f.StorageClasses().Set("fast", &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "disk"})
	f.Limits.Set("node", Limits{"disk": 1})
	f.claims = f.ClaimStore(func() time.Time { return f.now })
	return f
}

func (f *flying) full() bool {
	return !f.CanAttach("node", "disk", []string{"app/new"}, f.now)
}

// on and has are a claim for which a node was chosen, and one that has its volume.
func on(node string) *Claim {
	return &Claim{UID: "a", ClassName: "fast", SelectedNode: node}
}

func has(bound bool) *Claim {
	return &Claim{UID: "a", ClassName: "fast", VolumeName: "pv", Bound: bound}
}

func TestAClaimCountsOnItsNodeForALimitedTime(t *testing.T) {
	type step struct {
		after time.Duration
		set   *Claim
		// relist replaces the whole list by the claim.
		relist bool
		full   bool
	}
	const almost = time.Minute - time.Nanosecond
	volume := &Volume{Driver: "disk", ClaimUID: "a"}
	for name, steps := range map[string][]step{
		"while its volume is made, for a minute": {{set: on("node"), full: true}, {after: almost, full: true}, {after: 1}},
		"the same node, written again, begins no minute": {{set: on("node"), full: true}, {after: almost, set: on("node"), full: true},
			{after: 1}, {set: on("node")}},
		"… nor does a new list": {{set: on("node"), full: true},
			{after: almost, set: on("node"), relist: true, full: true}, {after: 1}, {set: on("node"), relist: true}},
		"the node was given up":   {{set: on("node"), full: true}, {set: on("")}},
		"another node was chosen": {{set: on("node"), full: true}, {set: on("other")}},
		"a claim of that name, made anew": {{set: on("node"), full: true},
			{after: almost, set: &Claim{UID: "b", ClassName: "fast", SelectedNode: "node"}, full: true}, {after: almost, full: true}},
		"its pod comes within seconds after the volume": {{set: on("node"), full: true},
			{after: 2 * time.Minute, set: has(false), full: true}, {after: time.Second, set: has(true), full: true}, {after: 4 * time.Second}},
		"the first list has it without volume": {{set: on("node"), relist: true, full: true}, {after: time.Minute}},
		"the first list has it bound":          {{set: has(true), relist: true}},
		"it is bound when it is first seen":    {{set: has(true)}, {set: has(true)}},
		"it became bound while the watch was interrupted": {{set: on("node"), full: true}, {set: has(true), relist: true, full: true},
			{after: 5 * time.Second}},
		"another claim of that name is bound when it comes": {{set: on("node"), full: true},
			{set: &Claim{UID: "b", ClassName: "fast", VolumeName: "pv"}}},
		"it was bound to a volume for which no node was chosen": {{set: on("")}, {set: has(true)}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFlying()
			f.Volumes.Set("pv", volume)
			for i, step := range steps {
				f.now = f.now.Add(step.after)
				switch {
				case step.relist:
					f.claims.Replace(map[string]*Claim{"app/a": step.set})
				case step.set != nil:
					f.claims.Set("app/a", step.set)
				}
				assert.Equal(t, step.full, f.full(), "step %d", i)
			}
		})
	}
}

func TestAClaimInFlightIsCountedOnceWithItsPod(t *testing.T) {
	f := newFlying()
	f.Limits.Set("node", Limits{"disk": 2})
	f.Volumes.Set("pv", &Volume{Driver: "disk", ClaimUID: "a"})
	f.claims.Set("app/a", on("node"))
	f.claims.Set("app/a", has(true))
	f.Assigned.Set("app/web", Use{Node: "node", Claims: []string{"app/a"}})
	assert.False(t, f.full())
	f.claims.Delete("app/a")
	assert.Equal(t, 0, f.InFlight.Len(), "the claim is gone")
}

func TestClaimsThatCountNoMoreAreDropped(t *testing.T) {
	f := newFlying()
	for i := range 100 {
		f.claims.Set(fmt.Sprintf("app/old-%d", i), &Claim{UID: fmt.Sprint(i), SelectedNode: "node"})
	}
	assert.Equal(t, 100, f.InFlight.Len())
	f.now = f.now.Add(time.Minute)
	f.claims.Set("app/a", on("other"))
	assert.Equal(t, 1, f.InFlight.Len())
	assert.Equal(t, 101, f.claims.Len())
}

// A backing claim has the volume of its virtual claim, and a claim with a selector
// gets none made.
func TestFromClaimKeepsTheNodeOfClaimsThatGetAVolumeMade(t *testing.T) {
	for name, test := range map[string]struct {
		labels   map[string]string
		selector *metav1.LabelSelector
		want     string
	}{
		"a claim":                 {want: "home-1"},
		"a backing claim":         {labels: map[string]string{keys.ClaimUID: "uid"}},
		"a claim with a selector": {selector: &metav1.LabelSelector{}},
	} {
		t.Run(name, func(t *testing.T) {
			claim, _ := FromClaim(&corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Labels: test.labels, Annotations: map[string]string{keys.SelectedNode: "home-1"}},
				Spec:       corev1.PersistentVolumeClaimSpec{Selector: test.selector},
			})
			assert.Equal(t, test.want, claim.SelectedNode)
		})
	}
}
