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
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

func TestNextForASize(t *testing.T) {
	const idle = "Idle"
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	pending := func(b *steps.Backing) { published(b) }
	west, home := volume("west"), volume(keys.Home)
	check(t, map[string]row{
		"a claim that has what it asks for": {given: []change{west, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"))}, verb: idle},
		"a larger request goes to the shadow": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"))}, verb: "Expand", cluster: "west"},
		"… not while its cluster is away": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi")), unreachable("west", 0)}, verb: idle,
			tell: "ExpansionWaits"},
		"… a claim that has what it asks for does not mind": {
			given: []change{west, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi")), unreachable("west", 0)}, verb: idle},
		"… not while the backing claim is being deleted": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), terminating)}, verb: idle, tell: "BackingDeleted"},
		"… not for a claim that is not bound to the volume": {
			given: []change{west, inUse("3Gi", "2Gi"), boundTo("other"), have("west", full, asks("2Gi", "2Gi"))}, verb: idle},
		"… and waits for the shadow to be bound, but says so": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", pending, asks("2Gi", ""))}, verb: idle, tell: "ExpansionWaits"},
		"a request that was lowered goes to the shadow, too": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", full, asks("9Gi", "2Gi"))}, verb: "Expand", cluster: "west"},
		"… unless the shadow has reached more": {
			given: []change{volume("west", large), inUse("3Gi", "9Gi"), have("west", full, asks("9Gi", "9Gi"))}, verb: idle},
		"what the shadow reached is reflected, after the volume has it": {
			given: []change{volume("west", large), inUse("3Gi", "2Gi"), have("west", full, asks("3Gi", "3Gi"))}, verb: "Reflect", cluster: keys.Home,
			tell: "VolumeResizeSuccessful"},
		"… which comes first": {
			given: []change{volume("west", small), inUse("3Gi", "1Gi"), have("west", full, asks("3Gi", "3Gi"))}, verb: "Update", cluster: keys.Home},
		"a size that somebody chose there is reflected and told of": {
			given: []change{volume("west", large), inUse("2Gi", "2Gi"), have("west", full, asks("5Gi", "5Gi"))}, verb: "Reflect", cluster: keys.Home,
			tell: "BackingResized"},
		"a size that was rounded up when the shadow was bound is not worth a word": {
			given: []change{west, inUse("1Gi", "1Gi"), have("west", full, asks("1Gi", "2Gi"))}, verb: "Reflect", cluster: keys.Home},
		"a size that got smaller there is not believed": {
			given: []change{west, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "1Gi"))}, verb: idle},
		"a failure there is reflected and told of": {
			given: []change{west, inUse("3Gi", "2Gi"),
				have("west", full, asks("3Gi", "2Gi"), says(corev1.PersistentVolumeClaimControllerResizeError, "pool is full"))},
			verb: "Reflect", cluster: keys.Home, tell: "ExpansionFailed"},
		"a size that was refused is said on the claim": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi")), declined("3Gi")}, verb: "Reflect", cluster: keys.Home,
			tell: "QuotaExceeded", after: true},
		"… another one is asked for at once": {
			given: []change{west, inUse("4Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi")), declined("3Gi")}, verb: "Expand", cluster: "west"},
		"… and what is no longer asked for does not matter": {
			given: []change{west, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi")), declined("3Gi")}, verb: idle},
		"a volume of a driver at home is left to the driver": {
			given: []change{home, inUse("3Gi", "2Gi"), have(keys.Home, full, asks("2Gi", "2Gi"), of("roomy"))}, verb: idle},
		"… with a word where its class does not allow it": {
			given: []change{home, inUse("3Gi", "2Gi"), have(keys.Home, full, asks("2Gi", "2Gi"), of("now"))}, verb: idle,
			tell: "ExpansionNotAllowed"},
		"… its twin follows once it is done": {
			given: []change{home, inUse("3Gi", "3Gi"), have(keys.Home, full, asks("2Gi", "2Gi"))}, verb: "Expand", cluster: keys.Home},
		"… not if that was refused": {
			given: []change{home, inUse("3Gi", "3Gi"), have(keys.Home, full, asks("2Gi", "2Gi")), declined("3Gi")}, verb: idle,
			tell: "QuotaExceeded", after: true},
		"… and is not waited for": {
			given: []change{home, inUse("3Gi", "3Gi"), have(keys.Home, full, asks("3Gi", "2Gi"))}, verb: idle},
		"… a twin that its administrator made larger is told of": {
			given: []change{home, inUse("2Gi", "2Gi"), have(keys.Home, full, asks("5Gi", "2Gi"))}, verb: idle, tell: "BackingResized"},
		"… a twin that waits for a kubelet is done": {
			given: []change{home, inUse("2Gi", "2Gi"),
				have(keys.Home, full, asks("2Gi", "1Gi"), says(corev1.PersistentVolumeClaimFileSystemResizePending, ""))},
			verb: "Reflect", cluster: keys.Home},
		"… but not before its real volume has grown": {
			given: []change{home, inUse("3Gi", "3Gi"),
				have(keys.Home, full, asks("3Gi", "1Gi"), says(corev1.PersistentVolumeClaimFileSystemResizePending, ""))}, verb: idle},
		"a volume without a driver at home is expanded through its twin": {
			given: []change{volume(keys.Home, driverless), inUse("3Gi", "2Gi"), have(keys.Home, full, asks("2Gi", "2Gi"))}, verb: "Expand",
			cluster: keys.Home},
		"a claim whose real class does not allow expansion is told so before it asks": {
			given: []change{west, growing, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), of("now"))}, verb: "Fix", cluster: keys.Home},
		"… once": {
			given: []change{west, growing, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), of("now")), annotated(keys.FixedSize, fixed)},
			verb:  idle},
		"… not if its own class does not allow it either": {
			given: []change{west, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), of("now"))}, verb: idle},
		"… not if its real class is not known": {
			given: []change{west, growing, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), of("gone")),
				annotated(keys.FixedSize, fixed)}, verb: idle},
		"… and told otherwise once it does": {
			given: []change{west, growing, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), of("roomy")),
				annotated(keys.FixedSize, fixed)}, verb: "Fix", cluster: keys.Home},
		"a shadow that is not bound yet is waited for": {
			given: []change{volume("west", justMade), inUse("2Gi", "2Gi"), have("west", pending, asks("2Gi", ""))}, verb: idle, after: true},
		"… and told of when it takes long": {
			given: []change{west, inUse("2Gi", "2Gi"), have("west", pending, asks("2Gi", "")), said("west", "", "")}, verb: idle,
			tell: "BackingPending", after: true},
	})
}

func TestWhatIsReflected(t *testing.T) {
	full := func(b *steps.Backing) { pvcBound(b); published(b) }
	foreign := corev1.PersistentVolumeClaimCondition{Type: "Foreign", Status: corev1.ConditionTrue}
	o := observe(volume("west"), inUse("3Gi", "1Gi"), have("west", full, asks("3Gi", "1Pi"),
		says(corev1.PersistentVolumeClaimResizing, ""), says(corev1.PersistentVolumeClaimResizing, "twice"), says("Hostile", "x"),
		says(corev1.PersistentVolumeClaimNodeResizeError, strings.Repeat("é", 5000)),
		func(b *steps.Backing) {
			b.Claim.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Pi"), "x": resource.MustParse("1")}
			b.Claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: "Hostile"}
		}))
	o.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{foreign}
	step := decide.Next(o)
	require.Equal(t, "Reflect", step.Verb())
	assert.Same(t, o.Claim, as[steps.UpdateClaimStatus](step).On)
	assert.Equal(t, "2Gi", as[steps.UpdateClaimStatus](step).Status.Capacity.Storage().String(), "no more than the volume")
	assert.Equal(t, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")},
		as[steps.UpdateClaimStatus](step).Status.AllocatedResources, "no more than was asked for")
	assert.Empty(t, as[steps.UpdateClaimStatus](step).Status.AllocatedResourceStatuses)
	require.Len(t, as[steps.UpdateClaimStatus](step).Status.Conditions, 3)
	assert.Equal(t, foreign, as[steps.UpdateClaimStatus](step).Status.Conditions[0], "what others say stays")
	assert.Empty(t, as[steps.UpdateClaimStatus](step).Status.Conditions[1].Message)
	assert.Len(t, as[steps.UpdateClaimStatus](step).Status.Conditions[2].Message, 1024)

	o.Claim.Status = *as[steps.UpdateClaimStatus](step).Status
	assert.Equal(t, "Idle", decide.Next(o).Verb(), "once written it is not written again")
	o.Now = now.Add(time.Hour)
	assert.Equal(t, "Idle", decide.Next(o).Verb(), "nor later")
}

// inUse binds the claim to its volume, with this requested size and this capacity.
func inUse(request, capacity string) change {
	return func(o *steps.Observation) {
		o.Claim.Spec.VolumeName = "pvc-u1"
		o.Claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)}
		o.Claim.Status.Phase = corev1.ClaimBound
		o.Claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
	}
}

// asks sets the requested size and the capacity of a backing claim.
func asks(request, capacity string) func(*steps.Backing) {
	return func(b *steps.Backing) {
		b.Claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)}
		if capacity != "" {
			b.Claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
		}
	}
}

func says(kind corev1.PersistentVolumeClaimConditionType, message string) func(*steps.Backing) {
	return func(b *steps.Backing) {
		b.Claim.Status.Conditions = append(b.Claim.Status.Conditions,
			corev1.PersistentVolumeClaimCondition{Type: kind, Status: corev1.ConditionTrue, Message: message})
	}
}

func declined(size string) change {
	return func(o *steps.Observation) {
		o.RefusedSize = &steps.RefusedSize{Size: resource.MustParse(size), Reason: "QuotaExceeded", Message: "raise the quota",
			Until: now.Add(time.Minute)}
	}
}

// fixed is the text on a claim of class "now" in west.
const fixed = `real storage class "now" in cluster west does not allow expansion`

func growing(o *steps.Observation)          { o.Class.AllowVolumeExpansion = ptr.To(true) }
func driverless(v *corev1.PersistentVolume) { v.Spec.CSI = nil }
func justMade(v *corev1.PersistentVolume)   { v.CreationTimestamp = metav1.NewTime(now) }
func large(v *corev1.PersistentVolume) {
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("9Gi")}
}

// attributed sets the attributes class in the status of the virtual claim.
func attributed(name string) change {
	return func(o *steps.Observation) { o.Claim.Status.CurrentVolumeAttributesClassName = &name }
}

// having gives a backing claim an attributes class, done its volume too.
func having(name string) func(*steps.Backing) {
	return func(b *steps.Backing) { b.Claim.Spec.VolumeAttributesClassName = &name }
}

func done(name string) func(*steps.Backing) {
	return func(b *steps.Backing) {
		having(name)(b)
		b.Claim.Status.CurrentVolumeAttributesClassName = &name
	}
}

// infeasible makes the driver in west report that it cannot apply the attributes.
func infeasible(name string) func(*steps.Backing) {
	return func(b *steps.Backing) {
		having(name)(b)
		b.Claim.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: name,
			Status: corev1.PersistentVolumeClaimModifyVolumeInfeasible}
	}
}

// modifyStatus gives the virtual claim that status already.
func modifyStatus(name string) change {
	return func(o *steps.Observation) {
		o.Claim.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: name,
			Status: corev1.PersistentVolumeClaimModifyVolumeInfeasible}
	}
}

// ungiven are attributes that the cluster recently refused.
func ungiven(name string) change {
	return func(o *steps.Observation) {
		o.RefusedAttributes = &steps.RefusedAttributes{Attributes: name, Reason: "NoAttributesClass", Message: "create it there",
			Until: now.Add(time.Minute)}
	}
}

// phaseBound sets the phase Bound on the virtual claim.
func phaseBound(o *steps.Observation) { o.Claim.Status.Phase = corev1.ClaimBound }

func quietly(o *steps.Observation) { o.QuietUntil = now.Add(time.Minute) }

func volumeHaving(name string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.VolumeAttributesClassName = &name }
}

// carrying adds an annotation to a backing claim that was copied to it.
func carrying(key string) func(*steps.Backing) {
	return func(b *steps.Backing) {
		b.Claim.Annotations[key] = "a"
		b.Claim.Annotations[keys.Carried] = `{"annotations":["` + key + `"]}`
	}
}

func TestNextKeepsABackingClaimInStep(t *testing.T) {
	bound := boundTo("pvc-u1")
	remote := func(alter ...func(*steps.Backing)) []change {
		return []change{bound, have("west", append([]func(*steps.Backing){pvcBound, published}, alter...)...), volume("west")}
	}
	home := func(alter ...func(*steps.Backing)) []change {
		return []change{bound, have(keys.Home, append([]func(*steps.Backing){pvcBound, published}, alter...)...), volume(keys.Home)}
	}
	with := func(given []change, more ...change) []change { return append(given, more...) }
	team := []change{parameter(keys.Carry, "team"), annotated("team", "a")}
	const idle, modify, carry = "Idle", "Modify", "Carry"
	check(t, map[string]row{
		"other attributes are asked of the remote volume": {given: with(remote(having("silver")), attributes("gold")), verb: modify,
			cluster: "west"},
		"attributes for a volume that had none": {given: with(remote(), attributes("gold")), verb: modify, cluster: "west"},
		"a remote claim that waits for its pod cannot be changed": {
			given: []change{bound, have("west", published, having("silver")), volume("west"), attributes("gold"), said("west", "", "")}, verb: idle,
			tell: "BackingPending", after: true},
		"attributes that are on their way are waited for": {given: with(remote(having("gold")), attributes("gold")), verb: idle},
		"attributes that a remote volume has are told": {given: with(remote(done("gold")), attributes("gold")), verb: "Update",
			cluster: keys.Home},
		"… on the claim too": {
			given: []change{bound, have("west", pvcBound, published, done("gold")), volume("west", volumeHaving("gold")), attributes("gold")},
			verb:  "Update", cluster: keys.Home},
		"attributes that are told": {
			given: []change{bound, have("west", pvcBound, published, done("gold")), volume("west", volumeHaving("gold")), attributes("gold"),
				attributed("gold")}, verb: idle},
		"attributes that a remote volume cannot have are told": {given: with(remote(infeasible("gold")), attributes("gold"),
			modifyStatus("gold")), verb: idle, tell: "AttributesFailed"},
		"… after they were written on the claim": {given: with(remote(infeasible("gold")), phaseBound, attributes("gold")),
			verb: "Reflect", cluster: keys.Home},
		"… and carrying goes on": {given: with(with(remote(infeasible("gold")), attributes("gold"),
			modifyStatus("gold")), team...), verb: carry, cluster: "west", tell: "AttributesFailed"},
		"attributes that were never reached are taken back": {given: remote(having("gold")), verb: modify, cluster: "west"},
		"refused attributes are told and waited with": {given: with(remote(), attributes("gold"), ungiven("gold")), verb: idle,
			tell: "NoAttributesClass", after: true},
		"… but do not keep annotations from being carried": {given: with(with(remote(), attributes("gold"), ungiven("gold")), team...),
			verb: carry, cluster: "west", tell: "NoAttributesClass", after: true},
		"… nor other attributes from being asked for": {given: with(remote(), attributes("silver"), ungiven("gold")), verb: modify,
			cluster: "west"},
		"a cluster that says too much waits to be written": {given: with(remote(infeasible("gold")), phaseBound, attributes("gold"), quietly),
			verb: idle, tell: "AttributesFailed", after: true},
		"attributes that nobody asks for stay": {given: remote(done("gold")), verb: idle},
		"at home the driver changes the volume first": {given: with(home(having("silver")), attributes("gold"), attributed("silver")),
			verb: idle},
		"… then the twin records it": {given: with(home(having("silver")), attributes("gold"), attributed("gold")),
			verb: modify, cluster: keys.Home},
		"nothing is asked for a claim that is being deleted": {given: with(remote(), attributes("gold"), deletedClaim), verb: idle},
		"nothing is asked for a claim of another volume": {given: []change{boundTo("other"), have("west", pvcBound, published),
			volume("west"), attributes("gold")}, verb: idle},
		"nothing is asked of a cluster that cannot be used": {given: with(remote(), attributes("gold"), unreachable("west", time.Minute)),
			verb: idle},
		"an annotation that the class lists is carried": {given: with(remote(), team...), verb: carry, cluster: "west"},
		"… at home too":           {given: with(home(), team...), verb: carry, cluster: keys.Home},
		"what is carried already": {given: with(remote(carrying("team")), team...), verb: idle},
		"what changed there is put right": {given: with(remote(carrying("team")),
			parameter(keys.Carry, "team"), annotated("team", "b")), verb: carry, cluster: "west"},
		"what the claim has no longer is taken off": {given: with(remote(carrying("team")), parameter(keys.Carry, "team")),
			verb: carry, cluster: "west"},
		"what the class does not list any more is taken off": {given: with(remote(carrying("team")), annotated("team", "a")), verb: carry,
			cluster: "west"},
		"without its class everything stays": {given: with(remote(carrying("team")), func(o *steps.Observation) {
			o.Class = nil
		}), verb: idle},
		"with an invalid class everything stays": {given: with(remote(carrying("team")), parameter("tier", "gold")),
			verb: idle},
		"a quarrel about an annotation is not fought at full speed": {given: with(remote(), append(team, func(o *steps.Observation) {
			o.Synced = now.Add(-time.Second)
		})...), verb: idle, after: true},
		"… but goes on": {given: with(remote(), append(team, func(o *steps.Observation) { o.Synced = now.Add(-time.Minute) })...), verb: carry,
			cluster: "west"},
		"a backing claim that is being deleted is told, not brought in step": {given: with(remote(terminating), team...), verb: idle,
			tell: "BackingDeleted"},
	})
}

func TestACarriedAnnotationIsTakenOffAlone(t *testing.T) {
	step := decide.Next(observe(boundTo("pvc-u1"), have("west", pvcBound, published, carrying("team")), volume("west")))
	assert.Empty(t, as[steps.SyncMetadata](step).Labels)
	assert.Equal(t, map[string]any{"team": nil, keys.Carried: nil}, as[steps.SyncMetadata](step).Annotations)
}
