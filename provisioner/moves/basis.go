// This file finds the sealed version of a replica that a target begins with, and looks at it while the target is made from it.

package moves

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	replica "github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// inspectBasis finds the version that the target of a claim begins with; nil: it begins empty. No version is trimmed while a move holds
// the claim, nor while a real claim is being made of it.
func (c *Controller) inspectBasis(ctx context.Context, r *record.Record, claim *corev1.PersistentVolumeClaim, node *corev1.Node,
	target backing.Ref) (*record.Basis, error) {
	to, err := c.routeTo(claim, r.Target.Class, node)
	if err != nil {
		return nil, err
	}
	basis := newestBasis(c.Having(claim.UID, target.Cluster), claim.UID, target.Namespace, to.Driver())
	if basis == nil {
		return nil, nil
	}
	at, err := c.sites.At(target.Cluster)
	if err != nil {
		return nil, err
	}
	_, why, err := c.seenBasis(ctx, at, basis, target.Namespace)
	if err != nil || why != "" {
		return nil, err
	}
	return basis, nil
}

// newestBasis is the newest version that replicas have of a claim as a VolumeSnapshot in a namespace, of a volume of a driver; nil if there
// is none.
func newestBasis(copies []*replica.Record, claim types.UID, namespace, driver string) (newest *record.Basis) {
	var found *replica.Version
	for _, copied := range copies {
		for i := range copied.Len() {
			part := copied.At(i)
			if part.ClaimUID != claim || part.Head.Namespace != namespace || copied.Slots || driver == "" {
				continue
			}
			for v := range copied.Sealed {
				version := &copied.Sealed[v]
				has := version.At(i)
				if !version.Counts() || has.Volume.Driver != driver || found != nil && !version.Cut.After(found.Cut) {
					continue
				}
				found = version
				newest = &record.Basis{Replica: copied.Name, Sealed: record.Sealed{Version: has.Name, UID: has.UID, Volume: has.Volume}}
			}
		}
	}
	return newest
}

// seenBasis returns the snapshot of the version that a target begins with; why says why that cannot be used.
func (c *Controller) seenBasis(ctx context.Context, at site.Site, basis *record.Basis, namespace string) (s *volumesnapshot.Snapshot,
	why string, err error) {
	s, why, err = c.seenVersion(ctx, at, &basis.Sealed, namespace)
	if refused, err := frozen.RefusalOf(err); refused != "" || err != nil {
		return nil, refused, err
	}
	return s, why, nil
}

// observeBases looks at the versions that targets begin with which have no volume yet.
func (c *Controller) observeBases(ctx context.Context, w *activeMove, o *steps.Observation) error {
	for i := range o.Claims {
		known, seen := &o.Record.Claims[i], &o.Claims[i]
		if o.Record.Phase != v1alpha1.MoveProvision || o.Target.Unusable != "" || !known.Basis.InUse() || seen.Target.Real != nil {
			continue
		}
		if seen.NoBasis = w.claim(i).noBasis; seen.NoBasis != "" {
			continue
		}
		ref := known.Target.Ref
		at, unusable := c.sites.Reach(ref.Cluster)
		if o.Target.Unusable = unusable; unusable != "" {
			return nil
		}
		asking, cancel := at.WithTimeout(ctx)
		_, why, err := c.seenBasis(asking, at, known.Basis, ref.Namespace)
		cancel()
		switch {
		case err != nil && ref.Cluster == keys.Home:
			return err
		case err != nil:
			c.sites.Recheck(ref.Cluster)
			o.Target.Unusable = fmt.Sprintf("cluster %s cannot be asked now: %v", ref.Cluster, err)
			return nil
		}
		seen.NoBasis = why
	}
	return nil
}

// noteNoBasis records why an API server refuses a target that begins with a version: it is made empty then. Other errors are returned.
func (w *activeMove) noteNoBasis(r *record.Record, i int, err error) error {
	if !r.Claims[i].Basis.InUse() {
		return err
	}
	why, err := frozen.RefusalOf(err)
	w.claim(i).noBasis = why
	return err
}
