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

// change alters an import from a remote cluster for a test.
type change func(*Away)

func awayMarked(a *Away) {
	a.Shadow.Finalizers = []string{keys.BackingFinalizer}
	a.Shadow.Labels = map[string]string{keys.HomeID: "h1"}
	a.Shadow.Annotations = map[string]string{keys.Claim: "shop/data"}
}
func awayOld(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) change {
	return func(a *Away) {
		a.Old = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-o1"}}
		a.Old.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
		a.Old.Spec.PersistentVolumeReclaimPolicy, a.Old.Status.Phase = policy, phase
	}
}
func awayMade(a *Away) {
	a.Claim = virtualClaim(a.Target, "lodestone", remoteID("west", a.Shadow), nil, a.Real)
	a.Claim.UID, a.Claim.Status.Phase = "n1", corev1.ClaimPending
}
func awayOwned(a *Away) { a.Shadow.Labels[keys.ClaimUID] = "n1" }
func awayPublished(a *Away) {
	a.Virtual = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: remoteID("west", a.Shadow)}}}
}
func awayClaimBound(a *Away) { a.Claim.Status.Phase = corev1.ClaimBound }
func awayCleared(a *Away)    { delete(a.Claim.Annotations, keys.Import) }
func awayGoing(a *Away)      { a.Shadow.DeletionTimestamp = ptr.To(metav1.Now()) }
func awayNoted(a *Away)      { a.Shadow.Annotations[keys.Import] = "h1" }

// away returns an import from cluster west that has not begun, with changes.
func away(changes ...change) Away {
	a := Away{Cluster: "west", HomeID: "h1", Target: target, Real: home().Real, Shadow: home().Holder}
	for _, change := range changes {
		change(&a)
	}
	return a
}

func TestNextAndJudgeOfAnImportFromARemoteCluster(t *testing.T) {
	for name, test := range map[string]struct {
		given []change
		want  Step
		code  outcome.Code
	}{
		"it is protected first":              {want: Mark},
		"it is no longer unpublished":        {given: []change{awayMarked, func(a *Away) { a.Shadow.Annotations[keys.Unpublished] = "true" }}, want: Mark},
		"what was kept loses its old volume": {given: []change{awayMarked, awayOld(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)}, want: DropOld},
		"… also one that was declared lost": {given: []change{awayMarked, awayOld(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain),
			func(a *Away) { a.Old.Annotations = map[string]string{keys.Lost: "2026-01-01T00:00:00Z"} }}, want: DropOld},
		"… which is going":             {given: []change{awayMarked, awayOld(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain), func(a *Away) { a.Old.DeletionTimestamp = ptr.To(metav1.Now()) }}, want: Wait},
		"… not if it is in use":        {given: []change{awayMarked, awayOld(corev1.VolumeBound, corev1.PersistentVolumeReclaimRetain)}, code: outcome.Refused},
		"… not if its data goes":       {given: []change{awayMarked, awayOld(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete)}, code: outcome.Refused},
		"the virtual claim is made":    {given: []change{awayMarked}, want: Make},
		"the name is taken":            {given: []change{awayMarked, awayMade, awayCleared}, code: outcome.Refused},
		"the claim there is told":      {given: []change{awayMarked, awayMade}, want: Own},
		"the virtual volume is made":   {given: []change{awayMarked, awayMade, awayOwned}, want: Publish},
		"the virtual claim is bound":   {given: []change{awayMarked, awayMade, awayOwned, awayPublished}, want: Wait},
		"the record goes":              {given: []change{awayMarked, awayMade, awayOwned, awayPublished, awayClaimBound}, want: Clear},
		"all is done":                  {given: []change{awayMarked, awayMade, awayOwned, awayPublished, awayClaimBound, awayCleared}, want: Done},
		"the claim there is let alone": {given: []change{awayMarked, awayMade, awayOwned, awayPublished, awayClaimBound, awayCleared, awayNoted}, want: End},
		"it is virtual there":          {given: []change{func(a *Away) { a.Real.Annotations[keys.Backing] = "east/a/b/c" }}, code: outcome.Refused},
		"a pod uses it":                {given: []change{func(a *Away) { a.Users = []string{"app"} }}, code: outcome.Refused},
		"it is being deleted":          {given: []change{awayGoing}, code: outcome.Refused},
		"… also later":                 {given: []change{awayMarked, awayMade, awayGoing}, code: outcome.Refused},
		"it is not bound":              {given: []change{func(a *Away) { a.Shadow.Status.Phase, a.Real = corev1.ClaimPending, nil }}, code: outcome.Refused},
		"it belongs to another home":   {given: []change{awayMarked, func(a *Away) { a.Shadow.Labels[keys.HomeID] = "h2" }}, code: outcome.Refused},
		"it belongs to a claim":        {given: []change{awayMarked, func(a *Away) { a.Owner = &corev1.PersistentVolumeClaim{} }}, code: outcome.Refused},
		"it belongs to a pod":          {given: []change{func(a *Away) { a.Shadow.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod"}} }}, code: outcome.Refused},
		"it is not there":              {given: []change{func(a *Away) { a.Shadow = nil }}, code: outcome.Failed},
		"the virtual claim is deleted": {given: []change{awayMarked, awayMade, func(a *Away) { a.Claim.DeletionTimestamp = ptr.To(metav1.Now()) }}, want: Wait},
	} {
		t.Run(name, func(t *testing.T) {
			step, what, err := away(test.given...).Next()
			assert.Equal(t, test.code, outcome.Of(err), "%v", err)
			assert.Equal(t, test.want, step)
			assert.Equal(t, step == Wait, what != "", what)
		})
	}
}

func TestUndoOfAnImportFromARemoteCluster(t *testing.T) {
	retain := awayOld(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)
	owner := func(a *Away) { a.Owner = &corev1.PersistentVolumeClaim{} }
	for name, test := range map[string]struct {
		given []change
		want  Step
		code  outcome.Code
	}{
		"nothing is there to undo":                      {want: Done},
		"the claim there is let go":                     {given: []change{awayMarked, awayNoted}, want: Unmark},
		"… first, while the virtual claim is there":     {given: []change{awayMarked, awayNoted, awayMade, awayOwned}, want: Unmark},
		"then the virtual claim goes":                   {given: []change{awayMade}, want: Unmake},
		"… which is going":                              {given: []change{awayMade, func(a *Away) { a.Claim.DeletionTimestamp = ptr.To(metav1.Now()) }}, want: Done},
		"another claim of its name stays":               {given: []change{awayMade, awayCleared}, want: Done},
		"what home kept there stays kept":               {given: []change{awayMarked, retain}, want: Done},
		"… and is not orphaned with a claim under way":  {given: []change{awayMarked, awayMade}, code: outcome.Refused},
		"there is a virtual volume":                     {given: []change{awayMarked, awayNoted, awayMade, awayOwned, awayPublished}, code: outcome.Refused},
		"its virtual claim is no longer that of import": {given: []change{awayMarked, awayNoted, awayMade, awayOwned, awayCleared, owner}, code: outcome.Refused},
		"it is being deleted":                           {given: []change{awayMarked, awayNoted, awayGoing}, code: outcome.Refused},
		"another home has it":                           {given: []change{awayMarked, awayNoted, func(a *Away) { a.Shadow.Labels[keys.HomeID] = "h2" }}, code: outcome.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			step, err := away(test.given...).Back()
			assert.Equal(t, test.code, outcome.Of(err), "%v", err)
			assert.Equal(t, test.want, step)
		})
	}
}
