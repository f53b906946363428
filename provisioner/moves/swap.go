package moves

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/swap/plan"
)

// targetVolume builds the virtual volume of a claim for its target. A slot is as large as the claim was when its version was made.
func (c *Controller) targetVolume(r *record.Record, known *record.Claim, seen steps.Claim) (*corev1.PersistentVolume, error) {
	if seen.Target.Backing == nil || seen.Target.Real == nil {
		return nil, fmt.Errorf("real claim %s is not bound", known.Target.Ref.Key())
	}
	class, err := c.targets.ClassOf(seen.Claim)
	if err != nil {
		return nil, err
	}
	at, _ := c.sites.Reach(known.Target.Ref.Cluster)
	pv, err := backing.NewVolume(backing.VolumeInput{
		Name: known.Volume.Name, Claim: seen.Claim, Class: class,
		Cluster: known.Target.Ref.Cluster, ClusterUID: at.UID, Backing: seen.Target.Backing, Real: seen.Target.Real,
		MayBeSmaller: r.TakesSlots(),
	})
	if err != nil {
		return nil, err
	}
	return plan.Successor(pv, known.Volume), nil
}
