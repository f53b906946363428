package why

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func dying(s *Setting) { s.Namespace.DeletionTimestamp = &metav1.Time{Time: now.Add(-5 * time.Minute)} }

func TestWhatIsInANamespaceThatIsBeingDeletedIsOfferedNothing(t *testing.T) {
	moving := claim(boundIn("west"), func(c *Claim) {
		c.Claim.DeletionTimestamp = &metav1.Time{Time: now}
		c.Claim.Finalizers = []string{keys.MoveFinalizer, "kubernetes.io/pvc-protection", "example.com/x"}
	})
	for name, row := range map[string]struct {
		answer Answer
		want   string
	}{
		"a pod that waits": {
			answer: Pod{Pod: pod(), Claims: []Claim{claim(absent)}}.Of(setting(dying)),
			want: `pod "web-1" goes with namespace "shop", which is being deleted: nothing is made in it any more; kubectl lodestone why ` +
				`namespace/shop says what it waits for`,
		},
		"a claim that waits": {
			answer: claim().Of(setting(dying)),
			want: `claim "data" goes with namespace "shop", which is being deleted: nothing is made in it any more; kubectl lodestone why ` +
				`namespace/shop says what it waits for`,
		},
		"a claim that a move holds": {
			answer: moving.Of(setting(dying)),
			want: `claim "data" is being deleted and is held by a move of it, which ends first (kubectl lodestone move status), Kubernetes, until no ` +
				`pod uses it, finalizer example.com/x; its namespace "shop" is being deleted, too`,
		},
		"a claim that a pod uses": {
			answer: claim(boundIn("west"), func(c *Claim) {
				c.Claim.DeletionTimestamp, c.Pods = &metav1.Time{Time: now}, []corev1.Pod{*pod()}
			}).Of(setting(dying)),
			want: `claim "data" is being deleted and waits until no pod uses it: web-1; its namespace "shop" is being deleted, too`,
		},
		"a pod that runs": {
			answer: Pod{Pod: pod(on("home-1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })}.Of(setting(dying)),
			want:   `pod "web-1" runs on node "home-1"`,
		},
	} {
		assert.Equal(t, row.want, row.answer.Sentence, name)
	}
}

func TestWhyANamespaceStays(t *testing.T) {
	ending := func(n *Namespace) { n.Namespace.DeletionTimestamp = &metav1.Time{Time: now.Add(-5 * time.Minute)} }
	gone := func(o *metav1.ObjectMeta) { o.DeletionTimestamp = &metav1.Time{Time: now} }
	for name, row := range map[string]struct {
		changes []func(*Namespace)
		want    string
		waits   bool
	}{
		"it is there": {want: "namespace shop: open to west"},
		"it is there, for home alone": {changes: []func(*Namespace){func(n *Namespace) { n.Namespace.Labels = nil }},
			want: "namespace shop: open to no remote cluster (kubectl label namespace shop lodestone.dev/offload=enabled opens it)"},
		"it goes": {changes: []func(*Namespace){ending}, waits: true,
			want: `namespace "shop" is being deleted since 5m: Kubernetes removes what is in it, which takes a moment`},
		"a move and its claim keep it": {
			changes: []func(*Namespace){ending, func(n *Namespace) {
				n.Moves = []v1alpha1.VolumeMove{{ObjectMeta: metav1.ObjectMeta{Name: "data-x"},
					Status: v1alpha1.VolumeMoveStatus{Message: "the VolumeMove was deleted: cluster west does not answer"}}}
				c := claim(boundIn("west")).Claim
				gone(&c.ObjectMeta)
				c.Finalizers = []string{keys.MoveFinalizer}
				n.Claims = []corev1.PersistentVolumeClaim{*c, {ObjectMeta: metav1.ObjectMeta{Name: "not-yet-deleted"}}}
			}}, waits: true,
			want: `namespace "shop" is being deleted since 5m and waits for: VolumeMove data-x, which goes back or comes to its end: the VolumeMove ` +
				`was deleted: cluster west does not answer; claim "data" is being deleted and is held by a move of it, which ends first (kubectl ` +
				`lodestone move status)`,
		},
		"somebody else keeps it": {
			changes: []func(*Namespace){ending, func(n *Namespace) {
				n.Namespace.Status.Conditions = []corev1.NamespaceCondition{
					{Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionFalse, Message: "All resources successfully discovered"},
					{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue,
						Message: "Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances"}}
			}}, waits: true,
			want: `namespace "shop" is being deleted since 5m, and what is left in it is not Lodestone's: condition ` +
				`NamespaceFinalizersRemaining: Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances`,
		},
		"a pod keeps it": {
			changes: []func(*Namespace){ending, func(n *Namespace) {
				n.Pods = []corev1.Pod{*pod(on("west"), held, going)}
			}}, waits: true,
			want: `namespace "shop" is being deleted since 5m and waits for: pod "web-1" is being deleted and waits until its copy in cluster "west" ` +
				`has ended`,
		},
	} {
		s := setting()
		n := Namespace{Namespace: s.Namespace}
		for _, change := range row.changes {
			change(&n)
		}
		answer := n.Of(s)
		assert.Equal(t, row.want, answer.Sentence, name)
		assert.Equal(t, row.waits, answer.Waiting, name)
	}
}

func TestAVolumeThatWasTakenAwayIsExplained(t *testing.T) {
	lost := func(c *Claim) { c.Claim.Status.Phase, c.Volume = corev1.ClaimLost, nil }
	pending := func(c *Claim) { c.Claim.Status.Phase = corev1.ClaimPending }
	moving := func(c *Claim) { c.Claim.Labels = map[string]string{keys.Moving: keys.MovingNow} }
	for name, row := range map[string]struct {
		claim Claim
		want  string
	}{
		"by a move, for a moment": {claim(boundIn("west"), lost, moving), "has no volume for a moment, while it is moved"},
		"by a move, and the claim is Pending": {claim(boundIn("west"), lost, moving, pending),
			"has no volume for a moment, while it is moved"},
		"by somebody, and the claim is Lost": {claim(boundIn("west"), lost),
			"for somebody deleted its volume \"pvc-1\" and took its finalizers off; Lodestone has not deleted the data behind it"},
		"by somebody, while it is bound": {claim(boundIn("west"), func(c *Claim) { c.Volume.DeletionTimestamp = &metav1.Time{Time: now} }),
			"is bound, but somebody deleted its volume \"pvc-1\": pods go on with it and the data stays"},
		"that is not Lodestone's": {claim(boundIn("west"), lost, ofLocalPath), "restore the data from a backup, or delete the claim"},
	} {
		answer := row.claim.Of(setting())
		assert.Contains(t, answer.Sentence, row.want, name)
		assert.True(t, answer.Waiting, name)
	}
	assert.Contains(t, claim(func(c *Claim) {
		c.Pods, c.PodWaits = []corev1.Pod{*pod()}, `pod "web-1" fits no node: of 1 node, 1 is cordoned`
	}).Of(setting()).Sentence, `claim "data" waits until its pod has a node: pod "web-1" fits no node: of 1 node, 1 is cordoned`)
}

func TestNothingIsToldTwiceAndNothingOfTheSchedulersBoilerplate(t *testing.T) {
	const full = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for " +
		"scheduling."
	p := Pod{Pod: pod(unfit(full)), Events: []corev1.Event{event("FailedScheduling", full, time.Minute),
		event("FailedScheduling", full, 2*time.Minute)}}
	all := strings.Join(p.Of(setting()).Facts, "\n")
	assert.Equal(t, 1, strings.Count(all, "Insufficient cpu"), all)
	assert.NotContains(t, all, "reemption")

	const gated = "Scheduling is blocked due to non-empty scheduling gates"
	p = Pod{Pod: pod(unfit(gated), func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: keys.MovingGate}}
	}), Events: []corev1.Event{event("FailedScheduling", gated, time.Minute)}}
	answer := p.Of(setting())
	assert.NotContains(t, strings.Join(answer.Facts, "\n"), "blocked", "a gate that does what it is for is no fault")
	assert.Contains(t, answer.Sentence, "while the volume of a claim of it is moved")

	pulling := waitingFor("ImagePullBackOff", "no such image")
	p = Pod{Pod: pod(on("home-1"), pulling), Events: []corev1.Event{event("Failed", "no such image", time.Minute)}}
	all = p.Of(setting()).Sentence + strings.Join(p.Of(setting()).Facts, "\n")
	assert.Equal(t, 1, strings.Count(all, "no such image"), all)
}
