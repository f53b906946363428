package why

import (
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// lost returns what there is to say of a claim that Kubernetes calls Lost, since its volume is not there.
func (c Claim) lost() Answer {
	claim := c.Claim
	if virtualclass.Is(c.Class) {
		return waits("claim %q is Lost, for somebody deleted its volume %q and took its finalizers off; Lodestone has not deleted the data "+
			"behind it: docs/lifecycle.md#import says how an administrator gives it a claim again", c.Name,
			claim.Spec.VolumeName)
	}
	return waits("claim %q has lost its volume %q: restore the data from a backup, or delete the claim", c.Name, claim.Spec.VolumeName)
}

// volumeDeleted returns what there is to say of a claim whose volume somebody has deleted, while it is bound; false if nobody has.
func (c Claim) volumeDeleted() (Answer, bool) {
	if c.Volume == nil || c.Volume.DeletionTimestamp == nil || c.Claim.Labels[keys.Moving] == keys.MovingNow {
		return Answer{}, false
	}
	return waits("claim %q is bound, but somebody deleted its volume %q: pods go on with it and the data stays, for Kubernetes keeps the "+
		"volume as long as the claim is there; delete no claim of which you need the data, and copy that to a new claim",
		c.Name, c.Volume.Name), true
}
