package decide_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

const (
	aVersion = "replica-r1-v1"
	// asSealed is what is in that version: the application has written since, or somebody has altered it.
	asSealed = -4
)

// basis is the version of a replica that a target begins with.
type basis struct {
	// gone: somebody deleted it. stuck: no volume ever comes of it. refused: the target's cluster takes no claim made from it.
	gone, stuck, refused bool
	// late says that a request to make the target of it is still under way.
	late bool
	// made counts the volumes that came of it.
	made int
}

// fromBasis is a target that is made from the version.
func fromBasis(i int) *corev1.PersistentVolumeClaim {
	b := copyOf(i)
	b.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: volumesnapshot.Kind, Name: aVersion}
	return b
}

func isOfBasis(b *corev1.PersistentVolumeClaim) bool { return b != nil && b.Spec.DataSource != nil }

// makeOfBasis takes a request to make the target of a claim from its version.
func (w *world) makeOfBasis(i int) {
	its := w.claims[i].basis
	w.must(w.claims[i].at[record.Target].backing == nil, "a second target")
	switch {
	case its.refused:
	case !w.calm && w.r.IntN(10) == 0:
		its.late = true
	default:
		w.claims[i].at[record.Target].backing = fromBasis(i)
	}
}

// seeBasis says why no volume can be made of the version of a claim.
func (w *world) seeBasis(r *record.Record, i int) string {
	c := w.claims[i]
	switch {
	case c.basis == nil || r.Phase != v1alpha1.MoveProvision || w.down[record.Target] || !r.Claims[i].Basis.InUse() ||
		c.at[record.Target].real != nil:
		return ""
	case c.basis.refused:
		return "exceeded quota"
	case c.basis.gone:
		return "it was deleted"
	}
	return ""
}

// basisLives acts as the driver of the target, and as somebody who deletes the version.
func (w *world) basisLives(i int, c *claim, chance func(int) bool) {
	its, d := c.basis, c.at[record.Target]
	if its == nil {
		return
	}
	inProvision := w.record != nil && w.decoded().Phase == v1alpha1.MoveProvision
	if its.late && chance(10) {
		if its.late = false; inProvision && d.backing == nil {
			d.backing = fromBasis(i)
		}
	}
	w.must(!d.mover.Running || d.real != nil || !isOfBasis(d.backing), "a mover runs without a volume")
	if !isOfBasis(d.backing) || d.real != nil || !inProvision {
		return
	}
	if !w.calm {
		its.gone = its.gone || chance(2)
	}
	if its.stuck && len(w.forced.running) == 0 && chance(20) {
		w.now = w.now.Add(3 * time.Minute)
	}
	// The class binds with the first pod. A volume may come though the version was deleted, and though it was given up.
	if d.mover.Exists && !d.mover.Unstarted && !its.stuck && chance(30) || chance(1) {
		d.real, d.content = &corev1.PersistentVolume{}, asSealed
		its.made++
	}
}

// TestAMoveThatBeginsWithAVersionNeverHarms runs moves whose targets begin with versions that may be old, be deleted, or be refused, or of
// which no volume comes.
func TestAMoveThatBeginsWithAVersionNeverHarms(t *testing.T) {
	ends, made, empty := map[v1alpha1.MovePhase]int{}, 0, map[string]int{}
	for seed := range uint64(350) {
		w := newWorld(t, seed, 1+int(seed%3))
		w.within = seed%4 == 3
		for _, c := range w.claims {
			if w.r.IntN(4) > 0 {
				c.basis = &basis{stuck: w.r.IntN(3) == 0, refused: w.r.IntN(8) == 0}
			}
		}
		end := w.walk()
		if t.Failed() {
			return
		}
		ends[end]++
		for i, c := range w.claims {
			if c.basis == nil || end != v1alpha1.MoveDone {
				continue
			}
			its := w.decoded().Claims[i].Basis
			if its.InUse() {
				require.Positive(t, c.basis.made, "seed %d: no volume came of the version", seed)
				made++
				continue
			}
			require.False(t, isOfBasis(c.at[record.Target].backing), "seed %d: it is not given up", seed)
			empty[its.Why]++
		}
	}
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveDone, v1alpha1.MoveAborted} {
		require.Greater(t, ends[phase], 20, "too few moves end as %s to say anything: %v", phase, ends)
	}
	require.Greater(t, made, 30, "too few targets begin with a version to say anything")
	require.Greater(t, empty["it was deleted"], 5, "too few versions were deleted to say anything: %v", empty)
	require.Greater(t, empty["exceeded quota"], 5, "too few were refused to say anything: %v", empty)
	require.Greater(t, empty["no volume came of it within 10m0s"], 5, "of too few no volume came to say anything: %v", empty)
}

// begins returns the observation of a move in Provision whose target begins with a version.
func begins() steps.Observation {
	o := in(v1alpha1.MoveProvision)
	o.Record.Began[v1alpha1.MoveProvision] = o.Now.Add(-time.Minute)
	o.Record.Claims[0].Basis = &record.Basis{Replica: "data-west", Sealed: record.Sealed{Version: aVersion, UID: "s1"}}
	o.Record.Claims[0].Target.Ref.UID = ""
	o.Claims[0].Target.Backing = nil
	return o
}

func TestATargetIsMadeEmptyWhereNoVolumeComesOfTheVersion(t *testing.T) {
	o := begins()
	require.Equal(t, "MakeTarget", decide.Next(o).Verb())
	assert.Equal(t, "the copy of claim data begins with version replica-r1-v1 of VolumeReplica data-west, and what differs from that is "+
		"copied", decide.WhatItBeginsWith(&o.Record.Claims[0]))

	// Storage may be slow, for as long as any target may take.
	o.Claims[0].Target.Backing = fromBasis(0)
	o.Record = decide.Next(o).Saved()
	require.Equal(t, ref(record.Target, 0).UID, o.Record.Claims[0].Target.Ref.UID)
	o.Claims[0].Target.Mover = movers.State{Exists: true, Problem: "the driver is broken"}
	require.Equal(t, v1alpha1.MoveProvision, o.Record.Phase)
	late := o
	late.Record = o.Record.Clone()
	late.Record.Began[v1alpha1.MoveProvision] = o.Now.Add(-11 * time.Minute)
	step := decide.Next(late)
	require.Equal(t, "Save", step.Verb())
	assert.Equal(t, "the copy of claim data does not begin with version replica-r1-v1 of VolumeReplica data-west, and all is copied: no "+
		"volume came of it within 10m0s: the driver is broken", step.Say)

	// One that is gone is not waited for.
	o.Claims[0].NoBasis = "it was deleted"
	step = decide.Next(o)
	require.Equal(t, "Save", step.Verb())
	o.Record = step.Saved()
	assert.Equal(t, v1alpha1.MoveProvision, o.Record.Phase)
	assert.Equal(t, o.Now, o.Record.Began[v1alpha1.MoveProvision], "the target that is made now has its full time")
	assert.Empty(t, o.Record.Claims[0].Target.Ref.UID)
	var taken []string
	for range 4 {
		step = decide.Next(o)
		taken = append(taken, step.Verb())
		switch step.Verb() {
		case "DropMover":
			o.Claims[0].Target.Mover.Leaving = true
		case "Idle":
			o.Claims[0].Target.Mover = movers.State{}
		case "DropBacking":
			o.Claims[0].Target.Backing = nil
		}
	}
	assert.Equal(t, []string{"DropMover", "Idle", "DropBacking", "MakeTarget"}, taken)

	// A volume that comes when the version was given up already is as good as any.
	came := o
	came.Claims = slices.Clone(o.Claims)
	came.Claims[0].Target = steps.Side{Backing: fromBasis(0), Real: &corev1.PersistentVolume{}}
	step = decide.Next(came)
	require.Equal(t, "Save", step.Verb())
	assert.True(t, step.Saved().Claims[0].Basis.InUse())
	assert.Equal(t, ref(record.Target, 0).UID, step.Saved().Claims[0].Target.Ref.UID)
	came.Claims[0].Target.Backing.DeletionTimestamp = &metav1.Time{Time: o.Now}
	assert.NotEqual(t, "Save", decide.Next(came).Verb(), "one that is being removed is not")

	// Nobody else's claim is removed.
	came.Claims[0].Target = steps.Side{Backing: fromBasis(0)}
	came.Claims[0].Target.Backing.Labels = nil
	step = decide.Next(came)
	require.Equal(t, v1alpha1.MoveRollBack, step.Saved().Phase)
	assert.Contains(t, step.Saved().Why, "is not this move's")
}
