package imports

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestNextAndJudgeOfAnImportFromARemoteCluster(t *testing.T) {
	type alter func(*Away)
	marked := func(a *Away) {
		a.Shadow.Finalizers = []string{keys.BackingFinalizer}
		a.Shadow.Labels = map[string]string{keys.HomeID: "h1"}
		a.Shadow.Annotations = map[string]string{keys.Claim: "shop/data"}
	}
	old := func(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) alter {
		return func(a *Away) {
			a.Old = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-o1"}}
			a.Old.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
			a.Old.Spec.PersistentVolumeReclaimPolicy, a.Old.Status.Phase = policy, phase
		}
	}
	made := func(a *Away) {
		a.Claim = virtualClaim(a.Target, "lodestone", remoteID("west", a.Shadow), nil, a.Real)
		a.Claim.UID, a.Claim.Status.Phase = "n1", corev1.ClaimPending
	}
	owned := func(a *Away) { a.Shadow.Labels[keys.ClaimUID] = "n1" }
	published := func(a *Away) {
		a.Virtual = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: remoteID("west", a.Shadow)}}}
	}
	claimBound := func(a *Away) { a.Claim.Status.Phase = corev1.ClaimBound }
	cleared := func(a *Away) { delete(a.Claim.Annotations, keys.Import) }
	going := func(a *Away) { a.Shadow.DeletionTimestamp = ptr.To(metav1.Now()) }
	for name, test := range map[string]struct {
		given []alter
		want  Step
		code  outcome.Code
	}{
		"it is protected first":              {want: Mark},
		"it is no longer unpublished":        {given: []alter{marked, func(a *Away) { a.Shadow.Annotations[keys.Unpublished] = "true" }}, want: Mark},
		"what was kept loses its old volume": {given: []alter{marked, old(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)}, want: DropOld},
		"… also one that was declared lost": {given: []alter{marked, old(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain),
			func(a *Away) { a.Old.Annotations = map[string]string{keys.Lost: "2026-01-01T00:00:00Z"} }}, want: DropOld},
		"… which is going":             {given: []alter{marked, old(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain), func(a *Away) { a.Old.DeletionTimestamp = ptr.To(metav1.Now()) }}, want: Wait},
		"… not if it is in use":        {given: []alter{marked, old(corev1.VolumeBound, corev1.PersistentVolumeReclaimRetain)}, code: outcome.Refused},
		"… not if its data goes":       {given: []alter{marked, old(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete)}, code: outcome.Refused},
		"the virtual claim is made":    {given: []alter{marked}, want: Make},
		"the name is taken":            {given: []alter{marked, made, cleared}, code: outcome.Refused},
		"the claim there is told":      {given: []alter{marked, made}, want: Own},
		"the virtual volume is made":   {given: []alter{marked, made, owned}, want: Publish},
		"the virtual claim is bound":   {given: []alter{marked, made, owned, published}, want: Wait},
		"the record goes":              {given: []alter{marked, made, owned, published, claimBound}, want: Clear},
		"all is done":                  {given: []alter{marked, made, owned, published, claimBound, cleared}, want: Done},
		"a pod uses it":                {given: []alter{func(a *Away) { a.Users = []string{"app"} }}, code: outcome.Refused},
		"it is being deleted":          {given: []alter{going}, code: outcome.Refused},
		"… also later":                 {given: []alter{marked, made, going}, code: outcome.Refused},
		"it is not bound":              {given: []alter{func(a *Away) { a.Shadow.Status.Phase, a.Real = corev1.ClaimPending, nil }}, code: outcome.Refused},
		"it belongs to another home":   {given: []alter{marked, func(a *Away) { a.Shadow.Labels[keys.HomeID] = "h2" }}, code: outcome.Refused},
		"it belongs to a claim":        {given: []alter{marked, func(a *Away) { a.Owner = &corev1.PersistentVolumeClaim{} }}, code: outcome.Refused},
		"it belongs to a pod":          {given: []alter{func(a *Away) { a.Shadow.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod"}} }}, code: outcome.Refused},
		"it is not there":              {given: []alter{func(a *Away) { a.Shadow = nil }}, code: outcome.Failed},
		"the virtual claim is deleted": {given: []alter{marked, made, func(a *Away) { a.Claim.DeletionTimestamp = ptr.To(metav1.Now()) }}, want: Wait},
	} {
		t.Run(name, func(t *testing.T) {
			a := Away{Cluster: "west", HomeID: "h1", Target: target, Real: home().Real, Shadow: home().Holder}
			for _, change := range test.given {
				change(&a)
			}
			step, what, err := a.Next()
			assert.Equal(t, test.code, outcome.Of(err), "%v", err)
			assert.Equal(t, test.want, step)
			assert.Equal(t, step == Wait, what != "", what)
		})
	}
}
