package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// This file has how a target begins with a sealed version of a replica that is in its cluster, so that only what differs travels. Nothing
// of that is taken for granted: all is read and compared as in any move. Where no volume comes of the version the target is made empty.

// giveUpBasis is the next step to make the target of a claim empty, because no volume comes of the version that it was to begin with;
// false if one may come, or has, or nothing of that is left.
func giveUpBasis(o steps.Observation, i int) (steps.Step, bool) {
	known, seen := o.Record.Claims[i], o.Claims[i].Target
	b := seen.Backing
	switch {
	case known.Basis == nil:
		return steps.Step{}, false
	case known.Basis.Why == "":
		why := whyNoBasis(o, i)
		if why == "" {
			return steps.Step{}, false
		}
		// The target that is made now has its full time.
		next := o.Record.Enter(o.Record.Phase, o.Now)
		next.Claims[i].Basis.Why, next.Claims[i].Target.Ref.UID = steps.Brief(why), ""
		return steps.Step{Action: steps.Save{Record: next}, Say: WhatItBeginsWith(&next.Claims[i])}, true
	case b == nil || !isMadeOfBasis(&known, b) || !steps.IsOurTarget(o, b) || seen.Real != nil && b.DeletionTimestamp == nil:
		return steps.Step{}, false
	case seen.Mover.Exists && !seen.Mover.Leaving:
		return steps.Step{Action: steps.DropMover{Claim: i, End: record.Target}}, true
	case seen.Mover.Exists:
		return steps.Wait(steps.Soon, moverEnding(o, i, record.Target)), true
	case b.DeletionTimestamp == nil || backing.Protected(b):
		return steps.Step{Action: steps.DropBacking{Claim: i, End: record.Target}}, true
	}
	return steps.Wait(steps.Soon, fmt.Sprintf("waiting until real claim %s is gone, which no volume came of", known.Target.Ref.Key())), true
}

// whyNoBasis says why no volume comes of the version that a target is to begin with; empty if it has one, or may get one.
func whyNoBasis(o steps.Observation, i int) string {
	seen := o.Claims[i]
	taking := o.Now.Sub(o.Record.Began[o.Record.Phase])
	switch {
	case seen.Target.Real != nil:
		return ""
	case seen.NoBasis == "" && taking > startTimeout:
		return fmt.Sprintf("no volume came of it within %s%s", startTimeout, sentence.Prefixed(": ", seen.Target.Mover.Problem))
	}
	return seen.NoBasis
}

// isMadeOfBasis says whether a target is made from the version that it was to begin with.
func isMadeOfBasis(known *record.Claim, b *corev1.PersistentVolumeClaim) bool {
	from := b.Spec.DataSource
	return known.Basis != nil && from != nil && from.Kind == volumesnapshot.Kind && from.Name == known.Basis.Version
}

// WhatItBeginsWith says, of a claim with a Basis, what its target begins with.
func WhatItBeginsWith(known *record.Claim) string {
	its := fmt.Sprintf("version %s of VolumeReplica %s", known.Basis.Version, known.Basis.Replica)
	if known.Basis.InUse() {
		return fmt.Sprintf("the copy of claim %s begins with %s, and what differs from that is copied", known.Name, its)
	}
	return fmt.Sprintf("the copy of claim %s does not begin with %s, and all is copied: %s", known.Name, its, known.Basis.Why)
}
