// The tables of steps for a claim that has a volume are one file, as the decisions are: they share the changes that rows
// are made of.

package decide_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

func TestNextForAVolumeInUse(t *testing.T) {
	const idle = "Idle"
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	letGo := func(o *steps.Observation) { o.Changed = "claim data" }
	check(t, map[string]row{
		"all is well at home":                 {given: []change{volume(keys.Home), have(keys.Home, full)}, verb: idle},
		"all is well in west":                 {given: []change{volume("west"), have("west", full)}, verb: idle},
		"its backing claim is marked":         {given: []change{volume("west"), have("west", pvcBound)}, verb: "Mark", cluster: "west"},
		"… but not while its cluster is away": {given: []change{volume("west"), have("west", pvcBound), unreachable("west", 0)}, verb: idle},
		"… and not while the volume is not stored": {given: []change{volume("west", func(v *corev1.PersistentVolume) {
			v.UID, v.CreationTimestamp = "", metav1.NewTime(now)
		}), have("west")}, verb: idle, after: true},
		"a volume that cannot be stored is told of": {given: []change{volume("west", func(v *corev1.PersistentVolume) {
			v.UID, v.CreationTimestamp = "", metav1.NewTime(now.Add(-time.Minute))
		}), have("west")}, verb: idle, tell: "VolumeNotStored", after: true},
		"a volume that is not ours to read is told of": {
			given: []change{volume("west", func(v *corev1.PersistentVolume) { v.Annotations[keys.Backing] = "west/shop" })}, verb: idle,
			tell: "InvalidVolume"},
		"a backing claim that is gone is told of":          {given: []change{volume("west")}, verb: idle, tell: "BackingMissing"},
		"… once it was not seen for a while":               {given: []change{volume("west"), justMissed}, verb: idle, after: true},
		"a twin that is gone is told of":                   {given: []change{volume(keys.Home)}, verb: idle, tell: "BackingMissing"},
		"it is not missed while its cluster is away":       {given: []change{volume("west"), unreachable("west", 0)}, verb: idle},
		"it is not missed while nothing is seen there":     {given: []change{volume("west"), unseen("west")}, verb: idle},
		"it is not missed while its RemoteCluster is gone": {given: []change{volume("west"), unknown("west")}, verb: idle},
		"a twin of that name but another UID is not it": {
			given: []change{volume(keys.Home), have(keys.Home, full, another)}, verb: idle, tell: "BackingMissing"},
		"a shadow that somebody deleted is told of": {given: []change{volume("west"), have("west", full, terminating)}, verb: idle,
			tell: "BackingDeleted"},
		"a backing claim that lost its volume is told of": {given: []change{volume("west"), have("west", published, lost)}, verb: idle,
			tell: "BackingLost"},
		"the name of the real volume follows": {given: []change{volume("west", nameless), have("west", full)}, verb: "Update",
			cluster: keys.Home},
		"… at home too": {given: []change{volume(keys.Home, nameless), have(keys.Home, full)}, verb: "Update",
			cluster: keys.Home},
		"the UID of the cluster that it was seen in is written": {given: []change{volume("west"), have("west", full, seenIn)}, verb: "Update",
			cluster: keys.Home},
		"… once": {given: []change{volume("west", carries), have("west", full, seenIn)}, verb: idle},
		"its size follows in a remote cluster": {given: []change{volume("west", small), have("west", full)}, verb: "Update",
			cluster: keys.Home},
		"… but not at home, where its driver sees to that": {given: []change{volume(keys.Home, small), have(keys.Home, full)}, verb: idle},
		"… unless no driver knows it": {
			given: []change{volume(keys.Home, small, driverless), have(keys.Home, full)}, verb: "Update", cluster: keys.Home},
		"one that was made too much goes": {
			given: []change{volume("west"), have("west", full), have(keys.Home)}, verb: "Remove", cluster: keys.Home},
		"… but not if it was published": {
			given: []change{volume("west"), have("west", full), have(keys.Home, published)}, verb: idle},
		"… and does not hold up the rest while its cluster is away": {
			given: []change{volume(keys.Home, nameless), have("west"), have(keys.Home, full), unreachable("west", 0)}, verb: "Update",
			cluster: keys.Home},
		"a deleted claim changes nothing before the volume is released": {
			given: []change{volume("west"), have("west", full), noClaim}, verb: idle},
		"a released volume that is kept stays": {
			given: []change{volume("west", released, keepIt), have("west", full), noClaim}, verb: idle},
		"a claim that a move let go wakes its pods": {given: []change{volume("west"), have("west", full), boundTo("pvc-u1"), letGo},
			verb: "Wake", cluster: keys.Home},
		"… but not one that is bound to another volume": {given: []change{volume("west"), have("west", full), boundTo("other"), letGo},
			verb: idle},
	})
}

// TestARestoredClaimTakesOverWhatItsVolumeNames is about a claim that a restore from a backup gave another
// UID than its volume was made for.
func TestARestoredClaimTakesOverWhatItsVolumeNames(t *testing.T) {
	restored := func(v *corev1.PersistentVolume) { v.Name = "pvc-u0" }
	earlier := func(b *steps.Backing) {
		pvcBound(b)
		published(b)
		b.Claim.Labels = map[string]string{keys.ClaimUID: "u0"}
	}
	present := func(b *steps.Backing) { earlier(b); b.Claim.Labels[keys.ClaimUID] = string(uid) }
	shared := func(o *steps.Observation) { o.Another, o.Place = "pvc-u0-copy", "shop" }
	elsewhere := func(o *steps.Observation) { o.Place = "shop-2" }
	no := mapped(steps.Mapped{Reason: "AnotherNamespace", Message: "rebind it"})
	check(t, map[string]row{
		"the real claim gets its UID": {given: []change{volume("west", restored), have("west", earlier), boundTo("pvc-u0")}, verb: "Carry",
			cluster: "west"},
		"… at home too": {given: []change{volume(keys.Home, restored), have(keys.Home, earlier), boundTo("pvc-u0")}, verb: "Carry",
			cluster: keys.Home},
		"… once the namespace there is given": {given: []change{volume("west", restored), have("west", earlier), boundTo("pvc-u0"),
			mapped(steps.Mapped{Given: true})}, verb: "Carry", cluster: "west"},
		"… and not before": {given: []change{volume("west", restored), have("west", earlier), boundTo("pvc-u0"), no}, verb: "Idle",
			tell: "NamespaceRefused", after: true},
		"… while nobody has answered": {given: []change{volume("west", restored), have("west", earlier), boundTo("pvc-u0"),
			mapped(steps.Mapped{Since: now.Add(-time.Second), Message: "not answered yet"})}, verb: "Idle", after: true},
		"… and for long": {given: []change{volume("west", restored), have("west", earlier), boundTo("pvc-u0"),
			mapped(steps.Mapped{Since: now.Add(-time.Minute), Message: "not answered yet"})}, verb: "Idle", tell: "NamespaceNotMade", after: true},
		"once": {given: []change{volume("west", restored), have("west", present), boundTo("pvc-u0")}, verb: "Idle"},
		"… and not again and again": {given: []change{volume("west", restored), have("west", earlier), boundTo("pvc-u0"),
			func(o *steps.Observation) { o.Synced = now }}, verb: "Idle", after: true},
		"nothing is taken from another volume": {given: []change{volume("west", restored), have("west", earlier), boundTo("pvc-u0"), shared},
			verb: "Idle", tell: "NotRestored", after: true},
		"… nor deleted": {given: []change{volume("west", restored, released), have("west", earlier), noClaim, shared}, verb: "Idle",
			tell: "NotRestored", after: true},
		"… nor from another namespace": {given: []change{volume("west", restored), boundTo("pvc-u0"), elsewhere}, verb: "Idle",
			tell: "NotRestored", after: true},
		"… and nothing is deleted there": {given: []change{volume("west", restored, released), noClaim, elsewhere}, verb: "Idle",
			tell: "NotRestored", after: true},
		"… but an administrator can delete the volume": {given: []change{volume("west", restored, released, func(v *corev1.PersistentVolume) {
			v.DeletionTimestamp = &metav1.Time{Time: now}
		}), have("west", earlier), noClaim, shared}, verb: "Finish", cluster: keys.Home},
		"older data than there is, is not taken over": {given: []change{volume("west", restored), have("west", earlier), boundTo("pvc-u0"),
			func(o *steps.Observation) { o.Standing.ReplacedBy = 1 }}, verb: "Lock", cluster: keys.Home, tell: "NewerBacking"},
		"a claim that is deleted before takes its data along": {given: []change{volume("west", restored, released), have("west", earlier),
			noClaim, no}, verb: "Release", cluster: "west"},
	})
	step := decide.Next(observe(volume("west", restored), have("west", earlier), boundTo("pvc-u0")))
	assert.Equal(t, map[string]any{keys.ClaimUID: string(uid)}, as[steps.SyncMetadata](step).Labels)
	assert.Equal(t, map[string]any{keys.Claim: "shop/data"}, as[steps.SyncMetadata](step).Annotations)
	assert.Contains(t, decide.Next(observe(volume("west", restored), have("west", earlier), boundTo("pvc-u0"), no)).Tell.Text, "rebind it")
}

func seenIn(b *steps.Backing) { b.ClusterUID = "uid-west" }

func carries(v *corev1.PersistentVolume) { v.Annotations[keys.ClusterUID] = "uid-west" }

func TestNextForAReleasedVolume(t *testing.T) {
	const idle = "Idle"
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	gone := func(o *steps.Observation) { o.Gone = true }
	attached := func(o *steps.Observation) { o.Attached = "node-1" }
	check(t, map[string]row{
		"its backing claim goes": {given: []change{volume("west", released), have("west", full), noClaim}, verb: "Release",
			cluster: "west"},
		"its twin goes": {given: []change{volume(keys.Home, released), have(keys.Home, full), noClaim}, verb: "Release", cluster: keys.Home},
		"… also when its mark was never taken off": {given: []change{volume("west", released), have("west", pvcBound), noClaim}, verb: "Release",
			cluster: "west"},
		"… also when it never got a volume": {given: []change{volume("west", released, nameless), have("west", published), noClaim},
			verb: "Release", cluster: "west"},
		"… also when somebody deleted it before": {given: []change{volume("west", released), have("west", full, terminating), noClaim},
			verb: "Release", cluster: "west"},
		"not while a node uses it": {given: []change{volume("west", released), have("west", full), noClaim, attached}, verb: idle,
			tell: "StillAttached"},
		"not before the real volume's name is noted": {
			given: []change{volume("west", released, nameless), have("west", full), noClaim}, verb: "Update", cluster: keys.Home},
		"not while the real volume is bound but not seen": {
			given: []change{volume("west", released, nameless), have("west", published, volumeUnseen), noClaim}, verb: idle, after: true},
		"… unless its name is known": {
			given: []change{volume("west", released), have("west", published, volumeUnseen), noClaim}, verb: "Release", cluster: "west"},
		"a cluster that is away is waited for": {
			given: []change{volume("west", released), have("west", full), noClaim, unreachable("west", 0)}, verb: idle, tell: "ClusterNotUsable",
			after: true},
		"a cluster that nobody knows is asked for": {
			given: []change{volume("west", released), noClaim, unknown("west")}, verb: idle, tell: "UnknownCluster"},
		"a cluster that is not seen is asked": {
			given: []change{volume("west", released), noClaim, unseen("west")}, verb: "Confirm", cluster: "west"},
		"a backing claim that others still hold is waited for": {
			given: []change{volume("west", released), have("west", full, terminating, unprotected), noClaim}, verb: idle, after: true},
		"… and told of when it takes long": {
			given: []change{volume("west", released), have("west", full, terminating, unprotected, old), noClaim}, verb: idle, after: true,
			tell: "WaitingForBacking"},
		"what is no longer seen is asked for": {given: []change{volume("west", released), noClaim}, verb: "Confirm", cluster: "west"},
		"… at home too":                       {given: []change{volume(keys.Home, released), noClaim}, verb: "Confirm", cluster: keys.Home},
		"when all is gone the volume goes": {given: []change{volume("west", released), noClaim, gone}, verb: "Finish",
			cluster: keys.Home},
		"… whether or not its cluster answers now": {given: []change{volume("west", released), noClaim, gone, unreachable("west", 0)},
			verb: "Finish", cluster: keys.Home},
		"one that was declared lost goes without its cluster": {
			given: []change{volume("west", released, declaredLost), noClaim, unreachable("west", 0)}, verb: "Finish", cluster: keys.Home,
			tell: "DeclaredLost"},
		"… without a RemoteCluster": {
			given: []change{volume("west", released, declaredLost), noClaim, unknown("west")}, verb: "Finish", cluster: keys.Home,
			tell: "DeclaredLost"},
		"… and leaves what is there after all": {
			given: []change{volume("west", released, declaredLost), have("west", full), noClaim}, verb: "Finish", cluster: keys.Home,
			tell: "DeclaredLost"},
		"… but nothing at home is lost by declaration": {
			given: []change{volume(keys.Home, released, declaredLost), have(keys.Home, full), noClaim}, verb: "Release", cluster: keys.Home},
		"… and what is kept is kept": {
			given: []change{volume("west", released, keepIt, declaredLost), noClaim, unreachable("west", 0)}, verb: idle, tell: "DeclaredLost"},
		"a volume that is kept never goes, whatever is gone": {given: []change{volume("west", released, keepIt), noClaim, gone}, verb: idle,
			tell: "BackingMissing"},
	})
	step := decide.Next(observe(volume("west", released), noClaim))
	require.Equal(t, "Confirm", step.Verb())
	assert.Equal(t, backing.Ref{Cluster: "west", Namespace: "shop", Name: "data", UID: "b-west"}, refOfStep(step))
}

func TestNextForAVolumeThatWasDeclaredLost(t *testing.T) {
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	check(t, map[string]row{
		"its user is told": {given: []change{volume("west", declaredLost), boundTo("pvc-u1"), unreachable("west", 0)},
			verb: "Idle", tell: "DeclaredLost"},
		"… also when the cluster is back with it": {given: []change{volume("west", declaredLost), have("west", full), boundTo("pvc-u1")},
			verb: "Idle", tell: "DeclaredLost"},
		"… which is held in step": {given: []change{volume("west", small, declaredLost), have("west", full)}, verb: "Update", cluster: keys.Home},
	})
	step := decide.Next(observe(volume("west", declaredLost), have("west", full), boundTo("pvc-u1")))
	assert.Contains(t, step.Tell.Text, "is back and has real claim shop/data: its administrator takes the declaration back")
	assert.Equal(t, "DeclaredLost", step.Trouble)
}

func TestWhatIsLeftBehindIsToldOfAndNotTouched(t *testing.T) {
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	step := decide.Next(observe(noClaim, have("west", full)))
	assert.Equal(t, "Idle", step.Verb())
	require.NotNil(t, step.Left)
	assert.Equal(t, "west", step.Left.Cluster)
	step = decide.Next(observe(noClaim, have("west")))
	assert.Equal(t, "Remove", step.Verb(), "what was never published goes")
	assert.Nil(t, step.Left)
	step = decide.Next(observe(have("west", full), deletedClaim))
	assert.Nil(t, step.Left, "its claim is not gone")
	step = decide.Next(observe(volume("west"), have("west", full), noClaim))
	assert.Nil(t, step.Left, "its volume is not gone")
}

func TestReady(t *testing.T) {
	for name, test := range map[string]struct {
		alter    []func(*steps.Backing)
		cluster  string
		deferred bool
		want     bool
	}{
		"bound to a volume that is seen":                {alter: []func(*steps.Backing){pvcBound}, cluster: keys.Home, want: true},
		"bound to a volume that is not seen":            {alter: []func(*steps.Backing){volumeUnseen}, cluster: "west", deferred: true},
		"pending in a remote cluster until a pod comes": {cluster: "west", deferred: true, want: true},
		"pending in a remote cluster, binds at once":    {cluster: "west"},
		"pending at home until a pod comes":             {cluster: keys.Home, deferred: true},
		"pending at home, its volume is made": {
			alter: []func(*steps.Backing){promised()}, cluster: keys.Home, deferred: true, want: true},
		"… and binds at once": {alter: []func(*steps.Backing){promised()}, cluster: keys.Home},
		"… and being deleted": {alter: []func(*steps.Backing){promised(), terminating}, cluster: keys.Home, deferred: true},
		"lost":                {alter: []func(*steps.Backing){lost}, cluster: "west", deferred: true},
		"being deleted":       {alter: []func(*steps.Backing){pvcBound, terminating}, cluster: "west"},
	} {
		t.Run(name, func(t *testing.T) {
			o := observe(have(test.cluster, test.alter...))
			assert.Equal(t, test.want, decide.Ready(o.Backings[0], routeTo(test.cluster, test.deferred)))
		})
	}
}

func TestNextTellsOfAVolumeWhoseNodeIsGone(t *testing.T) {
	bound := boundTo("pvc-u1")
	check(t, map[string]row{
		"at home": {given: []change{bound, have(keys.Home, pvcBound, published, nodesGone), volume(keys.Home)},
			verb: "Idle", tell: "BackingNodeGone", after: true},
		"in a remote cluster": {given: []change{bound, have("west", pvcBound, published, nodesGone), volume("west")}, verb: "Idle",
			tell: "BackingNodeGone", after: true},
		"not while there is one": {given: []change{bound, have("west", pvcBound, published), volume("west")}, verb: "Idle"},
		"not before what it is told of": {given: []change{bound, have("west", pvcBound, nodesGone), volume("west")}, verb: "Mark",
			cluster: "west"},
		"not of one that is to go": {given: []change{have("west", pvcBound, published, nodesGone), volume("west", released), noClaim},
			verb: "Release", cluster: "west"},
	})
	west := decide.Next(observe(bound, have("west", pvcBound, published, nodesGone), volume("west")))
	assert.Equal(t, "BackingNodeGone", west.Trouble)
	assert.NotContains(t, west.Tell.Text, "node-9", "names of remote nodes stay there")
	home := decide.Next(observe(bound, have(keys.Home, pvcBound, published, nodesGone), volume(keys.Home)))
	assert.Contains(t, home.Tell.Text, "(only on node-9): bring the node back")
}

// A user who reads that the data may be gone deletes the claim, and then it really is.
func TestABackingClaimThatIsGoneWhileItsVolumeStays(t *testing.T) {
	named := func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name = "shop", "data" }
	renamed := func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Name = "other" }
	gone := func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased }
	const safe, lost = "its volume real-home is there with the data; waiting for its claim",
		"restore the claim from a backup or delete this one"
	for name, row := range map[string]struct {
		given []change
		want  string
	}{
		"another claim of its name has the volume": {given: []change{real("b-new", named)}, want: safe},
		"the volume is kept":                       {given: []change{real("b-west", named)}, want: safe},
		"the volume waits for a claim of its name": {given: []change{real("", named, reclaimed)}, want: safe},
		"the volume goes with the claim":           {given: []change{real("b-west", named, reclaimed)}, want: lost},
		"the volume goes with a later claim":       {given: []change{real("b-new", named, reclaimed, gone)}, want: lost},
		"the volume is being deleted":              {given: []change{real("b-new", named, going)}, want: lost},
		"the volume is another's":                  {given: []change{real("b-new", named, renamed)}, want: lost},
		"the volume is gone too":                   {want: lost},
	} {
		step := decide.Next(observe(append([]change{volume("west")}, row.given...)...))
		assert.Equal(t, "Idle", step.Verb(), name)
		assert.Equal(t, "BackingMissing", step.Trouble, name)
		assert.Contains(t, step.Tell.Text, row.want, name)
	}
}

func options(options ...string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.MountOptions, v.Spec.StorageClassName = options, "lodestone" }
}

func TestMountOptionsThatChangeNothingAreToldOnce(t *testing.T) {
	const told = "MountOptionsIgnored"
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	hasNoatime := func(b *steps.Backing) { options("noatime")(b.Volume) }
	block := func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }
	both := options("noatime", "sync")
	check(t, map[string]row{
		"of a volume that has just been made": {given: []change{volume("west", both), have("west", pvcBound, hasNoatime)}, verb: "Mark",
			cluster: "west", tell: told},
		"not if the real volume has them": {given: []change{volume("west", options("noatime")), have("west", pvcBound, hasNoatime)},
			verb: "Mark", cluster: "west"},
		"not at home, where they are mounted with": {given: []change{volume(keys.Home, both), have(keys.Home, pvcBound)}, verb: "Mark",
			cluster: keys.Home},
		"not of a block volume, which has none": {given: []change{volume("west", both, block), have("west", pvcBound)}, verb: "Mark",
			cluster: "west"},
		"not before the real volume is there": {given: []change{volume("west", both, nameless), have("west")}, verb: "Mark",
			cluster: "west"},
		"… nor where its name is written next": {given: []change{volume("west", both, nameless), have("west", pvcBound)}, verb: "Mark",
			cluster: "west"},
		"… but when its name is written": {given: []change{volume("west", both, nameless), have("west", full)}, verb: "Update",
			cluster: keys.Home, tell: told},
		"… and not again when its size is": {given: []change{volume("west", both, small), have("west", full)}, verb: "Update",
			cluster: keys.Home},
		"not of a volume about which all was written": {given: []change{volume("west", both), have("west", full)}, verb: "Idle"},
	})
	step := decide.Next(observe(volume("west", both), have("west", pvcBound, hasNoatime, of("fast"))))
	require.NotNil(t, step.Tell)
	assert.True(t, step.Tell.Warning)
	assert.Equal(t,
		`mount options "sync" of storage class "lodestone" have no effect in cluster west, where pods mount the real volume with options of its own: `+
			`for new volumes let its administrator set them in real storage class "fast", or name another class of that cluster`, step.Tell.Text)
}

func TestNextForAVolumeThatIsNotTheNewest(t *testing.T) {
	const idle = "Idle"
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	newer := backing.Copy{Cluster: "west", Claim: &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "newer", Annotations: map[string]string{keys.Generation: "1"}}}}
	behind := func(o *steps.Observation) {
		o.Standing.Newer = []backing.Copy{newer}
		o.Standing.Current, _ = backing.RefOf(o.Volume)
	}
	replaced := func(o *steps.Observation) { behind(o); o.Standing.Newer, o.Standing.ReplacedBy = nil, 2 }
	unclear := func(o *steps.Observation) { o.Standing.Unclear = []backing.Copy{newer} }
	lockedFor := func(newer string) change {
		return func(o *steps.Observation) {
			o.Claim.Labels = map[string]string{keys.Moving: keys.MovingNow}
			o.Claim.Annotations[keys.Move], o.Claim.Annotations[keys.Newer] = keys.NoMove, newer
		}
	}
	moving := func(o *steps.Observation) { o.Moving = true }
	later := func(v *corev1.PersistentVolume) { v.Annotations[keys.Generation] = "3" }
	base := []change{volume(keys.Home), have(keys.Home, full), boundTo("pvc-u1")}
	given := func(more ...change) []change { return append(append([]change{}, base...), more...) }
	check(t, map[string]row{
		"it is locked": {given: given(behind), verb: "Lock", cluster: keys.Home, tell: "NewerBacking"},
		"… and told of while it is": {given: given(behind, lockedFor("west/shop/data/newer")), verb: idle, tell: "NewerBacking",
			after: true},
		"… and says which one is the newest now": {given: given(behind, lockedFor("west/shop/data/other")), verb: "Lock", cluster: keys.Home,
			tell: "NewerBacking"},
		"one that a move replaced is locked too":          {given: given(replaced), verb: "Lock", cluster: keys.Home, tell: "NewerBacking"},
		"what no number says to be newer changes nothing": {given: given(unclear), verb: idle},
		"a move works on it":                              {given: given(behind, moving), verb: idle},
		"its claim is being deleted":                      {given: given(behind, deletedClaim), verb: idle},
		"its claim is bound to another volume":            {given: given(behind, boundTo("other")), verb: idle},
		"its own data is gone, and the newer is told of": {given: []change{volume(keys.Home), boundTo("pvc-u1"), behind}, verb: "Lock",
			cluster: keys.Home, tell: "NewerBacking"},
		"what its claim is deleted with is its own data": {given: []change{volume(keys.Home, released), have(keys.Home, full), noClaim, behind},
			verb: "Release", cluster: keys.Home},
		"a backing claim learns that it was chosen": {given: []change{volume(keys.Home, later), have(keys.Home, full)}, verb: "Carry",
			cluster: keys.Home},
	})
}

// real adds the real volume at home, bound to the claim with this UID.
func real(claim types.UID, alter ...func(*corev1.PersistentVolume)) change {
	return func(o *steps.Observation) {
		o.Real = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real-home"},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
		o.Real.Spec.ClaimRef = &corev1.ObjectReference{UID: claim}
		o.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		for _, a := range alter {
			a(o.Real)
		}
	}
}

func reclaimed(v *corev1.PersistentVolume) {
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
}
func going(v *corev1.PersistentVolume)   { v.DeletionTimestamp = ptr.To(metav1.NewTime(now)) }
func healing(v *corev1.PersistentVolume) { v.Annotations[keys.Healing] = "Delete" }
func another(b *steps.Backing)           { b.Claim.UID = "b-new" }
func leaving(o *steps.Observation)       { o.StorageLeaving = true }

func TestNextForATwinThatSomebodyDeleted(t *testing.T) {
	const home = keys.Home
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	for name, test := range map[string]struct {
		given []change
		cure  steps.Cure // empty: no step of healing
		tell  string
	}{
		"it is recorded": {given: []change{volume(home), have(home, full, terminating), real("b-home", reclaimed)}, cure: steps.Begin,
			tell: "BackingHealing"},
		"… but not when nobody claims it any more": {given: []change{volume(home, released, keepIt), have(home, full, terminating),
			real("b-home")}, tell: "BackingDeleted"},
		"… nor when its data is to be deleted": {given: []change{volume(home, released), have(home, full, terminating), noClaim}},
		"… nor when its namespace goes":        {given: []change{volume(home), have(home, full, terminating), leaving}, tell: "BackingDeleted"},
		"… nor when the real volume goes too": {given: []change{volume(home), have(home, full, terminating, func(b *steps.Backing) {
			b.Volume.DeletionTimestamp = ptr.To(metav1.NewTime(now))
		})}, tell: "BackingDeleted"},
		"… nor in a remote cluster, whose agent does it": {given: []change{volume("west"), have("west", full, terminating)},
			tell: "BackingDeleted"},
		"the real volume is made to stay": {given: []change{volume(home, healing), have(home, full, terminating),
			real("b-home", reclaimed)}, cure: steps.Retain},
		"… also when the twin went by force": {given: []change{volume(home, healing), real("b-home", reclaimed)},
			cure: steps.Retain},
		"then the twin is let go": {given: []change{volume(home, healing), have(home, full, terminating),
			real("b-home")}, cure: steps.LetGo},
		"… and waited for": {given: []change{volume(home, healing),
			have(home, full, terminating, unprotected), real("b-home")}},
		"… and told of when it takes long": {given: []change{volume(home, healing),
			have(home, full, terminating, unprotected, old), real("b-home")}, tell: "WaitingForBacking"},
		"then the real volume is freed": {given: []change{volume(home, healing), real("b-home")}, cure: steps.Free},
		"then a twin is made":           {given: []change{volume(home, healing), real("")}, cure: steps.Rebuild},
		"… not while the old one is still seen": {given: []change{volume(home, healing),
			have(home, full, terminating, unprotected), real("")}},
		"then it is waited for": {given: []change{volume(home, healing), have(home, published, another),
			real("")}},
		"then the virtual volume names it": {given: []change{volume(home, healing), have(home, full, another),
			real("b-new")}, cure: steps.Adopt},
		"… even if somebody has deleted that one too": {given: []change{volume(home, healing),
			have(home, full, another, terminating), real("b-new")}, cure: steps.Adopt},
		"then the real volume gets its policy back": {given: []change{volume(home, healing), have(home, full), real("b-home")},
			cure: steps.Restore},
		"… not before it is bound": {given: []change{volume(home, healing), have(home, full),
			real("b-home", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeAvailable })}},
		"then the record goes": {given: []change{volume(home, healing), have(home, full),
			real("b-home", reclaimed)}, cure: steps.End},
		"a claim that is deleted meanwhile waits for the end": {given: []change{volume(home, healing, released), real(""), noClaim},
			cure: steps.Rebuild},
		"… but not if there is nothing to heal with": {given: []change{volume(home, healing, released),
			have(home, full, terminating), noClaim}},
		"a real volume that is gone is told of": {given: []change{volume(home, healing)}, tell: "BackingMissing"},
		"a real volume that goes is told of": {given: []change{volume(home, healing), have(home, full, terminating),
			real("b-home", going)}, tell: "BackingMissing"},
		"a real volume that another claim has is told of": {given: []change{volume(home, healing), real("other")},
			tell: "BackingMissing"},
		"a volume whose data is elsewhere is not healed here": {given: []change{volume("west", healing), have("west", full),
			real("b-west")}},
		"a twin without the name of its real volume gets that note": {given: []change{volume(home, nameless), have(home, full, terminating)}},
	} {
		t.Run(name, func(t *testing.T) {
			step := decide.Next(observe(test.given...))
			assert.Equal(t, test.cure, as[steps.HealBacking](step).Cure)
			assert.Equal(t, test.cure != "", step.Verb() == "Heal")
			tell := ""
			if step.Tell != nil {
				tell = step.Tell.Reason
			}
			assert.Equal(t, test.tell, tell)
		})
	}
	step := decide.Next(observe(volume(home, nameless), have(home, full, terminating)))
	assert.Equal(t, "Update", step.Verb(), "which real volume it is must be known first")
	step = decide.Next(observe(volume(home, healing, released), have(home, full, terminating), noClaim))
	assert.Equal(t, "Release", step.Verb())
}

// mending: the remote agent recreates the claim of the real volume.
func mending(v *corev1.PersistentVolume) { v.Labels = map[string]string{keys.Healing: "home"} }

// phase puts the real volume into a phase, since tomorrow by that cluster's clock.
func phase(p corev1.PersistentVolumePhase) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Status.Phase, v.Status.LastPhaseTransitionTime = p, ptr.To(metav1.NewTime(now.Add(24*time.Hour)))
	}
}

// lately makes the awaited state begin a second ago, by this clock.
func lately(o *steps.Observation) { o.WaitsSince = now.Add(-time.Second) }

func otherVolume(b *steps.Backing) {
	b.Volume.Name, b.Claim.Spec.VolumeName = "real-other", "real-other"
}

// sameName binds a claim to a volume of another cluster with the same name as west's.
func sameName(b *steps.Backing) {
	b.Volume.Name, b.Claim.Spec.VolumeName = "real-west", "real-west"
}

// asking makes a claim request its volume by name.
func asking(b *steps.Backing) { b.Claim.Spec.VolumeName = "real-" + b.Cluster }

func elsewhere(b *steps.Backing) { b.Claim.Name = "other" }

func TestNextForAShadowThatIsMadeAnew(t *testing.T) {
	const idle = "Idle"
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	served := mapped(steps.Mapped{Given: true})
	check(t, map[string]row{
		"one that somebody deleted is the agent's to mend": {given: []change{volume("west"), have("west", full, terminating), served, lately},
			verb: idle, tell: "BackingHealing", after: true},
		"… if it does not, that is told": {given: []change{volume("west"), have("west", full, terminating), served},
			verb: idle, tell: "BackingDeleted"},
		"… or an administrator's, where there is none": {given: []change{volume("west"), have("west", full, terminating)}, verb: idle,
			tell: "BackingDeleted"},
		"one without a volume cannot be mended": {given: []change{volume("west"), have("west", published, terminating), served},
			verb: idle, tell: "BackingDeleted"},
		"while it is gone it is waited for": {given: []change{volume("west"), real("b-west", mending), served}, verb: idle,
			tell: "BackingHealing", after: true},
		"… also once the claim is deleted": {given: []change{volume("west", released), real("b-west", mending), noClaim},
			verb: idle, tell: "BackingHealing", after: true},
		"… and when the new one is there already": {given: []change{volume("west"), have("west", full, another),
			real("b-new", mending, phase(corev1.VolumeBound)), lately}, verb: idle, tell: "BackingHealing", after: true},
		"for a second, too": {given: []change{volume("west"),
			real("b-west", mending, phase(corev1.VolumeReleased)), lately, served}, verb: idle, tell: "BackingHealing", after: true},
		"one that is gone for a minute is told of": {given: []change{volume("west"),
			real("b-west", mending, phase(corev1.VolumeReleased)), served}, verb: idle, tell: "BackingDeleted"},
		"… and for ten": {given: []change{volume("west"),
			real("b-west", mending, phase(corev1.VolumeReleased)), served}, verb: idle, tell: "BackingDeleted"},
		"… also once the claim is deleted, told": {given: []change{volume("west", released),
			real("b-west", mending, phase(corev1.VolumeReleased)), noClaim}, verb: idle, tell: "BackingDeleted"},
		"… also if a new one waits for its volume": {given: []change{volume("west"), have("west", published, another),
			real("b-west", mending, phase(corev1.VolumeReleased))}, verb: idle, tell: "BackingDeleted"},
		"… also if the agent never ends": {given: []change{volume("west"), have("west", full, another),
			real("b-new", mending, phase(corev1.VolumeBound))}, verb: idle, tell: "BackingDeleted"},
		"… also if the agent does not let it go": {given: []change{volume("west"), have("west", full, terminating),
			real("b-west", mending), served}, verb: idle, tell: "BackingDeleted"},
		"but pods that use the old one are waited for": {given: []change{volume("west"), have("west", full, terminating, unprotected),
			real("b-west", mending, phase(corev1.VolumeBound)), served}, verb: idle, tell: "BackingHealing", after: true},
		"then the virtual volume names it": {given: []change{volume("west"), have("west", full, another), real("b-new")},
			verb: "Heal", cluster: keys.Home, tell: "BackingHealed"},
		"… also before it is deleted with its data": {given: []change{volume("west", released), have("west", full, another),
			real("b-new"), noClaim}, verb: "Heal", cluster: keys.Home, tell: "BackingHealed"},
		"… and if its volume was never seen before": {given: []change{volume("west", nameless), have("west", full, another)},
			verb: "Heal", cluster: keys.Home, tell: "BackingHealed"},
		"but not one that holds another volume": {given: []change{volume("west"), have("west", full, another, otherVolume)},
			verb: idle, tell: "BackingMissing"},
		"nor one whose volume is not seen": {given: []change{volume("west"), have("west", published, another, volumeUnseen)},
			verb: idle, tell: "BackingMissing"},
		"nor one that is not bound": {given: []change{volume("west"), have("west", published, another)}, verb: idle,
			tell: "BackingMissing"},
		"also one that says that it was never published": {given: []change{volume("west"), have("west", pvcBound, another)}, verb: "Heal",
			cluster: keys.Home, tell: "BackingHealed"},
		"… and is deleted with its data": {given: []change{volume("west", released), have("west", pvcBound, another),
			noClaim}, verb: "Heal", cluster: keys.Home, tell: "BackingHealed"},
		"… and if a pod used it": {given: []change{volume("west", nameless),
			have("west", pvcBound, another, chosenThere)}, verb: "Heal", cluster: keys.Home, tell: "BackingHealed"},
		"… which is not removed before it is bound": {given: []change{volume("west"), have("west", asking, another)}, verb: idle,
			tell: "BackingMissing"},
		"… nor while nothing protects it": {given: []change{volume("west"), have("west", pvcBound, another, unprotected)},
			verb: idle, tell: "BackingMissing"},
		"… nor at home": {given: []change{volume(keys.Home), have(keys.Home, pvcBound, another)}, verb: idle, tell: "BackingMissing"},
		"but one that holds another volume is removed": {given: []change{volume("west"), have("west", pvcBound, another, otherVolume)},
			verb: "Remove", cluster: "west"},
		"… also one that has a volume of that name elsewhere": {given: []change{volume("west"), have("west", pvcBound, published),
			have("east", pvcBound, sameName)}, verb: "Remove", cluster: "east"},
		"… and one that nobody used": {given: []change{volume("west", nameless), have("west", pvcBound, another)},
			verb: "Remove", cluster: "west"},
		"nor one that nothing protects": {given: []change{volume("west"), have("west", full, another, unprotected)}, verb: idle,
			tell: "BackingMissing"},
		"nor one of another name": {given: []change{volume("west"), have("west", full, another, elsewhere)}, verb: idle,
			tell: "BackingMissing"},
		"nor one in another cluster": {given: []change{volume("west"), have("east", full, another)}, verb: idle,
			tell: "BackingMissing"},
		"nothing is believed of a cluster that is away": {given: []change{volume("west"), have("west", full, another), unreachable("west", 0)},
			verb: idle},
	})
	step := decide.Next(observe(volume("west"), have("west", full, another)))
	assert.Equal(t, steps.Adopt, as[steps.HealBacking](step).Cure)
	assert.Equal(t, types.UID("b-new"), backingOf(step).Claim.UID)
	assert.Equal(t, backing.Ref{Cluster: "west", Namespace: "shop", Name: "data", UID: "b-west"}, refOfStep(step))
	step = decide.Next(observe(volume("west", func(v *corev1.PersistentVolume) { v.Annotations[keys.Backing] = "west/shop/data/b-new" }),
		have("west", pvcBound, another)))
	assert.Equal(t, "Mark", step.Verb(), "afterwards it says that it is published")
	gone := decide.Next(observe(volume("west"), real("b-west", mending, phase(corev1.VolumeReleased))))
	assert.Equal(t, "BackingDeleted", gone.Trouble)
	assert.True(t, gone.Tell.Warning)
	assert.Contains(t, gone.Tell.Text, "see the events NotHealed and NameTaken of the claim and of volume real-home there")
	soon := decide.Next(observe(volume("west"), real("b-west", mending, phase(corev1.VolumeReleased)), lately))
	assert.Empty(t, soon.Trouble)
	told := decide.Next(observe(volume("west"), have("west", full, terminating))).Tell.Text
	gone = decide.Next(observe(volume(keys.Home), have(keys.Home, pvcBound, published, terminating, func(b *steps.Backing) {
		b.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}), leaving))
	assert.Contains(t, gone.Tell.Text, "run kubectl annotate pv pvc-u1 lodestone.dev/healing=Delete, the like for each claim there")
	assert.Contains(t, told, "keep a copy of it, set its volume real-west to policy Retain, take that finalizer off")
}

func TestTheClockOfAnotherClusterChangesNothing(t *testing.T) {
	skewed := func(by time.Duration) change {
		return func(o *steps.Observation) {
			for i := range o.Backings {
				claim := o.Backings[i].Claim
				claim.CreationTimestamp = metav1.NewTime(now.Add(by))
				if claim.DeletionTimestamp != nil {
					claim.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(by)))
				}
			}
			if o.Real != nil {
				o.Real.CreationTimestamp, o.Real.Status.LastPhaseTransitionTime = metav1.NewTime(now.Add(by)), ptr.To(metav1.NewTime(now.Add(by)))
			}
		}
	}
	full, served := func(b *steps.Backing) { pvcBound(b); published(b) }, mapped(steps.Mapped{Given: true})
	for name, given := range map[string][]change{
		"a shadow that waits":           {on("west-1"), parameter(keys.RemoteClass, "now"), have("west", of("now"))},
		"one that somebody deleted":     {volume("west"), have("west", full, terminating), served},
		"one that is made anew":         {volume("west"), real("b-west", mending, phase(corev1.VolumeReleased)), served},
		"one that is there twice":       {volume("west"), have("west", full, another), real("b-new", mending, phase(corev1.VolumeBound))},
		"one that the agent has to end": {volume("west"), have("west", full, terminating), real("b-west", mending), served},
	} {
		for _, when := range []change{lately, func(*steps.Observation) {}} {
			right := decide.Next(observe(append(slices.Clone(given), skewed(0), when)...))
			for _, by := range []time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 10 * 365 * 24 * time.Hour} {
				assert.Equal(t, right.Tell, decide.Next(observe(append(slices.Clone(given), skewed(by), when)...)).Tell, "%s, %v", name, by)
			}
		}
	}
}
