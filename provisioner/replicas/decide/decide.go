// Package decide has the decisions about a replica as pure functions: the record and the observation go in, the one next step
// comes out. Each step is one write and safe to repeat; a process that is stopped anywhere goes on by observing again. All that is
// observed was just read from API servers. Start with Next; the making of a point is in point.go. This file is long
// because it has all that is observed, and every action that is chosen from it.
package decide

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// Observation is what a step is decided from.
type Observation struct {
	Now time.Time
	// Replica is nil if there is none any more, Record is nil before it has begun.
	Replica *v1alpha1.VolumeReplica
	Record  *record.Record
	// At is the cluster that has the data of the first claim, empty if that is not known.
	At string
	// Moving says that a move holds the claim.
	Moving bool
	// FailedOver is when the last failover of the claim began that is not over, zero if there is none.
	FailedOver time.Time
	// MayBegin says that it is this replica's turn to begin a point: only so many are made at once.
	MayBegin bool
	// Refused is why the last try to begin with the replica or a point was refused, at RefusedAt; empty: it was not.
	Refused   Refusal
	RefusedAt time.Time
	// Source and Standby are the clusters of the two.
	Source, Standby Cluster
	// Claims are what was seen of each claim, in the order of the record.
	Claims []Claim
	// Sealed are the snapshots of this replica at the standby, by name, as far as they were read; nil: they were not.
	Sealed map[string]types.UID
	// Faults say what is wrong with snapshots in Sealed, by name. One that they do not name was not looked at so closely.
	Faults map[string]Fault
	// Runnable is whether the standby could run the pods that use the claims; the zero value: that was not found out. No step depends on it.
	Runnable Runnable
	// Used are the names of versions that claims are to be made from, which have no volume yet.
	Used []string
	// Kept says of versions by name why the standby's cluster does not let them go now, in one sentence; of one that it does not name
	// that is not known.
	Kept map[string]string
	// Group is the one snapshot of the sources of a point of several claims.
	Group Group
	// Reached is since when this process has been able to ask both clusters of the point without a break; zero counts as long ago.
	Reached time.Time
	// Left is what was seen of one of the points in Record.Left, as an observation of that: of one whose cluster can be asked or is gone, if
	// there is any; nil: there are none.
	Left *Observation
	// Strays are movers at the standby while no point is made; see left.go.
	Strays []Stray
	// Hold is what this process knows of the freeze of the point, and Users are the pods that may write to its claims, if it has one.
	Hold  Hold
	Users []User
}

// Claim is what was seen of one claim.
type Claim struct {
	// Head is the real claim of the record's name at the standby, HeadVolume the real volume that is bound to it.
	Head       *corev1.PersistentVolumeClaim
	HeadVolume *corev1.PersistentVolume
	// Slot is the real claim of the record's slot, nil if there is none or the record has none.
	Slot *corev1.PersistentVolumeClaim
	// Kept is the real claim that the basis of the head is of, if the point takes that, and Basis is the snapshot; see basis.go.
	Kept  *corev1.PersistentVolumeClaim
	Basis Snapshot
	// Origin is the real claim that a point is of, Snapshot the snapshot of it, and Clone the claim that is made of that. Labelled says
	// that Origin has the label of the group.
	Origin   *corev1.PersistentVolumeClaim
	Snapshot Snapshot
	Clone    *corev1.PersistentVolumeClaim
	Labelled bool
	// Seal is the snapshot of the head that a point makes, and SealBy the class for it; NoSeal says why there is none.
	Seal   Snapshot
	SealBy string
	NoSeal string
	// Reader and Writer are the movers. Copy is what the reader says, nil if it did not answer: CopyError.
	Reader, Writer movers.State
	Copy           *moverapi.Status
	CopyError      string
	// Advanced is when the copy last got further, or when this process first saw it.
	Advanced time.Time
}

// Group is the state of a snapshot of several sources. Members are the names of the snapshots of each, in the order of the claims, once
// all are known.
type Group struct {
	Snapshot
	Members []string
}

// Cluster is the state of a cluster.
type Cluster struct {
	// Unusable says why it cannot be asked now; empty: it can. Gone says that it has no RemoteCluster any more.
	Unusable string
	Gone     bool
	// Epoch is home's there; 0: that is not known.
	Epoch int64
}

// Snapshot is the state of a VolumeSnapshot.
type Snapshot struct {
	UID types.UID
	// Exists, Ready and Leaving are its state. Taken says that what it has does not change any more, though it may not be ready. Problem
	// says why it cannot be used, or not yet, and Wrong that it never can.
	Exists, Ready, Leaving bool
	Taken                  bool
	Problem                string
	Wrong                  bool
}

// Fault is why no claim can be made of a snapshot that is there, in words that follow its name; an empty Why: one can. Gone says that
// its content is gone, so that none ever can.
type Fault struct {
	Why  string
	Gone bool
}

// Refusal is why something cannot begin now.
type Refusal struct{ Reason, Text string }

// Reasons of the condition Healthy.
const (
	Sealed        = "Sealed"
	Seeding       = "Seeding"
	Paused        = "Paused"
	Moving        = "Moving"
	Waiting       = "Waiting"
	Refused       = "Refused"
	NoSnapshots   = "NoSnapshots"
	SameCluster   = "SameCluster"
	ClaimGone     = "ClaimGone"
	ClusterAway   = "ClusterAway"
	PointFailed   = "PointFailed"
	NotFrozen     = "NotFrozen"
	ThawFailed    = "ThawFailed"
	StandsStill   = "StandsStill"
	VersionLost   = "VersionLost"
	Pinned        = "Pinned"
	BeingRemoved  = "BeingRemoved"
	NothingSealed = "NothingSealed"
)

// Step is the next step: an action, or a time to wait.
type Step struct {
	Action Action
	// Say is one sentence. Reason is that of the condition Healthy if something keeps the replica from what it is for; empty: nothing
	// does.
	Say, Reason string
	// After is when to look again, 0: when something changes.
	After time.Duration
	// AwaitsTurn says that a point would begin if fewer were being made.
	AwaitsTurn bool
	// Over says that nothing is left of the replica.
	Over bool
}

// Action is one write.
type Action interface{}

// Adopt puts our finalizer on the VolumeReplica.
type Adopt struct{}

// Leave takes it off.
type Leave struct{}

// Begin finds out where the copy goes, and writes the first record.
type Begin struct{}

// BeginPoint finds out what a point is of, and writes the record with it.
type BeginPoint struct{}

// Save writes the record.
type Save struct{ Record *record.Record }

// Forget deletes the record.
type Forget struct{}

// MakeHead creates the real claim of a claim at the standby.
type MakeHead struct{ Claim int }

// TakeBasis takes the snapshot that the head of a claim is made from.
type TakeBasis struct{ Claim int }

// DropBasis deletes it.
type DropBasis struct{ Claim int }

// DropHead deletes the head.
type DropHead struct{ Claim int }

// DropSlot deletes the other one of two.
type DropSlot struct{ Claim int }

// Unseal takes off a head what it says of the version that it has, before it is written to.
type Unseal struct{ Claim int }

// TakeSnapshot takes the snapshot of the source, or of all sources.
type TakeSnapshot struct{}

// DropSnapshot deletes it.
type DropSnapshot struct{}

// Unlabel takes the label of the group off a source.
type Unlabel struct{ Claim int }

// MakeClone makes a claim of the snapshot of a source.
type MakeClone struct{ Claim int }

// DropClone deletes it.
type DropClone struct{ Claim int }

// MakeMover makes the mover of a role for a claim, without starting it.
type MakeMover struct {
	Claim int
	Role  moverapi.Role
}

// StartMover gives it its keys, and starts it.
type StartMover struct {
	Claim int
	Role  moverapi.Role
}

// GiveKeys gives it its keys again.
type GiveKeys struct {
	Claim int
	Role  moverapi.Role
}

// DropMover ends it.
type DropMover struct {
	Claim int
	Role  moverapi.Role
}

// DropStray ends a mover at the standby that no point has.
type DropStray struct{ Name string }

// Start has the movers of a claim begin a task.
type Start struct {
	Claim int
	Task  moverapi.Task
}

// CleanLeft takes an action for a point that was left.
type CleanLeft struct {
	Of *Observation
	Action
}

// TakeSeal takes the snapshot of the head of a claim. With slots it has the head itself say of which version it is.
type TakeSeal struct{ Claim int }

// DropVersion deletes a snapshot at the standby.
type DropVersion struct {
	Name string
	UID  types.UID
}

const (
	// soon is how often a point is looked at: nobody waits for it, and each look is a dozen requests.
	soon   = time.Second
	seldom = 10 * time.Second
	// turnAgain is when a replica that waits for its turn, or is paused with versions in slots, is looked at if nobody wakes it.
	turnAgain = time.Minute
	// askAgain is when what was refused is tried again.
	askAgain = 15 * time.Second
	// KeptFor is for how long a version counts as kept before it is asked for again whether it may go.
	KeptFor = 10 * time.Minute
	// mostUnready limits what the record remembers of why a version cannot be used, in bytes.
	mostUnready = 512
)

// Next returns the next step of a replica.
func Next(o Observation) Step {
	r := o.Record
	switch {
	case r == nil && o.Replica == nil:
		return Step{Over: true}
	case r == nil && isLeaving(o):
		if !slices.Contains(o.Replica.Finalizers, keys.ReplicaFinalizer) {
			return Step{Over: true}
		}
		return Step{Action: Leave{}}
	case r == nil && !slices.Contains(o.Replica.Finalizers, keys.ReplicaFinalizer):
		return Step{Action: Adopt{}}
	case r == nil:
		return begin(o, Begin{})
	case isLeaving(o):
		return remove(o)
	case r.Point != nil:
		return point(o)
	}
	left, leaves := cleanLeft(o)
	stray, strays := dropStrays(o)
	switch {
	case strays && stray.Action != nil:
		return stray
	case leaves && left.Action != nil:
		return left
	case hasFailedOver(o, r.FailedOver) && o.At == r.Head.Cluster:
		next := r.Clone()
		next.Epoch, next.FailedOver = r.Epoch+1, o.FailedOver
		return Step{Action: Save{next}}
	case o.Replica.Spec.ScrubEvery == nil && (!r.Scrubbed.IsZero() || r.Found != nil):
		next := r.Clone()
		next.Scrubbed, next.Found = time.Time{}, nil
		return Step{Action: Save{next}}
	}
	if isAccepted(o) {
		next := r.Clone()
		next.Unpin()
		return Step{Action: Save{next}}
	}
	keep := keepVersions
	if r.Slots {
		keep = keepSlots
	}
	if step, ok := keep(o); ok {
		return step
	}
	step := idle(o)
	if r.Slots && step.Action == nil && step.After == 0 {
		// Nothing tells when somebody deletes a slot, or a claim gets it.
		step.After = turnAgain
	}
	if leaves && step.Action == nil && (step.After == 0 || step.After > left.After) {
		step.After = left.After
	}
	if len(o.Kept) > 0 && step.Action == nil && (step.After == 0 || step.After > KeptFor) {
		step.After = KeptFor
	}
	return step
}

// isLeaving says whether nobody wants the replica any more.
func isLeaving(o Observation) bool { return o.Replica == nil || o.Replica.DeletionTimestamp != nil }

// begin begins with something, unless it was refused a moment ago.
func begin(o Observation, action Action) Step {
	if left := o.RefusedAt.Add(askAgain).Sub(o.Now); o.Refused.Text != "" && left > 0 {
		return Step{Say: o.Refused.Text, Reason: o.Refused.Reason, After: left}
	}
	return Step{Action: action}
}

// idle is the step between two points.
func idle(o Observation) Step {
	r := o.Record
	switch wait := Due(o).Sub(o.Now); {
	case o.Moving:
		return Step{Say: "the claim is being moved: the next point is made after that", Reason: Moving, After: seldom}
	case o.Replica.Spec.Paused:
		// Nothing tells when the claim fails over.
		return Step{Say: "no point is made: spec.paused is set", Reason: Paused, After: turnAgain}
	case o.Refused.Text != "" && o.Now.Sub(o.RefusedAt) < askAgain:
		return begin(o, BeginPoint{})
	case r.PinnedSlot() != nil:
		return Step{Say: fmt.Sprintf("no point is made: the slot that it would be written to has the version of %s, which is pinned, for more "+
			"than spec.versions.pinAbove has changed after it: see the condition Suspect", r.PinnedSlot().Cut.UTC().Format(time.RFC3339)),
			Reason: Pinned, After: turnAgain}
	case r.Full():
		why := fmt.Sprintf("which cluster %s does not let go, and no more are remembered: raise spec.rpo", r.Head.Cluster)
		if len(Surplus(o)) == 0 {
			why = "which spec.versions asks for, or which are pinned, and no more are remembered: lower spec.versions.keep or daily, or accept " +
				"what changed, if the condition Suspect says so"
		}
		return Step{Say: fmt.Sprintf("no point is made: there are %d versions, %s", len(r.Sealed), why), Reason: Refused, After: seldom}
	case wait > 0 && r.Failures == 0 && unready(r) != nil:
		return Step{Say: sayUnready(r, unready(r)), Reason: VersionLost, After: wait}
	case wait > 0 && r.Failures > 0:
		return Step{Say: fmt.Sprintf("point %d failed: %s; the next is tried at %s", r.Last, r.Why, Due(o).UTC().Format(time.TimeOnly)),
			Reason: PointFailed, After: wait}
	case wait > 0:
		return Step{After: wait}
	case !o.MayBegin:
		return Step{Say: "the next point waits for its turn: as many are being made as may be at once", Reason: Waiting, After: turnAgain,
			AwaitsTurn: true}
	}
	if step, ok := dropStrays(o); ok {
		return step
	}
	if step, ok := missHeads(o); ok {
		return step
	}
	return Step{Action: BeginPoint{}}
}

// RPO is how old the newest version may be.
func RPO(replica *v1alpha1.VolumeReplica) time.Duration {
	if replica.Spec.RPO == nil {
		return 15 * time.Minute
	}
	return replica.Spec.RPO.Duration
}

const (
	// firstRetry is the pause after a point that failed; it doubles with each in a row, up to lastRetry.
	firstRetry = 15 * time.Second
	lastRetry  = 15 * time.Minute
)

// Ahead says that a moment has not come yet: the clock that it was taken from was ahead, or the one of now is behind. Clocks of two
// processes differ a little.
func Ahead(moment, now time.Time) bool { return moment.Sub(now) > time.Minute }

// Due is when the next point is to begin: so that it is sealed before the last one is older than the RPO, if it takes up to twice
// as long as that one did, and no earlier than half the RPO after it. What a clock that was ahead says does not put it off.
func Due(o Observation) time.Time {
	due := time.Time{}
	// One that was made while the clock was set back seems to have taken less than no time.
	if last := o.Record.Newest(); last != nil && !Ahead(last.Cut, o.Now) {
		rpo, took := RPO(o.Replica), max(0, last.Took)
		for i := range o.Record.Len() {
			for _, known := range o.Record.At(i).Known {
				// The next one may have to read again what the last one did not.
				took = max(took, known.Took)
			}
		}
		due = last.Cut.Add(rpo - min(rpo/2, 2*took))
	}
	if n := o.Record.Failures; n > 0 && !Ahead(o.Record.Failed, o.Now) {
		if again := o.Record.Failed.Add(min(firstRetry<<min(n-1, 10), lastRetry)); again.After(due) {
			due = again
		}
	}
	return due
}

// keepVersions is the step by which versions are no longer counted that somebody deleted, or of which no claim can be made, and by which
// older ones go than are wanted; false if there is nothing to do. The newest ones were just seen.
func keepVersions(o Observation) (Step, bool) {
	if o.Sealed == nil || o.Moving {
		// A failover may be making a volume of the oldest one.
		return Step{}, false
	}
	r := o.Record
	for i := range r.Sealed {
		version := &r.Sealed[i]
		there, lost := presentOf(o, version)
		next := r.Clone()
		switch {
		case lost == "":
			continue
		case there == nil:
			next.Sealed = slices.Delete(next.Sealed, i, i+1)
		case !version.Going:
			// What is left of it is of no use: a version is whole, or none.
			next.Sealed[i].Going = true
		default:
			continue
		}
		step := Step{Action: Save{next}}
		if !version.Going {
			what := "somebody deleted VolumeSnapshot %s/%s at the standby, which sealed the version of %s"
			if o.Faults[lost].Gone {
				what = "VolumeSnapshot %s/%s at the standby sealed the version of %s, and somebody deleted its VolumeSnapshotContent"
			}
			step.Say, step.Reason = fmt.Sprintf(what, r.Head.Namespace, lost, version.Cut.UTC().Format(time.RFC3339)), VersionLost
		}
		return step, true
	}
	for i := range r.Sealed {
		version := &r.Sealed[i]
		why, known := faultOf(o, version)
		if version.Going || !known || (why == "") == (version.Unready == "") {
			continue
		}
		next := r.Clone()
		next.Sealed[i].Unready = why
		step := Step{Action: Save{next}}
		if why != "" {
			step.Say, step.Reason = sayUnready(next, &next.Sealed[i]), VersionLost
		}
		return step, true
	}
	for i := range r.Sealed {
		if next := droppable(o, &r.Sealed[i]); r.Sealed[i].Going && next != nil {
			return Step{Action: DropVersion{next.Name, next.UID}}, true
		}
	}
	// What is used stays as long as that lasts, and what the standby's owner keeps can be used as long as it is there.
	for _, i := range Surplus(o) {
		if WhyKept(o, &r.Sealed[i]) == "" {
			next := r.Clone()
			next.Sealed[i].Going = true
			return Step{Action: Save{next}}, true
		}
	}
	return Step{}, false
}

// WhyKept says why the standby's cluster does not let a version go now, or a part of it; empty: it does, or that is not known.
func WhyKept(o Observation, version *record.Version) string {
	for i := range o.Record.Len() {
		if why := o.Kept[version.At(i).Name]; why != "" {
			return why
		}
	}
	return ""
}

// droppable returns the first of a version's snapshots that is at the standby and may go, as far as that is known; nil if there is none.
func droppable(o Observation, version *record.Version) *record.Content {
	for i := range o.Record.Len() {
		if has := version.At(i); isThere(o, has) && o.Kept[has.Name] == "" {
			return has
		}
	}
	return nil
}

// isThere says whether what a version has of a claim is at the standby.
func isThere(o Observation, has *record.Content) bool {
	return has.UID != "" && o.Sealed[has.Name] == has.UID
}

// presentOf returns the first of a version's snapshots that is at the standby, nil if none is, and the name of the first one that is not,
// or has no content any more; empty if all are.
func presentOf(o Observation, version *record.Version) (there *record.Content, lost string) {
	for i := range o.Record.Len() {
		switch has := version.At(i); {
		case !isThere(o, has):
			lost = cmp.Or(lost, has.Name)
			continue
		case o.Faults[has.Name].Gone:
			lost = cmp.Or(lost, has.Name)
		}
		if there == nil {
			there = version.At(i)
		}
	}
	return there, lost
}

// remove is the step by which all goes that was made for a replica.
func remove(o Observation) Step {
	r := o.Record
	if r.Point != nil {
		switch stage := r.Point.Stage; {
		case stage == record.Thaw && r.Point.Why != "":
			return thaw(o)
		case stage != record.Clean:
			return giveUp(o, "the VolumeReplica was deleted")
		}
		if step, ok := clean(o); ok {
			return sayRemoving(step)
		}
		next := r.Clone()
		next.Point = nil
		return Step{Action: Save{next}}
	}
	if step, ok := cleanLeft(o); ok {
		return sayRemoving(step)
	}
	switch {
	case o.Moving:
		return Step{Say: "the claim is being moved, and may get a version: it is removed after that", Reason: BeingRemoved, After: seldom}
	case o.Standby.Gone:
		return Step{Action: Forget{}}
	case o.Standby.Unusable != "":
		return Step{Reason: BeingRemoved, After: seldom, Say: fmt.Sprintf("the copy at the standby cannot be removed: %s; bring it back, or "+
			"delete its RemoteCluster if it is gone for good: then real claim %s and its VolumeSnapshots stay there", o.Standby.Unusable,
			r.Head.Key())}
	}
	if step, ok := dropStrays(o); ok {
		step.Reason = BeingRemoved
		return step
	}
	if o.Sealed == nil && len(r.Sealed) > 0 && !r.Slots {
		return Step{Reason: BeingRemoved, After: seldom, Say: "waiting until the VolumeSnapshots at the standby can be looked at"}
	}
	kept := ""
	for _, name := range slices.Sorted(maps.Keys(o.Sealed)) {
		if o.Kept[name] != "" {
			kept = name
			continue
		}
		return Step{Action: DropVersion{name, o.Sealed[name]}, Say: "the versions at the standby are removed", Reason: BeingRemoved}
	}
	if step, ok := each(o, func(i int) (Step, bool) {
		switch {
		case isSlot(o, i) && o.Claims[i].Slot.DeletionTimestamp == nil:
			return Step{Action: DropSlot{i}}, true
		case !isHead(o, i) && !isSlot(o, i):
			return Step{}, false
		case isHead(o, i) && o.Claims[i].Head.DeletionTimestamp == nil:
			return Step{Action: DropHead{i}}, true
		}
		return Step{Say: fmt.Sprintf("waiting until real claim %s at the standby is gone", r.At(i).Head.Key()), Reason: BeingRemoved,
			After: seldom}, true
	}); ok {
		return step
	}
	if kept != "" {
		return Step{Reason: BeingRemoved, After: KeptFor, Say: fmt.Sprintf("the versions that are left (%d) are removed once they may be; "+
			"VolumeSnapshot %s/%s: %s; take the finalizer %s off if the VolumeReplica is to go now, they are removed all the same",
			len(o.Sealed), r.Head.Namespace, kept, o.Kept[kept], keys.ReplicaFinalizer)}
	}
	return Step{Action: Forget{}}
}

// sayRemoving has a step by which a point is cleaned up say what keeps the replica from being removed.
func sayRemoving(step Step) Step {
	if step.Reason == ClusterAway {
		step.Reason, step.Say, step.After = BeingRemoved, step.Say+": what a point has made there cannot be removed; bring it back, or delete "+
			"its RemoteCluster if it is gone for good", seldom
	}
	return step
}

// each returns the first step that something is to be done for a claim, else the first one that something is waited for; false if there
// is neither.
func each(o Observation, of func(i int) (Step, bool)) (first Step, found bool) {
	for i := range o.Record.Len() {
		step, ok := of(i)
		switch {
		case ok && step.Action != nil:
			return step, true
		case ok && !found:
			first, found = step, true
		}
	}
	return first, found
}

// isHead says whether the real claim of a claim at the standby is ours.
func isHead(o Observation, i int) bool { return isOurs(o, o.Claims[i].Head, o.Record.At(i).Head) }

// isOurs says whether a real claim at the standby is the one that the record has.
func isOurs(o Observation, b *corev1.PersistentVolumeClaim, known backing.Ref) bool {
	return b != nil && b.Labels[keys.ReplicaOf] == string(o.Record.UID) && (known.UID == "" || b.UID == known.UID)
}
