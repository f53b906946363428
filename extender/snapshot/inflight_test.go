package snapshot

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

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
