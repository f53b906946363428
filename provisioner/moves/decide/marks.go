package decide

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Marked is a claim with what a move writes on claims, and what was just read from API servers about it.
type Marked struct {
	Claim *corev1.PersistentVolumeClaim
	// Moves says that a move holds the claim, or that a VolumeMove names it that has not ended.
	Moves bool
	// Virtual says that the claim has, or would have, a virtual volume. Volume is the volume that it names, Backing the claim that
	// this stands for; nil if there is none.
	Virtual bool
	Volume  *corev1.PersistentVolume
	Backing *corev1.PersistentVolumeClaim
	// Standing compares the volume with all real claims of the claim.
	Standing backing.Standing
	// Unread says why it is not known what real claims there are; empty if it is.
	Unread string
}

// WhyKeepMarks says why the marks of a move stay on a claim that no move holds: its volume may not be the newest of its data, as
// after a restore of a backup that was made during a move, and without the marks pods would write to it. Empty if they can be taken
// off, which a person who may do so can also decide.
func WhyKeepMarks(m Marked) string {
	ref, err := backing.Ref{}, error(nil)
	if m.Volume != nil && m.Virtual {
		ref, err = backing.RefOf(m.Volume)
	}
	may := slices.Concat(m.Standing.Newer, m.Standing.Unclear)
	switch {
	case m.Claim.Annotations[keys.Unlock] != "" || !m.Virtual:
		return ""
	case m.Unread != "":
		return m.Unread
	case len(may) > 0:
		return fmt.Sprintf("real claim %s in cluster %s may have newer data of it", may[0].Ref().Key(), may[0].Cluster)
	case m.Claim.Spec.VolumeName == "":
		return ""
	case m.Volume == nil || m.Volume.Spec.ClaimRef == nil || m.Volume.Spec.ClaimRef.UID != m.Claim.UID:
		return fmt.Sprintf("its volume %s is gone", m.Claim.Spec.VolumeName)
	case err != nil:
		return fmt.Sprintf("its volume %s does not say where the data is", m.Volume.Name)
	case m.Backing == nil || m.Backing.UID != ref.UID || m.Backing.DeletionTimestamp != nil:
		return fmt.Sprintf("real claim %s in cluster %s, which its volume stands for, is gone", ref.Key(), ref.Cluster)
	case misbound(m):
		return fmt.Sprintf("real claim %s in the home cluster is bound to volume %s, and not to that of the claim", ref.Key(),
			m.Backing.Spec.VolumeName)
	case m.Standing.ReplacedBy > 0, m.Backing.Labels[keys.MoveOf] != "" && backing.ReplacedBy(m.Backing) == 0:
		// The number is missing if an earlier version wrote the label, or the copy was not finished.
		return fmt.Sprintf("real claim %s in cluster %s, which its volume stands for, was replaced by a move, or is a copy that was not "+
			"finished", ref.Key(), ref.Cluster)
	}
	return ""
}

// misbound says whether the twin behind a claim is bound to another volume than that of the claim.
func misbound(m Marked) bool {
	return m.Volume != nil && m.Backing != nil && m.Standing.Current.Cluster == keys.Home && backing.Misbound(m.Volume, m.Backing)
}

// ToldElsewhere says whether the controller of claims tells why the marks stay.
func ToldElsewhere(m Marked) bool { return m.Standing.Behind() || misbound(m) }

// Supersedes returns the generation that the volume of a claim gets before the claim is unlocked because an administrator decided to
// use it as it is: then it is the newest, whatever else there is. 0 if it is that already.
func Supersedes(m Marked) int64 {
	if m.Claim.Annotations[keys.Unlock] == "" || m.Volume == nil || !m.Standing.Behind() {
		return 0
	}
	return m.Standing.After()
}
