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
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

func TestNextForASize(t *testing.T) {
	const idle = decide.Idle
	full := func(b *decide.Backing) { pvcBound(b); published(b) }
	pending := func(b *decide.Backing) { published(b) }
	west, home := volume("west"), volume(keys.Home)
	check(t, map[string]row{
		"a claim that has what it asks for": {given: []change{west, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"))}, verb: idle},
		"a larger request goes to the shadow": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"))}, verb: decide.Expand, cluster: "west"},
		"… not while its cluster is away": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi")), unreachable("west", 0)}, verb: idle, tell: "ExpansionWaits"},
		"… a claim that has what it asks for does not mind": {
			given: []change{west, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi")), unreachable("west", 0)}, verb: idle},
		"… not while the backing claim is being deleted": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), terminating)}, verb: idle, tell: "BackingDeleted"},
		"… not for a claim that is not bound to the volume": {
			given: []change{west, inUse("3Gi", "2Gi"), boundTo("other"), have("west", full, asks("2Gi", "2Gi"))}, verb: idle},
		"… and waits for the shadow to be bound, but says so": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", pending, asks("2Gi", ""))}, verb: idle, tell: "ExpansionWaits"},
		"a request that was lowered goes to the shadow, too": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", full, asks("9Gi", "2Gi"))}, verb: decide.Expand, cluster: "west"},
		"… unless the shadow has reached more": {
			given: []change{volume("west", large), inUse("3Gi", "9Gi"), have("west", full, asks("9Gi", "9Gi"))}, verb: idle},
		"what the shadow reached is reflected, after the volume has it": {
			given: []change{volume("west", large), inUse("3Gi", "2Gi"), have("west", full, asks("3Gi", "3Gi"))}, verb: decide.Reflect, cluster: keys.Home, tell: "VolumeResizeSuccessful"},
		"… which comes first": {
			given: []change{volume("west", small), inUse("3Gi", "1Gi"), have("west", full, asks("3Gi", "3Gi"))}, verb: decide.Update, cluster: keys.Home},
		"a size that somebody chose there is reflected and told of": {
			given: []change{volume("west", large), inUse("2Gi", "2Gi"), have("west", full, asks("5Gi", "5Gi"))}, verb: decide.Reflect, cluster: keys.Home, tell: "BackingResized"},
		"a size that was rounded up when the shadow was bound is not worth a word": {
			given: []change{west, inUse("1Gi", "1Gi"), have("west", full, asks("1Gi", "2Gi"))}, verb: decide.Reflect, cluster: keys.Home},
		"a size that got smaller there is not believed": {
			given: []change{west, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "1Gi"))}, verb: idle},
		"a failure there is reflected and told of": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", full, asks("3Gi", "2Gi"), says(corev1.PersistentVolumeClaimControllerResizeError, "pool is full"))},
			verb:  decide.Reflect, cluster: keys.Home, tell: "ExpansionFailed"},
		"a size that was refused is said on the claim": {
			given: []change{west, inUse("3Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi")), declined("3Gi")}, verb: decide.Reflect, cluster: keys.Home, tell: "QuotaExceeded", after: true},
		"… another one is asked for at once": {
			given: []change{west, inUse("4Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi")), declined("3Gi")}, verb: decide.Expand, cluster: "west"},
		"… and what is no longer asked for does not matter": {
			given: []change{west, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi")), declined("3Gi")}, verb: idle},
		"a volume of a driver at home is left to the driver": {
			given: []change{home, inUse("3Gi", "2Gi"), have(keys.Home, full, asks("2Gi", "2Gi"), of("roomy"))}, verb: idle},
		"… with a word where its class does not allow it": {
			given: []change{home, inUse("3Gi", "2Gi"), have(keys.Home, full, asks("2Gi", "2Gi"), of("now"))}, verb: idle, tell: "ExpansionNotAllowed"},
		"… its twin follows once it is done": {
			given: []change{home, inUse("3Gi", "3Gi"), have(keys.Home, full, asks("2Gi", "2Gi"))}, verb: decide.Expand, cluster: keys.Home},
		"… not if that was refused": {
			given: []change{home, inUse("3Gi", "3Gi"), have(keys.Home, full, asks("2Gi", "2Gi")), declined("3Gi")}, verb: idle, tell: "QuotaExceeded", after: true},
		"… and is not waited for": {
			given: []change{home, inUse("3Gi", "3Gi"), have(keys.Home, full, asks("3Gi", "2Gi"))}, verb: idle},
		"… a twin that its administrator made larger is told of": {
			given: []change{home, inUse("2Gi", "2Gi"), have(keys.Home, full, asks("5Gi", "2Gi"))}, verb: idle, tell: "BackingResized"},
		"… a twin that waits for a kubelet is done": {
			given: []change{home, inUse("2Gi", "2Gi"), have(keys.Home, full, asks("2Gi", "1Gi"), says(corev1.PersistentVolumeClaimFileSystemResizePending, ""))},
			verb:  decide.Reflect, cluster: keys.Home},
		"… but not before its real volume has grown": {
			given: []change{home, inUse("3Gi", "3Gi"), have(keys.Home, full, asks("3Gi", "1Gi"), says(corev1.PersistentVolumeClaimFileSystemResizePending, ""))}, verb: idle},
		"a volume without a driver at home is expanded through its twin": {
			given: []change{volume(keys.Home, driverless), inUse("3Gi", "2Gi"), have(keys.Home, full, asks("2Gi", "2Gi"))}, verb: decide.Expand, cluster: keys.Home},
		"a claim whose real class does not allow expansion is told so before it asks": {
			given: []change{west, growing, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), of("now"))}, verb: decide.Fix, cluster: keys.Home},
		"… once": {
			given: []change{west, growing, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), of("now")), annotated(keys.FixedSize, fixed)}, verb: idle},
		"… not if its own class does not allow it either": {
			given: []change{west, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), of("now"))}, verb: idle},
		"… not if its real class is not known": {
			given: []change{west, growing, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), of("gone")), annotated(keys.FixedSize, fixed)}, verb: idle},
		"… and told otherwise once it does": {
			given: []change{west, growing, inUse("2Gi", "2Gi"), have("west", full, asks("2Gi", "2Gi"), of("roomy")), annotated(keys.FixedSize, fixed)}, verb: decide.Fix, cluster: keys.Home},
		"a shadow that is not bound yet is waited for": {
			given: []change{volume("west", justMade), inUse("2Gi", "2Gi"), have("west", pending, asks("2Gi", ""))}, verb: idle, after: true},
		"… and told of when it takes long": {
			given: []change{west, inUse("2Gi", "2Gi"), have("west", pending, asks("2Gi", "")), said("west", "", "")}, verb: idle, tell: "BackingPending", after: true},
	})
}

func TestWhatIsReflected(t *testing.T) {
	full := func(b *decide.Backing) { pvcBound(b); published(b) }
	foreign := corev1.PersistentVolumeClaimCondition{Type: "Foreign", Status: corev1.ConditionTrue}
	o := observe(volume("west"), inUse("3Gi", "1Gi"), have("west", full, asks("3Gi", "1Pi"),
		says(corev1.PersistentVolumeClaimResizing, ""), says(corev1.PersistentVolumeClaimResizing, "twice"), says("Hostile", "x"),
		says(corev1.PersistentVolumeClaimNodeResizeError, strings.Repeat("é", 5000)),
		func(b *decide.Backing) {
			b.Claim.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Pi"), "x": resource.MustParse("1")}
			b.Claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: "Hostile"}
		}))
	o.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{foreign}
	step := decide.Next(o)
	require.Equal(t, decide.Reflect, step.Verb)
	assert.Same(t, o.Claim, step.On)
	assert.Equal(t, "2Gi", step.Status.Capacity.Storage().String(), "no more than the volume")
	assert.Equal(t, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}, step.Status.AllocatedResources, "no more than was asked for")
	assert.Empty(t, step.Status.AllocatedResourceStatuses)
	require.Len(t, step.Status.Conditions, 3)
	assert.Equal(t, foreign, step.Status.Conditions[0], "what others say stays")
	assert.Empty(t, step.Status.Conditions[1].Message)
	assert.Len(t, step.Status.Conditions[2].Message, 1024)

	o.Claim.Status = *step.Status
	assert.Equal(t, decide.Idle, decide.Next(o).Verb, "once written it is not written again")
	o.Now = now.Add(time.Hour)
	assert.Equal(t, decide.Idle, decide.Next(o).Verb, "nor later")
}

// inUse binds the claim to its volume; it asks for a size and has one.
func inUse(request, capacity string) change {
	return func(o *decide.Observation) {
		o.Claim.Spec.VolumeName = "pvc-u1"
		o.Claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)}
		o.Claim.Status.Phase = corev1.ClaimBound
		o.Claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
	}
}

// asks says what a backing claim asks for and has.
func asks(request, capacity string) func(*decide.Backing) {
	return func(b *decide.Backing) {
		b.Claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)}
		if capacity != "" {
			b.Claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
		}
	}
}

func says(kind corev1.PersistentVolumeClaimConditionType, message string) func(*decide.Backing) {
	return func(b *decide.Backing) {
		b.Claim.Status.Conditions = append(b.Claim.Status.Conditions, corev1.PersistentVolumeClaimCondition{Type: kind, Status: corev1.ConditionTrue, Message: message})
	}
}

func declined(size string) change {
	return func(o *decide.Observation) {
		o.Declined = &decide.Declined{Size: resource.MustParse(size), Reason: "QuotaExceeded", Message: "raise the quota", Until: now.Add(time.Minute)}
	}
}

// fixed is what a claim in west of class "now" says.
const fixed = `real storage class "now" in cluster west does not allow expansion`

func growing(o *decide.Observation)         { o.Class.AllowVolumeExpansion = ptr.To(true) }
func driverless(v *corev1.PersistentVolume) { v.Spec.CSI = nil }
func justMade(v *corev1.PersistentVolume)   { v.CreationTimestamp = metav1.NewTime(now) }
func large(v *corev1.PersistentVolume) {
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("9Gi")}
}
