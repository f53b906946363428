package replicas

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// This file has what a head begins with that a point makes; see decide/basis.go.

// basisOf finds what the head of a claim can begin with if the point that begins is to make it; nil: it begins empty. An error
// may be that the standby refuses the claim.
func (c *Controller) basisOf(ctx context.Context, r *record.Record, i int, block bool) (*record.Basis, error) {
	part := r.At(i)
	if r.Slots || part.Whole || part.Head.UID != "" {
		return nil, nil
	}
	claim, _, err := c.virtual(ctx, r.Namespace, part)
	if err != nil {
		return nil, err
	}
	to, at, err := c.routeTo(claim, v1alpha1.ReplicaStandby{Cluster: part.Head.Cluster, ClassName: part.Class})
	if err != nil {
		return nil, err // a standby that refuses the claim now may take it once the head is to be made, which would begin empty then
	}
	if newest := r.Newest(); newest != nil && newest.At(i).Volume.Driver == to.Driver() {
		return &record.Basis{Name: newest.At(i).Name, Volume: newest.At(i).Volume}, nil
	}
	kept, ok := c.KeptAt(part.ClaimUID, part.Head.Cluster)
	if !ok || kept.Namespace != part.Head.Namespace {
		return nil, nil
	}
	b, err := at.Claim(ctx, kept.Namespace, kept.Name)
	if err != nil || b == nil || b.UID != kept.UID || b.Spec.VolumeName == "" ||
		(ptr.Deref(b.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock) != block {
		return nil, err
	}
	real, err := volumeOf(ctx, at, b)
	if err != nil || real == nil || real.Spec.CSI == nil || real.Spec.CSI.Driver != to.Driver() {
		return nil, err
	}
	by, why, err := frozen.ClassOf(ctx, at, part.Head.Cluster, to.Driver())
	switch {
	case err != nil:
		return nil, err
	case why != "":
		// Nor could the head be sealed, and its cluster may serve snapshots again once it is to be made.
		return nil, refuse(decide.NoSnapshots, "no version can be sealed at the standby, for %s: let storage class %s there have snapshots again",
			why, part.Class)
	}
	volume := volumesnapshot.Volume{Driver: real.Spec.CSI.Driver, Handle: real.Spec.CSI.VolumeHandle}
	return &record.Basis{Name: r.BasisName(i), Volume: volume, Of: kept, By: by}, nil
}

// observeBasis reads what the head of a claim begins with.
func (c *Controller) observeBasis(ctx context.Context, at site.Site, r *record.Record, i int, seen *decide.Claim) (err error) {
	basis := r.Point.At(i).Basis
	if basis == nil {
		return nil
	}
	if at.Dynamic == nil {
		seen.Basis.Problem = "its cluster serves no VolumeSnapshots now"
		return nil
	}
	if _, seen.Basis, err = c.snapshotAt(ctx, at, r, wantedBasis(r, i)); err != nil || !basis.IsTaken() {
		return err
	}
	seen.Kept, err = at.Claim(ctx, basis.Of.Namespace, basis.Of.Name)
	return err
}

// wantedBasis is the snapshot that the head of a claim begins with.
func wantedBasis(r *record.Record, i int) frozen.Wanted {
	basis := r.Point.At(i).Basis
	return frozen.Wanted{NamespacedName: types.NamespacedName{Namespace: r.At(i).Head.Namespace, Name: basis.Name}, Claim: basis.Of.Name,
		Volume: basis.Volume}
}

// fromBasis has a head that is to be made begin with what the record says.
func (c *Controller) fromBasis(ctx context.Context, at site.Site, r *record.Record, i int, head *corev1.PersistentVolumeClaim) error {
	taken, seen, err := c.snapshotAt(ctx, at, r, wantedBasis(r, i))
	if err != nil {
		return err
	}
	if !seen.Ready {
		return fmt.Errorf("snapshot %s is not ready any more: %s", r.Point.At(i).Basis.Name, seen.Problem)
	}
	head.Spec.DataSource = frozen.From(taken.Name)
	if needed := taken.Status.RestoreSize; needed != nil && needed.Cmp(head.Spec.Resources.Requests[corev1.ResourceStorage]) > 0 {
		head.Spec.Resources.Requests[corev1.ResourceStorage] = *needed
	}
	return nil
}
