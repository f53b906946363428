package moves

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movekeys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// inspectNamed judges the claim of a name, the i-th of the move, and gives it keys.
func (c *Controller) inspectNamed(ctx context.Context, r *record.Record, i int, name string, node *corev1.Node) (*record.Claim, error) {
	if wrong := validation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return nil, refuse("%q cannot be the name of a claim: %s", name, strings.Join(wrong, "; "))
	}
	claim, err := claimAt(ctx, c.here(), r.Namespace, name)
	switch {
	case err != nil:
		return nil, err
	case claim == nil:
		return nil, refuse("there is no claim %q in namespace %s: name claims that exist", name, r.Namespace)
	}
	known, err := c.inspectClaim(ctx, r, claim, node)
	if err != nil {
		return nil, err
	}
	issued, err := movekeys.Issue(r.KeysOf(i), r.Began[v1alpha1.MovePrepare], validity)
	if err != nil {
		return nil, err
	}
	known.Keys = issued
	known.Store, err = c.storeFor(ctx, r, i, known)
	return known, err
}

// inspectClaim judges one claim, and returns what the record says of it.
func (c *Controller) inspectClaim(ctx context.Context, r *record.Record, claim *corev1.PersistentVolumeClaim, node *corev1.Node) (*record.Claim, error) {
	volume, err := volumeAt(ctx, c.here(), "pvc-"+string(claim.UID))
	if err != nil {
		return nil, err
	}
	if err := movable(claim, volume); err != nil {
		return nil, err
	}
	other := c.Registry.busy(r.UID, claim.UID)
	if other != nil && !settled(other.Phase) {
		return nil, busyWith(claim, other)
	}
	from, err := backing.RefOf(volume)
	if err != nil {
		return nil, refuse("volume %s of claim %q is not one that Lodestone made: %v", volume.Name, claim.Name, err)
	}
	source, err := c.inspectSource(ctx, claim, from)
	var target *record.Copy
	if err == nil {
		target, err = c.inspectTarget(ctx, r, claim, node, *source)
	}
	if _, there := err.(already); other != nil && !there { //nolint:errorlint // never wrapped
		return nil, busyWith(claim, other)
	}
	if err != nil {
		return nil, err
	}
	known := &record.Claim{Name: claim.Name, UID: claim.UID, Volume: remembered(volume), Source: *source, Target: *target, Offline: onlyOne(claim)}
	if known.Offline {
		known.Snapshot, known.NoSnapshot, err = c.inspectSnapshot(ctx, r, source)
	}
	return known, err
}

func busyWith(claim *corev1.PersistentVolumeClaim, other *record.Record) error {
	return refuse("claim %q is being moved by VolumeMove %s: wait for its end, or finalize it, and move again", claim.Name, other.Name)
}

// settled says whether the data of a move that is not over is at its target for good: to
// move it there once more is nothing, to move it elsewhere must wait.
func settled(phase v1alpha1.MovePhase) bool {
	return phase == v1alpha1.MoveRetain || phase == v1alpha1.MoveFinalize
}
