package steps

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// WhyInUseSince says that the copy at the target of a move that is not committed is in use; empty if it is not, as far as
// can be observed. One that the move adopts was in use before.
func WhyInUseSince(o Observation) string {
	if o.Record.Adopts {
		return ""
	}
	for i, claim := range o.Claims {
		known, s, b := o.Record.Claims[i], claim.Source.Backing, claim.Target.Backing
		observed := o.Target.Unusable == "" && known.Target.Ref.UID != ""
		if s != nil && s.UID == known.Source.Ref.UID && s.Labels[keys.MoveOf] == string(o.Record.UID) ||
			observed && b != nil && b.UID == known.Target.Ref.UID && !IsOurTarget(o, b) {
			return fmt.Sprintf("this move of claim %s had ended, and real claim %s at the target is in use since, which home does not know any "+
				"more, as after a restore from a backup: neither copy is changed or removed; see which is the newer one before pods write",
				known.Name, known.Target.Ref.Key())
		}
	}
	return ""
}

// IsElsewhere says whether the virtual volume of a claim stands for the copy of a later move than this one, which is
// committed. A real claim that was made anew has another UID, but not a later generation. The copy at the source gets a later one
// if somebody decides to use it as it is.
func IsElsewhere(known *record.Claim, volume *corev1.PersistentVolume) bool {
	if volume == nil {
		return false
	}
	ref, err := backing.RefOf(volume)
	return err == nil && ref.UID != known.Target.Ref.UID && ref.UID != known.Source.Ref.UID &&
		backing.GenerationOf(volume) > known.Generation
}

// IsBack says whether the virtual volume of a claim stands for the copy at the source again, because a later move than this one,
// which is committed, went back into it.
func IsBack(known *record.Claim, volume *corev1.PersistentVolume) bool {
	if volume == nil {
		return false
	}
	ref, err := backing.RefOf(volume)
	return err == nil && ref.UID == known.Source.Ref.UID && backing.GenerationOf(volume) > known.Generation
}

// IsOurTarget says whether a backing claim is a copy that this move makes and nobody has used yet.
func IsOurTarget(o Observation, b *corev1.PersistentVolumeClaim) bool {
	return b.Labels[keys.MoveOf] == string(o.Record.UID) && backing.Unpublished(b)
}
