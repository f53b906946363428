package decide_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// said sets the last warning about the backing claim in a cluster; none if the texts are
// empty.
func said(cluster, reason, message string) change {
	return func(o *steps.Observation) {
		o.LastWarning = &steps.LastWarning{Backing: types.UID("b-" + cluster), Reason: reason, Message: message, Again: now.Add(time.Minute)}
	}
}

func heardLong(o *steps.Observation) { o.LastWarning.Again = now }

func madeBefore(age time.Duration) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.CreationTimestamp = metav1.NewTime(now.Add(-age)) }
}

func TestNextTellsWhatIsSaidOfABackingClaimThatWaits(t *testing.T) {
	const west, home = "west", keys.Home
	bound := boundTo("pvc-u1")
	pending := func(age time.Duration) change { return volume(west, madeBefore(age), nameless) }
	check(t, map[string]row{
		"nobody asks at first": {given: []change{on("node-1"), have(home)}, verb: "Idle", after: true},
		"then its events are read": {given: []change{on("node-1"), have(home, old)}, verb: "Ask", cluster: home,
			tell: "WaitingForBacking"},
		"… and it waits if they say nothing": {given: []change{on("node-1"), have(home, old), said(home, "", "")}, verb: "Idle",
			tell: "WaitingForBacking", after: true},
		"… and what they say is told": {given: []change{on("node-1"), have(home), said(home, "ProvisioningFailed", "no")},
			verb: "Idle", tell: "WaitingForBacking", after: true},
		"… and they are read again": {given: []change{on("node-1"), have(home), said(home, "ProvisioningFailed", "no"),
			heardLong}, verb: "Ask", cluster: home, tell: "WaitingForBacking"},
		"what was said of another claim is not told": {given: []change{on("node-1"), have(home), said(west, "ProvisioningFailed", "no")},
			verb: "Idle", after: true},
		"a shadow that binds at once is asked about, too": {
			given: []change{on("west-1"), parameter(keys.RemoteClass, "now"), annotated(keys.Routed, west), have(west, old)}, verb: "Ask",
			cluster: west, tell: "WaitingForBacking"},
		"a cluster that cannot be used is not asked": {
			given: []change{on("west-1"), parameter(keys.RemoteClass, "now"), annotated(keys.Routed, west), have(west, old),
				unreachable(west, time.Hour)}, verb: "Idle", tell: "ClusterNotUsable", after: true},
		"a volume whose shadow waits for its pod is left in peace at first": {given: []change{bound, have(west, published), pending(time.Second)},
			verb: "Idle", after: true},
		"… then asked about": {given: []change{bound, have(west, published), pending(time.Minute)}, verb: "Ask",
			cluster: west},
		"… and what is said is told, however early": {given: []change{bound, have(west, published), pending(time.Second),
			said(west, "ProvisioningFailed", "no")}, verb: "Idle", tell: "BackingPending", after: true},
		"… and without a word, what is known after a time": {given: []change{bound, have(west, published), pending(time.Hour),
			said(west, "", "")}, verb: "Idle", tell: "BackingPending", after: true},
	})
}

func TestWhatIsSaidElsewhereIsQuotedAndBounded(t *testing.T) {
	tell := func(reason, message string) *steps.Message {
		step := decide.Next(observe(on("node-1"), have(keys.Home), said(keys.Home, reason, message)))
		require.NotNil(t, step.Tell)
		assert.True(t, step.Tell.Warning)
		return step.Tell
	}
	const before = `waiting for real claim shop/data of storage class "wait" in the home cluster to be bound: `
	assert.Equal(t, before+`ProvisioningFailed says "the pool is full"`, tell("ProvisioningFailed", "the pool is full").Text)
	assert.Equal(t, before+`Failed says "first second \"third\" \u202e"`, tell("Failed", "first\nsecond \"third\" \u202e").Text)
	assert.Equal(t, before+`an event there says "x"`, tell("no: such\nreason", "x").Text)
	assert.LessOrEqual(t, len(tell("Failed", strings.Repeat("é", 5000)).Text), 700)
}

// shows sets the condition on the claim, written some time ago.
func shows(reason, message string, ago time.Duration) change {
	return func(o *steps.Observation) {
		at := metav1.NewTime(o.Now.Add(-ago))
		o.Claim.Status.Conditions = append(o.Claim.Status.Conditions,
			corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue},
			corev1.PersistentVolumeClaimCondition{Type: keys.VolumeTrouble, Status: corev1.ConditionTrue, Reason: reason, Message: message,
				LastProbeTime: at, LastTransitionTime: at})
	}
}

func awaySince(ago time.Duration) change {
	return func(o *steps.Observation) { o.AwaySince = o.Now.Add(-ago) }
}

func TestTheConditionOfAClaimSaysWhatIsWrong(t *testing.T) {
	bound := boundTo("pvc-u1")
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	down := func(b *steps.Backing) { b.NodesDown = "node-9" }
	failed := func(b *steps.Backing) { b.Volume.Status.Phase = corev1.VolumeFailed }
	dying := func(b *steps.Backing) { at := metav1.NewTime(now); b.Volume.DeletionTimestamp = &at }
	aged := func(b *steps.Backing) { b.Claim.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)) }
	for name, test := range map[string]struct {
		given []change
		// want is the reason, empty if nothing is to be written on the claim.
		want, says string
		off        bool
	}{
		"nothing is wrong": {given: []change{bound, volume("west"), have("west", full)}},
		"the backing claim lost its volume": {given: []change{bound, volume("west"), have("west", published, lost)}, want: "BackingLost",
			says: `has lost its real volume "real-west"`},
		"… at home, too": {given: []change{bound, volume(keys.Home), have(keys.Home, published, lost)},
			want: "BackingLost", says: "in the home cluster"},
		"the backing claim is gone": {given: []change{bound, volume("west")}, want: "BackingMissing"},
		"somebody deleted the shadow": {given: []change{bound, volume("west"), have("west", full, terminating)},
			want: "BackingDeleted"},
		"the node is gone": {given: []change{bound, volume("west"), have("west", full, nodesGone)},
			want: "BackingNodeGone"},
		"the node is not ready": {given: []change{bound, volume(keys.Home), have(keys.Home, full, down)},
			want: "BackingNodeNotReady", says: "(only on node-9): see what the node lacks"},
		"… whose name stays where it is": {given: []change{bound, volume("west"), have("west", full, down)},
			want: "BackingNodeNotReady", says: "ready there: let its administrator see"},
		"the real volume has failed": {given: []change{bound, volume("west"), have("west", full, failed)},
			want: "BackingVolumeFailed"},
		"somebody deleted the real volume": {given: []change{bound, volume("west"), have("west", full, dying)},
			want: "BackingVolumeDeleted"},
		"its cluster is away": {given: []change{bound, volume("west"), unreachable("west", time.Hour)},
			want: "ClusterNotUsable", says: "see the conditions of RemoteCluster west"},
		"… for a moment": {given: []change{bound, volume("west"), unreachable("west", time.Minute),
			awaySince(time.Minute)}},
		"nothing is seen there":     {given: []change{bound, volume("west"), unseen("west")}, want: "BackingNotSeen"},
		"there is no RemoteCluster": {given: []change{bound, volume("west"), unknown("west")}, want: "UnknownCluster"},
		"what was wrong before its cluster left": {given: []change{bound, volume("west"), unreachable("west", time.Hour),
			shows("BackingLost", "it is", time.Hour)}},
		"the volume was declared lost": {given: []change{bound, volume("west", declaredLost), unreachable("west", time.Hour)},
			want: "DeclaredLost"},
		"the shadow is long pending": {given: []change{bound, volume("west"), have("west", published),
			said("west", "ProvisioningFailed", "no")}, want: "BackingPending"},
		"it has no volume, for the twin waits": {given: []change{on("node-1"), have(keys.Home, aged), said(keys.Home, "", "")},
			want: "BackingPending"},
		"a move holds the claim": {given: []change{bound, volume("west"), have("west", published, lost),
			func(o *steps.Observation) { o.Moving = true }}},
		"the claim is being deleted": {given: []change{bound, volume("west"), have("west", published, lost), deletedClaim}},
		"it says so already": {given: []change{bound, volume("west"), unreachable("west", time.Hour),
			shows("ClusterNotUsable", "nothing is known of the volume, for cluster west, where its data is, cannot be used now: see the "+
				"conditions of RemoteCluster west", time.Hour)}},
		"other words wait": {given: []change{bound, volume("west"), have("west", published, lost),
			shows("BackingLost", "in other words", time.Minute)}},
		"… for some minutes": {given: []change{bound, volume("west"), have("west", published, lost),
			shows("BackingLost", "in other words", time.Hour)}, want: "BackingLost"},
		"something else is wrong": {given: []change{bound, volume("west"), have("west", published, lost),
			shows("BackingDeleted", "it was", time.Second)}, want: "BackingLost"},
		"what was wrong is over": {given: []change{bound, volume("west"), have("west", full),
			shows("BackingLost", "it was", time.Hour)}, off: true},
		"what was wrong may be over: nobody knows": {given: []change{bound, volume("west"), unreachable("west", time.Hour),
			awaySince(time.Second), shows("ClusterNotUsable", "it was", time.Hour)}},
		"a remote cluster had too much written": {given: []change{bound, volume("west"), have("west", published, lost),
			func(o *steps.Observation) { o.QuietUntil = o.Now.Add(time.Second) }}},
	} {
		t.Run(name, func(t *testing.T) {
			o := observe(test.given...)
			step := decide.ShowWhenLasting(o, decide.Next(o), o.Now.Add(-time.Hour))
			if test.want == "" && !test.off {
				assert.NotEqual(t, "Show", step.Verb())
				return
			}
			require.Equal(t, "Show", step.Verb())
			assert.Equal(t, keys.Home, step.Cluster())
			if test.off {
				assert.Nil(t, as[steps.ShowTrouble](step).Condition)
				return
			}
			assert.Equal(t, test.want, as[steps.ShowTrouble](step).Condition.Reason)
			assert.Equal(t, test.want, step.Trouble, "the metric says the same")
			assert.Contains(t, as[steps.ShowTrouble](step).Condition.Message, test.says)
			assert.Equal(t, now, as[steps.ShowTrouble](step).Condition.LastProbeTime.Time)
		})
	}
}

func TestAConditionIsWrittenOnceItLasts(t *testing.T) {
	lostVolume := []change{boundTo("pvc-u1"), volume("west"), have("west", published, lost)}
	fine := []change{boundTo("pvc-u1"), volume("west"), have("west", func(b *steps.Backing) { pvcBound(b); published(b) })}
	for name, test := range map[string]struct {
		given []change
		since time.Duration
		wait  time.Duration
	}{
		"a trouble is new": {given: lostVolume, since: 4 * time.Second, wait: 6 * time.Second},
		"a trouble lasts":  {given: lostVolume, since: 10 * time.Second},
		"a trouble has just gone": {given: append(fine, shows("BackingLost", "it was", time.Hour)), since: 10 * time.Second,
			wait: 20 * time.Second},
		"a trouble is over": {given: append(fine, shows("BackingLost", "it was", time.Hour)), since: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			o := observe(test.given...)
			step := decide.ShowWhenLasting(o, decide.Next(o), o.Now.Add(-test.since))
			assert.Equal(t, test.wait == 0, step.Verb() == "Show")
			if test.wait > 0 {
				assert.Equal(t, test.wait+time.Millisecond, step.After)
			}
		})
	}
	o := observe(append(lostVolume, shows("BackingDeleted", "it was", time.Hour))...)
	step := decide.ShowWhenLasting(o, decide.Next(o), o.Now.Add(-time.Hour))
	assert.Equal(t, now.Add(-time.Hour), as[steps.ShowTrouble](step).Condition.LastTransitionTime.Time, "its status is as it was")
}

func TestAClaimThatIsTooLargeForAllSaysSo(t *testing.T) {
	places := func(sizes map[string]string) change {
		return func(o *steps.Observation) {
			o.Claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Gi")}
			o.Places = map[string]*resource.Quantity{}
			for id, size := range sizes {
				if o.Places[id] = nil; size != "" {
					parsed := resource.MustParse(size)
					o.Places[id] = &parsed
				}
			}
		}
	}
	young := func(o *steps.Observation) { o.Claim.CreationTimestamp = metav1.NewTime(o.Now.Add(-time.Second)) }
	closed := func(o *steps.Observation) { o.Namespace.Labels = nil }
	for name, test := range map[string]struct {
		given []change
		says  string
	}{
		"nothing is known":     {},
		"it fits somewhere":    {given: []change{places(map[string]string{keys.Home: "1Gi", "west": "100Gi"})}},
		"it may fit somewhere": {given: []change{places(map[string]string{keys.Home: "1Gi", "west": ""})}},
		"it fits nowhere": {given: []change{places(map[string]string{keys.Home: "1Gi", "west": "99Gi", "east": "2Gi"})},
			says: "the most is 99Gi, in cluster west"},
		"it is told in round figures": {given: []change{places(map[string]string{keys.Home: "96631234567"})},
			says: "the most is 89Gi, in the home cluster"},
		"it may not go where it would fit": {given: []change{places(map[string]string{keys.Home: "1Gi", "west": ""}), closed},
			says: "the most is 1Gi"},
		"its class keeps out where it would": {given: []change{places(map[string]string{keys.Home: "1Gi", "west": ""}),
			parameter(keys.Clusters, keys.Home)}, says: "the most is 1Gi"},
		"no cluster can take it at all": {given: []change{places(map[string]string{})}},
		"it is new":                     {given: []change{places(map[string]string{keys.Home: "1Gi"}), young}},
		"it has a node":                 {given: []change{places(map[string]string{keys.Home: "1Gi"}), on("node-1")}},
	} {
		t.Run(name, func(t *testing.T) {
			step := decide.Next(observe(test.given...))
			if test.says == "" {
				assert.Nil(t, step.Tell)
				return
			}
			require.NotNil(t, step.Tell)
			assert.Equal(t, "TooLarge", step.Tell.Reason)
			assert.Contains(t, step.Tell.Text, "asks for 100Gi, and no cluster")
			assert.Contains(t, step.Tell.Text, test.says)
			assert.Positive(t, step.After, "room may be made")
		})
	}
}
