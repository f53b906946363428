package decide_test

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// harmHealing says what is wrong with a step of healing; empty if nothing.
func harmHealing(o decide.Observation, step decide.Step) string {
	var twin *corev1.PersistentVolumeClaim
	for _, b := range o.Backings {
		if b.Cluster == keys.Home {
			twin = b.Claim
		}
	}
	held := twin != nil && twin.DeletionTimestamp == nil && o.Real != nil && o.Real.Spec.ClaimRef.UID == twin.UID
	stays := o.Real != nil && o.Real.DeletionTimestamp == nil && o.Real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
	old := twin != nil && string(twin.UID) == refUID(o)
	if o.Volume != nil && step.Ref.Cluster != keys.Home {
		return harmAdoption(o, step)
	}
	switch {
	case o.Volume == nil || step.Ref.Cluster != keys.Home || step.Cluster != keys.Home:
		return "healed what is not at home"
	case (step.Cure == decide.Begin) == (o.Volume.Annotations[keys.Healing] != ""):
		return "healed without a record, or recorded twice"
	case step.Cure == decide.LetGo && (!stays || !old || twin.DeletionTimestamp == nil || string(o.Real.Spec.ClaimRef.UID) != refUID(o)):
		return "a twin let go whose volume would go with it, or that nobody deleted"
	case step.Cure == decide.Free && (!stays || twin != nil):
		return "a real volume freed that is held, or would not stay"
	case step.Cure == decide.Rebuild && (twin != nil || o.Real.Spec.ClaimRef.UID != ""):
		return "a second twin"
	case step.Cure == decide.Adopt && (old || o.Real.Spec.ClaimRef.UID != twin.UID):
		return "a virtual volume with another's twin"
	case step.Cure == decide.Restore && (!held || !old):
		return "a real volume that nothing holds may be deleted"
	case step.Cure == decide.End && (!held || !old || string(o.Real.Spec.PersistentVolumeReclaimPolicy) != o.Volume.Annotations[keys.Healing]):
		return "a healing ended too early"
	}
	return ""
}

// harmAdoption says what is wrong with a virtual volume that is to name another
// shadow; empty if nothing.
func harmAdoption(o decide.Observation, step decide.Step) string {
	b := step.Backing
	known := o.Volume.Annotations[keys.BackingVolume]
	switch {
	case step.Cluster != keys.Home || step.Cure != decide.Adopt:
		return "healed what is not at home"
	case step.Ref != refOf(o.Volume) || b.Cluster != step.Ref.Cluster || b.Claim.Namespace != step.Ref.Namespace || b.Claim.Name != step.Ref.Name:
		return "a virtual volume with a backing claim of elsewhere"
	case known == "" && backing.Unpublished(b.Claim) && b.Claim.Annotations[keys.SelectedNode] == "":
		return "a virtual volume with a claim that no pod ever used"
	case string(b.Claim.UID) == refUID(o) || b.Volume == nil || known != "" && b.Volume.Name != known:
		return "a virtual volume with the data of another"
	case o.Real != nil && o.Real.Labels[keys.Healing] != "":
		return "a shadow taken that is not whole yet"
	case !o.Cluster(b.Cluster).Usable:
		return "a cluster believed that is away"
	}
	return ""
}
