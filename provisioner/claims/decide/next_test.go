package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// row is an observation and the expected step.
type row struct {
	given   []change
	verb    string
	cluster string // where the request goes
	tell    string // reason of the event, empty for none
	refuse  string // "cluster/node reason" of the refusal
	after   bool   // it is decided again without an event
}

func check(t *testing.T, rows map[string]row) {
	t.Helper()
	for name, test := range rows {
		t.Run(name, func(t *testing.T) {
			step := decide.Next(observe(test.given...))
			assert.Equal(t, test.verb, step.Verb())
			assert.Equal(t, test.cluster, step.Cluster())
			tell, refused := "", ""
			if step.Tell != nil {
				tell = step.Tell.Reason
				assert.NotEmpty(t, step.Tell.Text)
			}
			assert.Equal(t, test.tell, tell, "message %+v", step.Tell)
			if refusalOf(step) != nil {
				refused = refusalOf(step).Cluster + "/" + refusalOf(step).Node + " " + refusalOf(step).Reason
				assert.NotEmpty(t, refusalOf(step).Message)
			}
			assert.Equal(t, test.refuse, refused)
			lasts := step.Verb() == "Idle" && step.Trouble != "" && step.Tell != nil
			assert.Equal(t, test.after || lasts, step.After > 0, "after %v", step.After)
		})
	}
}

func TestNextBeforeARoute(t *testing.T) {
	const idle = "Idle"
	check(t, map[string]row{
		"a volume that is being created is left alone": {given: []change{on("node-1"), have(keys.Home), handedOut}, verb: idle},
		"nothing is left of the claim":                 {given: []change{noClaim}, verb: idle},
		"a claim of no class waits": {given: []change{on("node-1"), func(o *steps.Observation) { o.Class = nil }},
			verb: idle},
		"a class that is gone may come back: what is made stays": {given: []change{on("node-1"), have(keys.Home), func(o *steps.Observation) {
			o.Class = nil
		}}, verb: idle},
		"a claim of a real class is not ours": {given: []change{on("node-1"), func(o *steps.Observation) {
			o.Class.Provisioner = "disk.csi.dev"
		}}, verb: idle},
		"an invalid class is told": {given: []change{func(o *steps.Observation) {
			o.Class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
		}}, verb: idle, tell: "InvalidClaim"},
		"an unknown parameter is told": {given: []change{on("node-1"), parameter("tier", "gold")}, verb: idle, tell: "InvalidClaim"},
		"an invalid claim is told": {given: []change{on("node-1"), func(o *steps.Observation) {
			o.Claim.Spec.Selector = &metav1.LabelSelector{}
		}}, verb: idle, tell: "InvalidClaim"},
		"a class not listed is told":   {given: []change{on("node-1"), annotated(keys.Class, "gold")}, verb: idle, tell: "InvalidClaim"},
		"a claim without a node waits": {verb: idle},
		"a selected node that is gone is taken off": {
			given: []change{on("node-1"), func(o *steps.Observation) { o.Node = nil }}, verb: "Reschedule", cluster: keys.Home, tell: "NodeGone"},
		"… after the twin made for it": {
			given: []change{on("node-1"), have(keys.Home), func(o *steps.Observation) { o.Node = nil }}, verb: "Remove", cluster: keys.Home},
		"a selected node without a name is taken off": {
			given: []change{annotated(keys.SelectedNode, "")}, verb: "Reschedule", cluster: keys.Home, tell: "NodeGone"},
		"a refused cluster is noted": {
			given: []change{on("west-1"), parameter(keys.Clusters, "home")}, verb: "Reschedule", cluster: keys.Home, tell: "ClusterNotAllowed",
			refuse: "west/ ClusterNotAllowed"},
		"a node whose label means nothing is refused alone": {
			given: []change{on("node-1"), func(o *steps.Observation) { o.Node.Labels = map[string]string{keys.Cluster: keys.Home} }},
			verb:  "Reschedule", cluster: keys.Home, tell: "InvalidNodeLabel", refuse: "home/node-1 InvalidNodeLabel"},
		"a label of an unknown cluster is refused": {
			given: []change{on("west-1"), unknown("west")}, verb: "Reschedule", cluster: keys.Home, tell: "UnknownCluster",
			refuse: "west/ UnknownCluster"},
		"a cluster without the class is refused": {
			given: []change{on("west-1"), parameter(keys.RemoteClass, "gold")}, verb: "Reschedule", cluster: keys.Home, tell: "NoRealClass",
			refuse: "west/ NoRealClass"},
		"a namespace that is not offloaded is refused": {
			given: []change{on("west-1"), func(o *steps.Observation) { o.Namespace.Labels = nil }}, verb: "Reschedule", cluster: keys.Home,
			tell: "NotOffloaded", refuse: "west/ NotOffloaded"},
	})
}

func TestNextForAClaimWithoutANode(t *testing.T) {
	check(t, map[string]row{
		"what an earlier choice left at home goes": {given: []change{have(keys.Home)}, verb: "Remove", cluster: keys.Home},
		"what an earlier choice left in west goes": {given: []change{have("west")}, verb: "Remove", cluster: "west"},
		"a published one stays":                    {given: []change{have("west", published)}, verb: "Idle"},
		"one in a cluster that is away waits":      {given: []change{have("west"), unreachable("west", 0)}, verb: "Idle"},
		"a change of a cluster wakes its pods": {given: []change{func(o *steps.Observation) { o.Changed = "cluster west" }}, verb: "Wake",
			cluster: keys.Home},
		"a refusal that has ended is dropped": {given: []change{annotated(keys.Refused, encode(refusedBy("west", "", -1)))}, verb: "Wake",
			cluster: keys.Home},
		"a refusal that ends right now is dropped": {given: []change{annotated(keys.Refused, encode(refusedBy("west", "", 0)))}, verb: "Wake",
			cluster: keys.Home},
		"a refusal that holds is waited for": {given: []change{annotated(keys.Refused, encode(refusedBy("west", "", time.Minute)))}, verb: "Idle",
			after: true},
		"what nobody can read is no refusal": {given: []change{annotated(keys.Refused, "garbage")}, verb: "Idle"},
	})
	step := decide.Next(observe(annotated(keys.Refused, encode(refusedBy("west", "", time.Minute), refusedBy("east", "", time.Second)))))
	assert.Equal(t, time.Second, step.After, "the first of several to end")
}

func TestNextForAClaimThatIsGoneOrBoundElsewhere(t *testing.T) {
	check(t, map[string]row{
		"a deleted claim's twin goes": {given: []change{on("node-1"), deletedClaim, have(keys.Home)}, verb: "Remove",
			cluster: keys.Home},
		"a deleted claim's shadow goes": {given: []change{on("west-1"), deletedClaim, have("west")}, verb: "Remove",
			cluster: "west"},
		"a claim that is gone: its shadow goes": {given: []change{noClaim, have("west")}, verb: "Remove", cluster: "west"},
		"a claim that is gone: both of two go, one by one": {given: []change{noClaim, have("west"), have(keys.Home)}, verb: "Remove",
			cluster: "west"},
		"a claim that is gone: a published one stays": {given: []change{noClaim, have("west", published)}, verb: "Idle"},
		"a published one does not hold up another": {given: []change{noClaim, have("west", published), have(keys.Home)}, verb: "Remove",
			cluster: keys.Home},
		"a claim that is gone: a cluster that is away is waited for": {
			given: []change{noClaim, have("west"), unreachable("west", 0)}, verb: "Idle", tell: "ClusterNotUsable", after: true},
		"a deleted claim routed to a cluster that is away": {
			given: []change{deletedClaim, annotated(keys.Routed, "west"), unreachable("west", 0)}, verb: "Idle", tell: "ClusterNotUsable",
			after: true},
		"a deleted claim whose request was never sent": {
			given: []change{deletedClaim, annotated(keys.Routed, "west"), unreachable("west", 0), unsent}, verb: "Idle"},
		"a claim bound to a volume of somebody else": {given: []change{boundTo("other"), have(keys.Home)}, verb: "Remove", cluster: keys.Home},
		"… keeps one that was published":             {given: []change{boundTo("other"), have(keys.Home, published)}, verb: "Idle"},
		"a claim bound to nothing of ours":           {given: []change{boundTo("other"), on("node-1")}, verb: "Idle"},
	})
}

func TestNextWithARoute(t *testing.T) {
	check(t, map[string]row{
		"at home the twin is made at once":      {given: []change{on("node-1")}, verb: "Create", cluster: keys.Home},
		"for west the choice is recorded first": {given: []change{on("west-1")}, verb: "Record", cluster: keys.Home},
		"… even after a record of another cluster": {given: []change{on("west-1"), annotated(keys.Routed, "east")}, verb: "Record",
			cluster: keys.Home},
		"… once kube-controller-manager has written its part": {given: []change{on("west-1"), without(keys.StorageProvisioner)}, verb: "Idle"},
		"then the shadow is made": {given: []change{on("west-1"), annotated(keys.Routed, "west")}, verb: "Create",
			cluster: "west"},
		"a cluster that is not seen yet may be asked": {given: []change{on("west-1"), annotated(keys.Routed, "west"), unseen("west")},
			verb: "Create", cluster: "west"},

		"what is left in another cluster goes first": {given: []change{on("node-1"), have("west")}, verb: "Remove",
			cluster: "west"},
		"… and at home before west is used": {given: []change{on("west-1"), have(keys.Home)}, verb: "Remove",
			cluster: keys.Home},
		"… even if the right one is ready": {given: []change{on("node-1"), have(keys.Home, pvcBound),
			have("west")}, verb: "Remove", cluster: "west"},
		"a cluster that is away may hold one": {given: []change{on("node-1"), annotated(keys.Routed, "west"),
			unreachable("west", time.Hour)}, verb: "Idle", tell: "ClusterNotUsable", after: true},
		"a cluster that is not seen yet may hold one": {given: []change{on("node-1"), annotated(keys.Routed, "west"),
			unseen("west")}, verb: "Idle", tell: "ClusterNotUsable", after: true},
		"… unless it was never asked": {given: []change{on("node-1"), annotated(keys.Routed, "west"),
			unseen("west"), unsent}, verb: "Create", cluster: keys.Home},
		"a cluster that nobody knows holds none": {given: []change{on("node-1"), annotated(keys.Routed, "gone"),
			unknown("gone")}, verb: "Create", cluster: keys.Home},
		"a cluster that is seen and holds none": {given: []change{on("node-1"), annotated(keys.Routed, "west")},
			verb: "Create", cluster: keys.Home},
		"a published one elsewhere is the claim's data": {given: []change{on("node-1"), have("west", published)}, verb: "Idle",
			tell: "BackingHasData"},
		"… which stops the way to west as well": {given: []change{on("west-1"), have(keys.Home, published)},
			verb: "Idle", tell: "BackingHasData"},
		"a backing claim of a class that was corrected since is made anew": {given: []change{on("west-1"), parameter(keys.RemoteClass, "now"),
			have("west", of("wait"))}, verb: "Remove", cluster: "west"},
		"… but not one that was published": {given: []change{on("west-1"), parameter(keys.RemoteClass, "now"),
			have("west", of("wait"), published, pvcBound)}, verb: "Publish", cluster: keys.Home},
		"one of a default class that is gone is made anew": {given: []change{on("west-1"), parameter(keys.RemoteClass, ""),
			have("west", of("gone"))}, verb: "Remove", cluster: "west"},
		"… but not if it has its volume": {given: []change{on("west-1"), parameter(keys.RemoteClass, ""),
			have("west", pvcBound, of("gone"))}, verb: "Publish", cluster: keys.Home},
		"… nor one of a default class that is another now": {given: []change{on("west-1"), have("west", of("now"))}, verb: "Publish",
			cluster: keys.Home},
		"a twin for another node is made anew": {given: []change{on("node-2"), have(keys.Home)}, verb: "Remove", cluster: keys.Home},
		"a twin that somebody deletes is let go": {given: []change{on("node-1"), have(keys.Home, terminating)}, verb: "Remove",
			cluster: keys.Home},
		"a twin that lost its volume is made anew":   {given: []change{on("node-1"), have(keys.Home, lost)}, verb: "Remove", cluster: keys.Home},
		"a shadow that somebody deletes is let go":   {given: []change{on("west-1"), have("west", terminating)}, verb: "Remove", cluster: "west"},
		"a shadow that lost its volume is made anew": {given: []change{on("west-1"), have("west", lost)}, verb: "Remove", cluster: "west"},
		"a twin of a class that binds at once fits any node": {
			given: []change{on("node-2"), parameter(keys.LocalClass, "now"), have(keys.Home, dropped, pvcBound)}, verb: "Publish",
			cluster: keys.Home},

		"a pending twin is waited for": {given: []change{on("node-1"), have(keys.Home)}, verb: "Idle", after: true},
		"… and told of when it takes long": {given: []change{on("node-1"), have(keys.Home, old), said(keys.Home, "", "")},
			verb: "Idle", after: true, tell: "WaitingForBacking"},
		"a bound twin whose volume is not seen yet": {given: []change{on("node-1"), have(keys.Home, volumeUnseen)}, verb: "Idle",
			after: true},
		"a pending shadow that binds at once": {given: []change{on("west-1"), parameter(keys.RemoteClass, "now"),
			have("west", of("now")), lately}, verb: "Idle", after: true},
		"a node that the real provisioner found full": {given: []change{on("node-1"), have(keys.Home, dropped)}, verb: "Remove",
			cluster: keys.Home, tell: "NoCapacity", refuse: "home/node-1 NoCapacity"},
		"… once kube-controller-manager has written it": {given: []change{on("node-1"), have(keys.Home, dropped),
			without(keys.StorageProvisioner)}, verb: "Idle"},
		"… is not refused for a twin that holds data": {given: []change{on("node-1"), have(keys.Home, dropped, published)}, verb: "Idle",
			tell: "BackingHasData"},
		"a pending twin that binds at once has no node": {given: []change{on("node-1"), parameter(keys.LocalClass, "now"),
			have(keys.Home, dropped)}, verb: "Idle", after: true},

		"a bound twin is published": {given: []change{on("node-1"), have(keys.Home, pvcBound)}, verb: "Publish",
			cluster: keys.Home},
		"a bound shadow is published": {given: []change{on("west-1"), have("west", pvcBound)}, verb: "Publish",
			cluster: keys.Home},
		"a shadow that waits for a pod is published": {given: []change{on("west-1"), have("west")}, verb: "Publish", cluster: keys.Home},
		"with Retain it is marked before": {given: []change{on("west-1"), retain, have("west", pvcBound)}, verb: "Mark",
			cluster: "west"},
		"… and published then": {given: []change{on("west-1"), retain, have("west", pvcBound, published)}, verb: "Publish",
			cluster: keys.Home},
		"… but not before it is ready": {given: []change{on("node-1"), retain, have(keys.Home)}, verb: "Idle", after: true},
	})
}

func TestNextWithSiblings(t *testing.T) {
	bound := have("west", pvcBound)
	check(t, map[string]row{
		"a ready sibling holds nothing up": {given: []change{on("west-1"), bound, sibling(true)}, verb: "Publish",
			cluster: keys.Home},
		"one that is not ready is waited for": {given: []change{on("west-1"), bound, sibling(true), sibling(false)}, verb: "Idle",
			after: true},
		"… and told of when it takes long": {given: []change{on("west-1"), have("west", pvcBound, old), sibling(false)},
			verb: "Idle", after: true, tell: "WaitingForSibling"},
		"it does not hold up the creation": {given: []change{on("node-1"), sibling(false)}, verb: "Create", cluster: keys.Home},
		"with Retain nothing is marked before it is ready": {given: []change{on("west-1"), retain, bound, sibling(false)}, verb: "Idle",
			after: true},
		"where it was refused this one cannot stay": {given: []change{on("west-1"), bound, sibling(false, refusedBy("west", "", time.Minute))},
			verb: "Remove", cluster: "west"},
		"… and is rescheduled with it": {given: []change{on("west-1"), sibling(false, refusedBy("west", "", time.Minute))},
			verb: "Reschedule", cluster: keys.Home, tell: "SiblingRefused"},
		"a refusal of this very node counts": {given: []change{on("node-1"), sibling(false, refusedBy(keys.Home, "node-1", time.Minute))},
			verb: "Reschedule", cluster: keys.Home, tell: "SiblingRefused"},
		"a refusal of another node does not": {given: []change{on("node-1"), sibling(false, refusedBy(keys.Home, "node-2", time.Minute))},
			verb: "Create", cluster: keys.Home},
		"a refusal that has ended does not": {given: []change{on("node-1"), sibling(false, refusedBy(keys.Home, "", 0))}, verb: "Create",
			cluster: keys.Home},
		"a refusal of another cluster does not": {given: []change{on("node-1"), sibling(false, refusedBy("west", "", time.Minute))},
			verb: "Create", cluster: keys.Home},
	})
}

func TestNextForAClusterThatCannotBeUsed(t *testing.T) {
	check(t, map[string]row{
		"nothing was asked of it: the claim waits a while": {
			given: []change{on("west-1"), unreachable("west", time.Second)}, verb: "Idle", tell: "ClusterNotUsable", after: true},
		"… and then goes elsewhere": {
			given: []change{on("west-1"), unreachable("west", decide.Patience)}, verb: "Reschedule", cluster: keys.Home, tell: "ClusterNotUsable",
			refuse: "west/ ClusterNotUsable"},
		"what it was asked for may exist: the claim waits as long as it takes": {
			given: []change{on("west-1"), annotated(keys.Routed, "west"), unreachable("west", time.Hour)}, verb: "Idle", tell: "ClusterNotUsable",
			after: true},
		"it was recorded but never asked: the claim goes elsewhere": {
			given: []change{on("west-1"), annotated(keys.Routed, "west"), unreachable("west", time.Hour), unsent},
			verb:  "Reschedule", cluster: keys.Home, tell: "ClusterNotUsable", refuse: "west/ ClusterNotUsable"},
		"a shadow there was seen: the claim waits": {
			given: []change{on("west-1"), have("west"), unreachable("west", time.Hour)}, verb: "Idle", tell: "ClusterNotUsable", after: true},
		"a twin of an earlier choice goes before the claim does": {
			given: []change{on("west-1"), have(keys.Home), unreachable("west", time.Hour)}, verb: "Remove", cluster: keys.Home},
		"an unreachable cluster that shows no classes is not a cluster without": {
			given: []change{on("west-1"), unreachable("west", time.Second), cluster("west", func(c *steps.Cluster) { c.Offered = nil })},
			verb:  "Idle", tell: "ClusterNotUsable", after: true},
		"claims for home do not care": {given: []change{on("node-1"), unreachable("west", time.Hour)}, verb: "Create", cluster: keys.Home},
	})
	step := decide.Next(observe(on("west-1"), unreachable("west", time.Second)))
	require.Equal(t, decide.Patience-time.Second+time.Millisecond, step.After)
	again := observe(on("west-1"), unreachable("west", time.Second+step.After))
	assert.Equal(t, "Reschedule", decide.Next(again).Verb(), "when it is looked at again patience has ended")
}

func TestAClaimThatAnImportServesIsLeftAlone(t *testing.T) {
	importing := annotated(keys.Import, "home/real/r1")
	check(t, map[string]row{
		"with a node": {given: []change{on("west-1"), importing, func(o *steps.Observation) {
			o.Claim.CreationTimestamp = metav1.NewTime(now)
		}}, verb: "Idle", after: true},
		"… and told of after a while": {given: []change{on("west-1"), importing}, verb: "Idle", after: true, tell: "WaitingForImport"},
		"its backing claim stays as it is": {given: []change{on("west-1"), importing, have("west", pvcBound)}, verb: "Idle", after: true,
			tell: "WaitingForImport"},
		"deleted, what was made for it goes": {given: []change{importing, deletedClaim, have("west")}, verb: "Remove", cluster: "west"},
		"… but not what holds data": {given: []change{importing, deletedClaim, have(keys.Home, pvcBound, published)}, verb: "Idle",
			tell: "BackingHasData"},
	})
}

func mapped(m steps.Mapped) change {
	return cluster("west", func(c *steps.Cluster) { m.Asked = true; c.Mapped = m })
}

func readEventsWhenDue(since time.Duration) change {
	return mapped(steps.Mapped{Since: now.Add(-since)})
}

func TestARefusalForWantOfANamespaceEndsWithIt(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		given  bool
		want   bool
	}{
		"it was refused and is given now":  {reason: "NamespaceRefused", given: true, want: true},
		"it was not made and is given now": {reason: "NamespaceNotMade", given: true, want: true},
		"it is refused still":              {reason: "NamespaceRefused"},
		"the refusal has another ground":   {reason: "QuotaExceeded", given: true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, decide.Outlived(observe(mapped(steps.Mapped{Given: test.given})),
				locality.Refusal{Cluster: "west", Reason: test.reason}))
		})
	}
}

func TestNextForANamespaceThatIsMadeOnRequest(t *testing.T) {
	no := steps.Mapped{Reason: "NotAllowed", Message: "only names that match shop-* are given"}
	check(t, map[string]row{
		"it is given":                 {given: []change{on("west-1"), mapped(steps.Mapped{Given: true})}, verb: "Record", cluster: keys.Home},
		"it was just asked for: wait": {given: []change{on("west-1"), readEventsWhenDue(0)}, verb: "Idle", after: true},
		"it takes a while: say so": {given: []change{on("west-1"), readEventsWhenDue(5 * time.Second)}, verb: "Idle", after: true,
			tell: "WaitingForNamespace"},
		"nobody answers: go elsewhere": {given: []change{on("west-1"), readEventsWhenDue(decide.Patience)}, verb: "Reschedule",
			cluster: keys.Home, tell: "NamespaceNotMade", refuse: "west/ NamespaceNotMade"},
		"it takes too long: go elsewhere, with its word": {given: []change{on("west-1"),
			mapped(steps.Mapped{Message: "it goes", Since: now.Add(-decide.Patience)})},
			verb: "Reschedule", cluster: keys.Home, tell: "NamespaceNotMade", refuse: "west/ NamespaceNotMade"},
		"it is refused: go elsewhere": {given: []change{on("west-1"), mapped(no)}, verb: "Reschedule", cluster: keys.Home,
			tell: "NamespaceRefused", refuse: "west/ NamespaceRefused"},
		"refused, but a request may be under way": {given: []change{on("west-1"), mapped(no), annotated(keys.Routed, "west"), unseen("west")},
			verb: "Idle", after: true, tell: "ClusterNotUsable"},
		"what is made already needs no request": {given: []change{on("west-1"), mapped(no), have("west")}, verb: "Publish", cluster: keys.Home},
		"claims for home do not care":           {given: []change{on("node-1"), mapped(no)}, verb: "Create", cluster: keys.Home},
	})
	refused := decide.Next(observe(on("west-1"), mapped(no)))
	assert.Contains(t, refused.Tell.Text, "only names that match shop-* are given", "the user reads the sentence of the other cluster")
	waiting := decide.Next(observe(on("west-1"), readEventsWhenDue(time.Second)))
	assert.Equal(t, "Idle", waiting.Verb())
	again := observe(on("west-1"), readEventsWhenDue(time.Second+waiting.After))
	assert.NotNil(t, decide.Next(again).Tell, "when it is looked at again the user is told")
}

func TestWhichVolumeATwinWillBeBoundTo(t *testing.T) {
	claim := func(alter func(*corev1.PersistentVolumeClaim)) func(*steps.Backing) {
		return func(b *steps.Backing) { alter(b.Claim) }
	}
	phase := func(now corev1.PersistentVolumePhase) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Status.Phase = now }
	}
	mode := func(is corev1.PersistentVolumeMode) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = &is }
	}
	for name, test := range map[string]struct {
		volume func(*corev1.PersistentVolume)
		twin   func(*steps.Backing)
		want   bool
	}{
		"the one that was made for it":         {want: true},
		"… and is Available for a moment":      {volume: phase(corev1.VolumeAvailable), want: true},
		"… and is Bound already":               {volume: phase(corev1.VolumeBound), want: true},
		"… and is larger":                      {volume: func(v *corev1.PersistentVolume) { v.Spec.Capacity = storage("2Gi") }, want: true},
		"… and says that it has a file system": {volume: mode(corev1.PersistentVolumeFilesystem), want: true},
		"… and which it names":                 {twin: func(b *steps.Backing) { b.Volume, b.Made = b.Made, nil }, want: true},
		"none is there":                        {twin: func(b *steps.Backing) { b.Made = nil }},
		"not one that names nothing":           {volume: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }},
		"not one that names its name alone":    {volume: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" }},
		"not one that names an earlier twin":   {volume: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "earlier" }},
		"not one that names another name":      {volume: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Name = "other" }},
		"not one that names another namespace": {volume: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Namespace = "other" }},
		"not one that somebody made by hand":   {volume: func(v *corev1.PersistentVolume) { v.Annotations = nil }},
		"not one of another provisioner": {volume: func(v *corev1.PersistentVolume) {
			v.Annotations["pv.kubernetes.io/provisioned-by"] = "other"
		}},
		"not one of another class":              {volume: func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "now" }},
		"not one that is smaller":               {volume: func(v *corev1.PersistentVolume) { v.Spec.Capacity = storage("1023Mi") }},
		"not one that says no size":             {volume: func(v *corev1.PersistentVolume) { v.Spec.Capacity = nil }},
		"not one without a mode that is needed": {volume: func(v *corev1.PersistentVolume) { v.Spec.AccessModes = v.Spec.AccessModes[1:] }},
		"not one without a file system":         {volume: mode(corev1.PersistentVolumeBlock)},
		"not one of other attributes": {volume: func(v *corev1.PersistentVolume) {
			v.Spec.VolumeAttributesClassName = ptr.To("gold")
		}},
		"not one without attributes": {twin: having("gold")},
		"not one that is being deleted": {volume: func(v *corev1.PersistentVolume) {
			v.DeletionTimestamp = ptr.To(metav1.NewTime(now))
		}},
		"not one that is released":               {volume: phase(corev1.VolumeReleased)},
		"not one that has failed":                {volume: phase(corev1.VolumeFailed)},
		"not for a twin that is being deleted":   {twin: terminating},
		"not for a twin of another class":        {twin: of("now")},
		"not for a twin that is a copy":          {twin: fromSource},
		"not for a twin that was published once": {twin: published},
		"not for a twin that lost its volume":    {twin: claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })},
	} {
		t.Run(name, func(t *testing.T) {
			alter := []func(*steps.Backing){promised()}
			if test.volume != nil {
				alter = []func(*steps.Backing){promised(test.volume)}
			}
			if test.twin != nil {
				alter = append(alter, test.twin)
			}
			o := observe(have(keys.Home, alter...))
			assert.Equal(t, test.want, decide.Ready(o.Backings[0], routeTo(keys.Home, true)))
			assert.False(t, decide.Ready(o.Backings[0], routeTo(keys.Home, false)), "a class that binds at once may give it any free volume")
		})
	}
}

func TestNextForATwinThatIsNotBoundYet(t *testing.T) {
	made := []change{on("node-1"), driven(keys.Home, driver), have(keys.Home, promised())}
	given := func(more ...change) []change { return append(append([]change{}, made...), more...) }
	check(t, map[string]row{
		"it is published as soon as its volume is made":    {given: given(), verb: "Publish", cluster: keys.Home},
		"… but a kept volume is not":                       {given: given(retain), verb: "Idle", after: true},
		"… and neither is one of a class that binds early": {given: given(parameter(keys.LocalClass, "now")), verb: "Remove", cluster: keys.Home},
		"… nor while a claim of the same pod waits":        {given: given(sibling(false)), verb: "Idle", after: true},
		"… and with a claim of the same pod that does not": {given: given(sibling(true)), verb: "Publish", cluster: keys.Home},
		"… nor one for another node":                       {given: given(on("node-2")), verb: "Remove", cluster: keys.Home},
		"the selected node that it lost does not matter": {
			given: []change{on("node-1"), driven(keys.Home, driver), have(keys.Home, promised(), dropped)}, verb: "Publish", cluster: keys.Home},
		"a kept volume is marked once it is bound": {
			given: []change{on("node-1"), have(keys.Home, pvcBound, of("wait")), retain}, verb: "Mark", cluster: keys.Home},
	})
	step := decide.Next(observe(given()...))
	require.NotNil(t, backingOf(step).Volume)
	assert.Equal(t, "pvc-b-home", backingOf(step).Volume.Name, "the virtual volume is made of it")
}

// onTime is a virtual volume that was made before its twin was bound.
func onTime(v *corev1.PersistentVolume) { v.Annotations[keys.BackingVolume] = "pvc-b-home" }

// boundAs binds a twin to a volume.
func boundAs(name string) func(*steps.Backing) {
	return func(b *steps.Backing) {
		pvcBound(b)
		b.Claim.Spec.VolumeName, b.Volume.Name, b.Made = name, name, nil
	}
}

func TestNextForAVolumeWhoseTwinIsNotBoundYet(t *testing.T) {
	const idle = "Idle"
	bound, made := boundTo("pvc-u1"), volume(keys.Home, onTime)
	promise, other := have(keys.Home, promised()), have(keys.Home, boundAs("other"))
	locked := func(o *steps.Observation) {
		o.Claim.Labels = map[string]string{keys.Moving: keys.MovingNow}
		o.Claim.Annotations[keys.Move] = keys.NoMove
	}
	check(t, map[string]row{
		"it is not marked": {given: []change{bound, volume(keys.Home, onTime, madeBefore(0)), promise}, verb: idle, after: true},
		"… even if its claim is not bound yet": {given: []change{volume(keys.Home, onTime, madeBefore(0)), promise}, verb: idle,
			after: true},
		"… until it is bound": {given: []change{bound, made, have(keys.Home, promised(), boundAs("pvc-b-home"))}, verb: "Mark",
			cluster: keys.Home},
		"… whether its volume is seen or not": {
			given: []change{bound, made, have(keys.Home, boundAs("pvc-b-home"), volumeUnseen)}, verb: "Mark", cluster: keys.Home},
		"what it waits for is asked": {given: []change{bound, volume(keys.Home, onTime, madeBefore(time.Minute)), promise},
			verb: "Ask", cluster: keys.Home},
		"… and told if it takes long": {given: []change{bound, volume(keys.Home, onTime, madeBefore(time.Hour)), promise,
			said(keys.Home, "FailedBinding", "no")}, verb: idle, tell: "BackingPending", after: true},
		"new pods wait if it is bound to another volume": {given: []change{bound, made, other},
			verb: "Lock", cluster: keys.Home, tell: "BackingMisbound"},
		"… which is not seen": {given: []change{bound, made, have(keys.Home, boundAs("other"), volumeUnseen)},
			verb: "Lock", cluster: keys.Home, tell: "BackingMisbound"},
		"… and which kube-controller-manager is not done with": {given: []change{bound, made, have(keys.Home,
			boundAs("other"), func(b *steps.Backing) { b.Claim.Status.Phase = corev1.ClaimPending })}, verb: "Lock", cluster: keys.Home,
			tell: "BackingMisbound"},
		"… and is told of while they do": {given: []change{bound, made, other, locked},
			verb: idle, tell: "BackingMisbound", after: true},
		"a claim that is not bound has no pods": {given: []change{made, other},
			verb: idle, tell: "BackingMisbound", after: true},
		"one that is being deleted gets none": {given: []change{bound, deletedClaim, made, other},
			verb: idle, tell: "BackingMisbound", after: true},
		"what its claim is deleted with goes": {given: []change{noClaim, volume(keys.Home, onTime, released), promise},
			verb: "Release", cluster: keys.Home},
	})
	step := decide.Next(observe(bound, made, other))
	assert.Equal(t, `real claim shop/data in the home cluster was bound to volume "other", but this claim's volume is "pvc-b-home", which may be `+
		`deleted now: new pods wait; save what running pods have written, then delete this claim and create it anew`, step.Tell.Text)
	assert.Equal(t, step.Tell.Text, step.Shows)
}
