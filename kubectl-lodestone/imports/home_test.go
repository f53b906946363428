package imports

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The objects of these tests: real volume "real" of claim shop/data (UID c1), to
// become virtual claim shop/data (UID n1) with twin t1.
const storage = "lodestone-storage"

var target = types.NamespacedName{Namespace: "shop", Name: "data"}

type alter func(*Home)

// home returns an import that has not begun.
func home(changes ...alter) Home {
	h := Home{Storage: storage, HomeID: "h1"}
	h.Real = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real", UID: "r1", Annotations: map[string]string{}}}
	h.Real.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "c1"}
	h.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	h.Real.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	h.Real.Status.Phase = corev1.VolumeBound
	h.Holder = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c1"}}
	h.Holder.Spec.VolumeName, h.Holder.Status.Phase = "real", corev1.ClaimBound
	for _, change := range changes {
		change(&h)
	}
	return h
}

func begun(h *Home) {
	h.Record = &Record{Policy: h.Real.Spec.PersistentVolumeReclaimPolicy, From: Holder{Namespace: "shop", Name: "data", UID: "c1"},
		Claim: virtualClaim(target, "lodestone", homeID(h.Real), h.Holder, h.Real)}
	h.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
func lostPolicy(h *Home) {
	h.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
}
func used(h *Home)     { h.Users = []string{"app"} }
func attached(h *Home) { h.Node = "node-1" }
func going(h *Home)    { h.Holder.DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(1, 0))) }
func gone(h *Home)     { h.Holder, h.Real.Status.Phase = nil, corev1.VolumeReleased }
func abroad(h *Home)   { h.Holder.Labels = map[string]string{keys.HomeID: "h2"} }
func healed(h *Home)   { h.Real.Labels = map[string]string{keys.Healing: "h2"} }
func chosen(h *Home)   { h.Chosen = true }
func retained(h *Home) {
	h.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
func elsewhere(h *Home) {
	h.Real.Spec.ClaimRef.Namespace = "bank"
	if h.Holder != nil {
		h.Holder.Namespace = "bank"
	}
}
func protected(h *Home) { h.Holder.Finalizers = []string{keys.BackingFinalizer} }

func made(h *Home) {
	h.Claim = h.Record.Claim.DeepCopy()
	h.Claim.UID, h.Claim.Status.Phase = "n1", corev1.ClaimPending
}

func freed(h *Home) {
	h.Real.Spec.ClaimRef = &corev1.ObjectReference{Namespace: storage, Name: "pvc-n1"}
	h.Real.Status.Phase = corev1.VolumeAvailable
}

func twinned(h *Home) {
	h.Twin = backings.Twin(reference(h.Claim), h.Real, h.twinName(), "h1")
	h.Twin.UID = "t1"
}

func bound(h *Home) {
	h.Real.Spec.ClaimRef.UID, h.Real.Status.Phase, h.Twin.Status.Phase = "t1", corev1.VolumeBound, corev1.ClaimBound
	h.Holder = h.Twin
}
func restored(h *Home) { h.Real.Spec.PersistentVolumeReclaimPolicy = h.Record.Policy }

func published(h *Home) {
	h.Virtual = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-n1", Annotations: map[string]string{keys.BackingVolume: "real", keys.Backing: "home/x/y/t1"}}}
}
func claimBound(h *Home) { h.Claim.Status.Phase = corev1.ClaimBound }
func cleared(h *Home)    { delete(h.Claim.Annotations, keys.Import) }

// old is the virtual volume that stood for a twin that was kept.
func old(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) alter {
	return func(h *Home) {
		h.Holder.Namespace, h.Holder.Name = storage, "pvc-o1"
		h.Holder.Labels = map[string]string{keys.HomeID: "h1", keys.ClaimUID: "o1"}
		h.Old = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-o1"}}
		h.Old.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "o1"}
		h.Old.Spec.PersistentVolumeReclaimPolicy, h.Old.Status.Phase = policy, phase
	}
}

func kept(h *Home) { old(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)(h) }

func TestNextAtHome(t *testing.T) {
	for name, test := range map[string]struct {
		given []alter
		want  Step
		code  outcome.Code
	}{
		"its claim goes":                        {given: []alter{begun}, want: Delete},
		"… not while a pod uses it":             {given: []alter{begun, used}, code: outcome.Refused},
		"… nor while it is attached":            {given: []alter{begun, attached}, code: outcome.Refused},
		"… nor before the volume outlives it":   {given: []alter{begun, lostPolicy}, want: Keep},
		"its claim is going":                    {given: []alter{begun, going}, want: Wait},
		"… and a pod holds it":                  {given: []alter{begun, going, used}, want: Wait},
		"a twin that was kept loses its volume": {given: []alter{begun, kept}, want: DropOld},
		"… not if that is in use": {
			given: []alter{begun, old(corev1.VolumeBound, corev1.PersistentVolumeReclaimRetain)}, code: outcome.Refused},
		"… not if it would delete the data": {
			given: []alter{begun, old(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete)}, code: outcome.Refused},
		"a twin that is going is let go":        {given: []alter{begun, going, protected}, want: LetGo},
		"its claim is gone":                     {given: []alter{begun, gone}, want: Make},
		"another claim has the name":            {given: []alter{begun, gone, made, cleared}, code: outcome.Refused},
		"… which is seen before its claim goes": {given: []alter{begun, made, cleared}, code: outcome.Refused},
		"another home has its claim":            {given: []alter{begun, abroad}, code: outcome.Refused},
		"another home heals its claim":          {given: []alter{begun, healed}, code: outcome.Refused},
		"another claim has the volume":          {given: []alter{begun, func(h *Home) { h.Holder.UID = "other" }}, code: outcome.Refused},
		"the virtual claim is there":            {given: []alter{begun, gone, made}, want: Free},
		"the volume waits for the twin":         {given: []alter{begun, gone, made, freed}, want: Twin},
		"the twin waits for the volume":         {given: []alter{begun, gone, made, freed, twinned}, want: Wait},
		"the twin is somebody else's":           {given: []alter{begun, gone, made, freed, twinned, func(h *Home) { h.Twin.Labels = nil }}, code: outcome.Refused},
		"the twin has the volume":               {given: []alter{begun, gone, made, freed, twinned, bound}, want: Restore},
		"the policy is as it was":               {given: []alter{begun, gone, made, freed, twinned, bound, restored}, want: Publish},
		"the virtual volume is there":           {given: []alter{begun, gone, made, freed, twinned, bound, restored, published}, want: Wait},
		"the virtual claim is bound":            {given: []alter{begun, gone, made, freed, twinned, bound, restored, published, claimBound}, want: Clear},
		"all but the record is done":            {given: []alter{begun, gone, made, freed, twinned, bound, restored, published, claimBound, cleared}, want: End},
		"somebody deletes the volume":           {given: []alter{begun, func(h *Home) { h.Real.DeletionTimestamp = ptr.To(metav1.Now()) }}, code: outcome.Refused},
		"somebody deleted the virtual claim after its twin was bound": {given: []alter{begun, gone, made, freed, twinned, bound, restored,
			func(h *Home) { h.Holder, h.Claim, h.Twin = h.Twin, nil, nil }}, want: Keep},
		"… and that twin goes then": {given: []alter{begun, gone, made, freed, twinned, bound,
			func(h *Home) { h.Holder, h.Claim, h.Twin = h.Twin, nil, nil }}, want: Delete},
		"… unless its virtual claim is there": {given: []alter{begun, gone, made, freed, twinned, bound,
			func(h *Home) { h.Holder, h.Owner, h.Claim, h.Twin = h.Twin, h.Claim, nil, nil }}, code: outcome.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			step, what, err := home(test.given...).Next()
			assert.Equal(t, test.code, outcome.Of(err), "%v", err)
			assert.Equal(t, test.want, step)
			assert.Equal(t, step == Wait, what != "", what)
		})
	}
}

func TestTheVirtualClaimIsAsTheRealOneWas(t *testing.T) {
	h := home()
	h.Holder.Labels = map[string]string{"team": "a", keys.HomeID: "h1"}
	h.Holder.Annotations = map[string]string{"note": "b", "pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n", keys.Claim: "x/y"}
	h.Holder.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	h.Holder.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	claim := virtualClaim(target, "lodestone", homeID(h.Real), h.Holder, h.Real)
	assert.Equal(t, map[string]string{"team": "a"}, claim.Labels)
	assert.Equal(t, map[string]string{"note": "b", keys.Import: "home/real/r1"}, claim.Annotations)
	assert.Equal(t, h.Holder.Spec.AccessModes, claim.Spec.AccessModes)
	assert.Equal(t, "1Gi", ptr.To(claim.Spec.Resources.Requests[corev1.ResourceStorage]).String())
	h.Holder.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("9Gi")
	claim = virtualClaim(target, "lodestone", "id", h.Holder, h.Real)
	assert.Equal(t, "2Gi", ptr.To(claim.Spec.Resources.Requests[corev1.ResourceStorage]).String(), "never more than there is")

	begun(&h)
	text, err := h.Record.text()
	require.NoError(t, err)
	h.Real.Annotations[keys.Import] = text
	read, err := recordOf(h.Real)
	require.NoError(t, err)
	assert.Equal(t, h.Record.From, read.From)
	h.Real.Annotations[keys.Import] = "{}"
	_, err = recordOf(h.Real)
	assert.ErrorContains(t, err, "cannot be read")
}
