// This file has how a point is made, from its beginning until nothing is left of it but a version. It is long because its stages follow one
// another, and a reader who follows a point finds all of them here.

package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

const (
	// patience is for how long a copy may stand still before its point is given up. Nobody waits for it.
	patience = 10 * time.Minute
	// snapshotPatience is that of a snapshot: some storage is slow.
	snapshotPatience = time.Hour
	// Validity is for how long the keys of a point can be used, and longest how long a point may take.
	Validity = 30 * 24 * time.Hour
	longest  = Validity - 24*time.Hour
	// longestRoot is as long as the hash may be that a mover says: it is kept with each version.
	longestRoot = 1024
)

// point is the next step of making a version.
func point(o Observation) Step {
	p := o.Record.Point
	switch {
	case p.Stage == record.Clean || p.Stage == record.Thaw:
	case o.Refused.Text != "":
		return giveUp(o, o.Refused.Text)
	case hasFailedOver(o, p.FailedOver), o.Record.Slots && o.Moving && !o.FailedOver.IsZero():
		// Of two slots the claim may be getting one just now, so nothing more is written to either.
		return giveUp(o, "the claim got an earlier version meanwhile (failover)")
	case o.Now.Sub(p.Cut) > longest:
		return giveUp(o, fmt.Sprintf("it took longer than %d days", longest/(24*time.Hour)))
	case o.Source.Gone || o.Standby.Gone:
		return giveUp(o, cmp.Or(o.Source.Unusable, o.Standby.Unusable))
	case isRestored(o) && p.Stage != record.Seal:
		return giveUp(o, sayRestored(o))
	}
	switch p.Stage {
	case record.Freezing:
		return freeze(o)
	case record.Thaw:
		return thaw(o)
	case record.Cut:
		if p.Held() {
			return cutFrozen(o)
		}
		return cut(o)
	case record.Copy:
		return copyOver(o)
	case record.Settle:
		return settle(o)
	case record.Seal:
		return seal(o)
	case record.Clean:
		step, ok := clean(o)
		if !ok {
			return Step{Action: Save{end(o)}}
		}
		if mayLeave(o, step) {
			next := end(o)
			next.Leave(p)
			return Step{Action: Save{next}}
		}
		return step
	}
	return Step{Say: "the record of the replica names a stage that this version does not know: start the version that wrote it",
		Reason: StandsStill, After: seldom}
}

// hasFailedOver says whether the claim has failed over since, given when the last failover began that was known. One that began while the
// clock was ahead does not hide a later one.
func hasFailedOver(o Observation, known time.Time) bool {
	return o.FailedOver.After(known) || Ahead(known, o.Now) && !o.FailedOver.IsZero() && !o.FailedOver.Equal(known)
}

// isRestored says whether home, or the cluster of the standby, was restored from a backup since heads began to be written: points that
// nobody here knows of may have written to them, so they need not have what was compared.
func isRestored(o Observation) bool {
	was, is := o.Record.Point.HomeEpoch, o.Standby.Epoch
	return was != 0 && is != 0 && was != is
}

func sayRestored(o Observation) string {
	return fmt.Sprintf("home, or cluster %s, was restored from a backup while the point was made, so what the copy there has is not known",
		o.Record.Head.Cluster)
}

// since is when the stage of the point began, or when both of its clusters came back, if that is later: while one was away nothing got
// further, and nobody is to blame. A clock that was ahead when it began gives it no more time.
func since(o Observation) time.Time {
	if began := o.Record.Point.Since; began.After(o.Reached) && !Ahead(began, o.Now) {
		return began
	}
	return o.Reached
}

// end is the record after a point of which nothing is left.
func end(o Observation) *record.Record {
	p, next := o.Record.Point, o.Record.Clone()
	if next.Point = nil; p.Why == "" {
		return next
	}
	for i, seen := range o.Claims {
		next.HoldFailed(i, p.At(i).Wrote)
		if seen.Head == nil && p.At(i).Basis != nil {
			next.At(i).Head.UID = ""
		}
	}
	if slices.ContainsFunc(o.Claims, func(seen Claim) bool { return seen.Seal.Exists }) {
		// It counts as no version, and goes once it may.
		next.Sealed = append(next.Sealed, versionOf(o))
		next.Sealed[len(next.Sealed)-1].Going = true
	}
	next.Failures, next.Failed, next.Why = next.Failures+1, o.Now, p.Why
	return next
}

// giveUp ends a point that fails. What it may have frozen is thawed first.
func giveUp(o Observation, why string) Step {
	stage := record.Clean
	if o.Record.Point.Owed() {
		stage = record.Thaw
	}
	next := o.Record.Enter(stage, o.Now)
	if o.Record.Point.Stage == record.Copy {
		noteWritten(o, next)
	}
	next.Point.Why = sentence.Short(sentence.Plain(why, len(why)), 1024)
	return Step{Action: Save{next}, Say: fmt.Sprintf("point %d is given up: %s", next.Point.Number, next.Point.Why), Reason: PointFailed}
}

func away(why string) Step { return Step{Say: why, Reason: ClusterAway, After: seldom} }

func wait(format string, args ...any) Step {
	return Step{Say: fmt.Sprintf(format, args...), After: soon}
}

// cut makes what is copied, and where to.
func cut(o Observation) Step {
	if o.Source.Unusable != "" {
		return away(o.Source.Unusable)
	}
	if step, ok := cutGroup(o); ok {
		return step
	}
	if step, ok := each(o, func(i int) (Step, bool) { return cutOne(o, i) }); ok {
		return step
	}
	if o.Standby.Unusable != "" {
		return away(o.Standby.Unusable)
	}
	if step, ok := each(o, func(i int) (Step, bool) { return findHead(o, i) }); ok {
		return step
	}
	next := o.Record.Enter(record.Copy, o.Now)
	next.Point.HomeEpoch = o.Standby.Epoch
	next.Write(o.Replica.Spec.ScrubEvery != nil, scrubDue(o))
	if next.Slots {
		next.Overwrite()
	}
	return Step{Action: Save{next}}
}

// cutGroup takes the one snapshot of several sources; false once it is known which snapshots it has.
func cutGroup(o Observation) (Step, bool) {
	p, g := o.Record.Point, o.Group
	switch {
	case p.Group == nil:
		return Step{}, false
	case p.Group.UID != "":
		return unlabel(o)
	}
	for i := range o.Record.Len() {
		if origin, source := o.Claims[i].Origin, p.At(i).Source; origin == nil || origin.UID != source.UID {
			return giveUp(o, fmt.Sprintf("real claim %s is gone, or another", source.Key())), true
		}
	}
	switch late := o.Now.Sub(since(o)); {
	case g.Wrong:
		return giveUp(o, g.Problem), true
	case late > snapshotPatience || g.Problem != "" && late > patience:
		return giveUp(o, fmt.Sprintf("the snapshot of all volumes was not ready within %s: %s", late.Round(time.Second), cmp.Or(g.Problem,
			"no reason is given"))), true
	case g.Leaving || !isFrozenOne(p, g.Snapshot):
		return giveUp(o, "somebody deleted the snapshot of all volumes"), true
	case !g.Exists:
		return Step{Action: TakeSnapshot{}}, true
	case !g.Ready || len(g.Members) != o.Record.Len():
		return wait("waiting until the snapshot of all volumes is ready%s", sentence.Prefixed(": ", g.Problem)), true
	}
	next := o.Record.Clone()
	next.Point.Group.UID = g.UID
	for i, name := range g.Members {
		next.Point.At(i).Taken = name
	}
	return Step{Action: Save{next}}, true
}

// unlabel takes off the sources the label by which the snapshot controller finds them; false if none has it.
func unlabel(o Observation) (Step, bool) {
	return each(o, func(i int) (Step, bool) { return Step{Action: Unlabel{i}}, o.Claims[i].Labelled })
}

// cutOne makes what is copied of a claim; false once it is there.
func cutOne(o Observation, i int) (Step, bool) {
	r, p, seen := o.Record, o.Record.Point, o.Claims[i]
	known, s := p.At(i), seen.Snapshot
	late := o.Now.Sub(since(o))
	switch {
	case s.Wrong:
		return giveUp(o, s.Problem), true
	case seen.Origin == nil || seen.Origin.UID != known.Source.UID:
		return giveUp(o, fmt.Sprintf("real claim %s is gone, or another", known.Source.Key())), true
	case seen.Clone != nil && (seen.Clone.DeletionTimestamp != nil || !isFrom(seen.Clone, cmp.Or(known.Taken, r.PointName(i)))):
		return giveUp(o, fmt.Sprintf("real claim %s/%s is not the one that this point made, or somebody deleted it", seen.Clone.Namespace,
			seen.Clone.Name)), true
	case seen.Clone != nil:
		return Step{}, false
	case late > snapshotPatience || s.Problem != "" && late > patience:
		return giveUp(o, fmt.Sprintf("the snapshot of the volume was not ready within %s: %s", late.Round(time.Second), cmp.Or(s.Problem,
			"no reason is given"))), true
	case s.Leaving, !s.Exists && known.Taken != "", p.Group == nil && !isFrozenOne(p, s):
		return giveUp(o, "somebody deleted the snapshot of the volume"), true
	case !s.Exists:
		return Step{Action: TakeSnapshot{}}, true
	case !s.Ready:
		return wait("waiting until the snapshot of the volume is ready%s", sentence.Prefixed(": ", s.Problem)), true
	}
	return Step{Action: MakeClone{i}}, true
}

// findHead makes the head of a claim; false once it is there.
func findHead(o Observation, i int) (Step, bool) {
	h, known := o.Claims[i].Head, o.Record.At(i).Head
	next := o.Record.Clone()
	switch {
	case h == nil && known.UID != "" && !o.Record.Slots:
		// The next point begins with the newest version.
		step := giveUp(o, fmt.Sprintf("somebody deleted real claim %s at the standby: the next point makes it anew", known.Key()))
		step.Action.(Save).Record.At(i).Head.UID = ""
		return step, true
	case h == nil && known.UID != "":
		next.LoseSlot(i, known.UID)
		next.At(i).Head.UID = ""
		return Step{Action: Save{next}, Say: fmt.Sprintf("somebody deleted real claim %s at the standby: the next point copies all again",
			known.Key()), Reason: PointFailed}, true
	case h == nil:
		if step, ok := findBasis(o, i); ok {
			return step, true
		}
		return Step{Action: MakeHead{i}}, true
	case !isHead(o, i):
		return giveUp(o, fmt.Sprintf("a claim %s is at the standby already and is not this replica's: remove it there", known.Key())), true
	case known.UID == "" && isUnmade(o, i) && madeFrom(h) != basisName(o, i):
		// A request of another point came late, and what it is to be made from went with that.
		return dropUnmade(o, i), true
	case h.DeletionTimestamp != nil:
		return giveUp(o, fmt.Sprintf("real claim %s at the standby is being deleted", known.Key())), true
	case known.UID == "":
		next.At(i).Head.UID = h.UID
		return Step{Action: Save{next}}, true
	}
	return Step{}, false
}

// isFrom says whether a claim was made of the snapshot of a name.
func isFrom(claim *corev1.PersistentVolumeClaim, snapshot string) bool {
	from := claim.Spec.DataSource
	return from != nil && from.Kind == volumesnapshot.Kind && from.Name == snapshot
}

// copyOver brings the heads to what the point is of, and compares both.
func copyOver(o Observation) Step {
	switch {
	case o.Source.Unusable != "":
		return away(o.Source.Unusable)
	case o.Standby.Unusable != "":
		return away(o.Standby.Unusable)
	}
	if step, ok := each(o, func(i int) (Step, bool) { return copyOne(o, i) }); ok {
		return step
	}
	return Step{Action: Save{o.Record.Enter(record.Settle, o.Now)}}
}

// copyOne brings the head of a claim to what the point is of, and compares both; false once that is done.
func copyOne(o Observation, i int) (Step, bool) {
	p, seen := o.Record.Point.At(i), o.Claims[i]
	switch {
	case !isHead(o, i) || seen.Head.DeletionTimestamp != nil:
		return giveUp(o, fmt.Sprintf("somebody deleted real claim %s at the standby", o.Record.At(i).Head.Key())), true
	case p.Root != "":
		return Step{}, false
	case seen.Clone == nil || seen.Clone.DeletionTimestamp != nil:
		return giveUp(o, "somebody deleted the claim that was made of the snapshot"), true
	}
	if o.Record.Slots && isMarked(seen.Head) {
		return Step{Action: Unseal{i}}, true
	}
	if step, ok := runMovers(o, i); ok {
		return step, true
	}
	if step, ok := keep(o, i); ok {
		return step, true
	}
	task := moverapi.Task{ID: "verify", Kind: moverapi.Verify, Full: o.Record.Point.Scrub, Fingerprints: true}
	switch {
	case p.Was != nil && !p.Looked:
		// First of all: what comes after it changes the head.
		task = moverapi.Task{ID: lookTask, Kind: moverapi.Verify, Full: o.Record.Point.Scrub, Settled: p.Was.Cut.Add(-settling)}
	case p.Expect == nil:
		task = moverapi.Task{ID: "prepare", Kind: moverapi.Prepare}
	case !p.Copied:
		// Nobody writes to what was made of a snapshot.
		task = moverapi.Task{ID: "final", Kind: moverapi.Final}
	}
	done, step, ok := runTask(o, i, task)
	next := o.Record.Clone()
	switch {
	case !ok:
		return step, true
	case task.Kind == moverapi.Prepare:
		if why := whyNotWhole(done.Prepared); why != "" {
			return giveUp(o, why), true
		}
		next.Point.At(i).Expect = done.Prepared.Source
		return Step{Action: Save{next}}, true
	case task.ID == lookTask:
		return look(o, i, done.Verified), true
	case task.Kind == moverapi.Final:
		its := next.Point.At(i)
		its.Copied, its.Sent, its.Wrote = true, done.Progress.BytesSent, wroteOf(its, done)
		return Step{Action: Save{next}}, true
	}
	if v := done.Verified; v == nil || !v.Equal || v.TargetRoot == "" || v.SourceRoot != v.TargetRoot || len(v.TargetRoot) > longestRoot ||
		len(v.Differences) > 0 || v.DifferencesLeftOff > 0 {
		return giveUp(o, "the copy at the standby differs from what was copied"+sentence.Prefixed(": ", firstDifference(v))+
			"; this point is not sealed, and the versions before it stay: see the health of the storage in both clusters"), true
	}
	its := next.Point.At(i)
	its.Root, its.Bytes, its.RootVersion = done.Verified.TargetRoot, done.Verified.TargetBytes, done.Verified.RootVersion
	its.Fingerprints = fingerprintsOf(done.Verified.Fingerprints)
	return copied(o, next), true
}

// copied is the step with which the head of one claim has what the point is of.
func copied(o Observation, next *record.Record) Step {
	kept := 0
	for i := range next.Len() {
		switch its := next.Point.At(i); {
		case its.Root == "":
			return Step{Action: Save{next}}
		case its.Unchanged:
			kept++
		}
	}
	if kept > 0 && kept < next.Len() {
		next.Point.KeepNone()
		return Step{Action: Save{next}}
	}
	return Step{Action: Save{next.Enter(record.Settle, o.Now)}}
}

func firstDifference(v *moverapi.Verified) string {
	if v == nil || len(v.Differences) == 0 {
		return ""
	}
	return v.Differences[0].Path + ": " + v.Differences[0].What
}

// runMovers is the next step by which both movers of a claim run and reach each other; false once they do.
func runMovers(o Observation, i int) (Step, bool) {
	seen, waiting := o.Claims[i], ""
	for _, end := range []struct {
		role moverapi.Role
		at   string
		m    movers.State
	}{{moverapi.Sender, "source", seen.Reader}, {moverapi.Receiver, "standby", seen.Writer}} {
		switch m := end.m; {
		case !m.Exists:
			return Step{Action: MakeMover{i, end.role}}, true
		case m.Ended && !m.Leaving:
			return Step{Action: DropMover{i, end.role}}, true
		case m.Unstarted && !m.Leaving:
			return Step{Action: StartMover{i, end.role}}, true
		case m.Keyless && !m.Leaving:
			return Step{Action: GiveKeys{i, end.role}}, true
		case !m.Running && waiting == "":
			waiting = fmt.Sprintf("waiting until the mover at the %s runs%s", end.at, sentence.Prefixed(": ", m.Problem))
		}
	}
	switch {
	case waiting != "":
	case seen.Copy == nil:
		waiting = "waiting until the mover at the source answers: " + seen.CopyError
	case !seen.Copy.Connected:
		waiting = "waiting until the movers reach each other: " + seen.Copy.ConnectionError
	}
	last := since(o)
	if seen.Advanced.After(last) {
		last = seen.Advanced
	}
	if o.Now.Sub(last) > patience {
		why := fmt.Sprintf("the copy has stood still for %s%s", patience, sentence.Prefixed(": ", waiting))
		if isUnmade(o, i) {
			return beginWhole(o, i, why), true
		}
		return giveUp(o, why), true
	}
	return wait("%s", waiting), waiting != ""
}

// runTask makes the movers of a claim do a task. With ok it is done; otherwise step is the next one.
func runTask(o Observation, i int, task moverapi.Task) (done *moverapi.TaskStatus, step Step, ok bool) {
	task.Expect = o.Record.Point.At(i).Expect
	if o.Replica != nil && o.Replica.Spec.BandwidthLimit != nil {
		// The claims of a group travel beside each other.
		task.BytesPerSecond = max(1, o.Replica.Spec.BandwidthLimit.Value()/int64(o.Record.Len()))
	}
	switch status := o.Claims[i].Copy.Task; {
	case status == nil || status.ID != task.ID || status.State == moverapi.Cancelled:
		return nil, Step{Action: Start{i, task}}, false
	case status.State == moverapi.Failed:
		return nil, giveUp(o, "the mover gave up: "+status.Error), false
	case status.State == moverapi.Done:
		return status, Step{}, true
	default:
		return nil, wait("the mover is %s", cmp.Or(status.Progress.Step, "at work")), false
	}
}

// whyNotWhole says why a copy would not be whole; empty if it would.
func whyNotWhole(p *moverapi.Prepared) string {
	const most = 64 << 10
	switch {
	case p == nil || len(p.Source) == 0:
		return "the mover looked at the volume and says nothing of it: use movers of the provisioner's version"
	case len(p.Source) > most:
		return "the mover says more of what its source is than movers do: use movers of the provisioner's version, and see who runs its cluster"
	case len(p.Refusals) > 0:
		return "the volume cannot be copied there whole: " + p.Refusals[0].String() + ": mend that, or choose another class"
	}
	return ""
}

// settle ends the movers that write: what is sealed is what they left. The source is not needed any more, which may be lost just now.
func settle(o Observation) Step {
	if step, ok := endWriters(o); ok {
		return step
	}
	next := o.Record.Enter(record.Seal, o.Now)
	for i, seen := range o.Claims {
		switch {
		case o.Record.Slots:
			continue
		case !isHead(o, i) || seen.HeadVolume == nil || seen.HeadVolume.Spec.CSI == nil:
			return giveUp(o, fmt.Sprintf("real claim %s at the standby is gone, or not bound to a volume of a CSI driver",
				o.Record.At(i).Head.Key()))
		case seen.SealBy == "":
			return giveUp(o, "no snapshot can be taken at the standby: "+seen.NoSeal)
		}
		next.Point.At(i).SealBy = seen.SealBy
		next.Point.At(i).Head = volumesnapshot.Volume{Driver: seen.HeadVolume.Spec.CSI.Driver, Handle: seen.HeadVolume.Spec.CSI.VolumeHandle}
	}
	return Step{Action: Save{next}}
}

// endWriters is the step by which the movers at the standby end, and endReaders that of those at the source; false once they have.
func endWriters(o Observation) (Step, bool) {
	return each(o, func(i int) (Step, bool) {
		return endMover(i, moverapi.Receiver, "standby", o.Standby, o.Claims[i].Writer)
	})
}

func endReaders(o Observation) (Step, bool) {
	return each(o, func(i int) (Step, bool) { return endMover(i, moverapi.Sender, "source", o.Source, o.Claims[i].Reader) })
}

func endMover(i int, role moverapi.Role, at string, cluster Cluster, m movers.State) (Step, bool) {
	switch {
	case cluster.Gone:
		return Step{}, false
	case cluster.Unusable != "":
		return away(cluster.Unusable), true
	case m.Exists && !m.Leaving:
		return Step{Action: DropMover{i, role}}, true
	case m.Exists:
		return wait("waiting until the mover at the %s has ended%s", at, sentence.Prefixed(": ", m.Problem)), true
	}
	return Step{}, false
}

// seal takes the snapshots of the heads, and writes down the version once all are there.
func seal(o Observation) Step {
	if o.Standby.Unusable != "" {
		return away(o.Standby.Unusable)
	}
	if step, ok := each(o, func(i int) (Step, bool) { return sealOne(o, i) }); ok {
		return step
	}
	p := o.Record.Point
	next := o.Record.Enter(record.Clean, o.Now)
	next.Sealed = append(next.Sealed, versionOf(o))
	step := Step{Say: fmt.Sprintf("point %d is sealed", p.Number)}
	if change := changeOf(next, next.Sealed[len(next.Sealed)-1].Name, PinAbove(o.Replica.Spec.Versions)); change != nil && next.Change == nil {
		next.Pin(change)
		step.Say, step.Reason = SayChange(next), Suspect
	}
	next.HoldSealed()
	next.Learn(o.Now)
	if next.Slots {
		next.Turn()
	}
	for i := range next.Len() {
		next.At(i).Whole = false
	}
	next.Failures, next.Failed, next.Why = 0, time.Time{}, ""
	step.Action = Save{next}
	return step
}

// versionOf is the version that the snapshots of the heads seal.
func versionOf(o Observation) record.Version {
	r, p := o.Record, o.Record.Point
	version := record.Version{Number: p.Number, Epoch: r.Epoch, Cut: p.Moment(), Took: o.Now.Sub(p.Cut), Made: p.Made(),
		Others: slices.Repeat([]record.Content{{}}, len(r.Others))}
	for i := range r.Len() {
		known := p.At(i)
		if r.Slots {
			*version.At(i) = record.Content{Name: r.SealName(i), UID: r.At(i).Head.UID, Root: known.Root, Sent: known.Sent}
			continue
		}
		*version.At(i) = record.Content{Name: r.SealName(i), UID: o.Claims[i].Seal.UID, Root: known.Root, Sent: known.Sent, Volume: known.Head}
	}
	return version
}

// sealOne takes the snapshot of the head of a claim; false once it is ready.
func sealOne(o Observation, i int) (Step, bool) {
	if o.Record.Slots {
		return sealSlot(o, i)
	}
	s := o.Claims[i].Seal
	late := o.Now.Sub(since(o))
	switch {
	case s.Wrong:
		return giveUp(o, s.Problem), true
	case s.Exists && s.Leaving:
		return giveUp(o, "somebody deleted the snapshot that was to seal it"), true
	case late > snapshotPatience || s.Problem != "" && late > patience:
		return giveUp(o, fmt.Sprintf("the snapshot at the standby was not ready within %s: %s", late.Round(time.Second), cmp.Or(s.Problem,
			"no reason is given"))), true
	case !s.Exists && isRestored(o):
		// One that is there was taken before.
		return giveUp(o, sayRestored(o)), true
	case !s.Exists && !isHead(o, i):
		return giveUp(o, fmt.Sprintf("somebody deleted real claim %s at the standby", o.Record.At(i).Head.Key())), true
	case !s.Exists:
		return Step{Action: TakeSeal{i}}, true
	case !s.Ready:
		return wait("waiting until the snapshot at the standby is ready%s", sentence.Prefixed(": ", s.Problem)), true
	}
	return Step{}, false
}

// clean is the step by which all goes that a point has made but what it sealed; false once it is gone. What is in a cluster that has no
// RemoteCluster any more stays.
func clean(o Observation) (Step, bool) {
	if step, ok := cleanStandby(o); ok {
		return step, true
	}
	return cleanSource(o)
}

// cleanStandby is that at the standby.
func cleanStandby(o Observation) (Step, bool) {
	if o.Standby.Gone {
		return Step{}, false
	}
	if step, ok := endWriters(o); ok {
		return step, true
	}
	if step, ok := each(o, func(i int) (Step, bool) { return dropSeal(o, i) }); ok {
		return step, true
	}
	return each(o, func(i int) (Step, bool) { return dropBasis(o, i) })
}

// cleanSource is that at the source.
func cleanSource(o Observation) (Step, bool) {
	if o.Source.Gone {
		return Step{}, false
	}
	if step, ok := endReaders(o); ok {
		return step, true
	}
	if step, ok := each(o, func(i int) (Step, bool) { return dropClone(o, i) }); ok {
		return step, true
	}
	s := o.Claims[0].Snapshot
	if o.Record.Point.Group != nil {
		if step, ok := unlabel(o); ok {
			return step, true
		}
		// Those that it has go with it.
		s = o.Group.Snapshot
	}
	switch {
	case s.Exists && !s.Leaving:
		return Step{Action: DropSnapshot{}}, true
	case s.Exists:
		return wait("waiting until the snapshot of the volume is gone%s", sentence.Prefixed(": ", s.Problem)), true
	}
	return Step{}, false
}

// dropSeal is the step by which the snapshot of a head goes that seals nothing.
func dropSeal(o Observation, i int) (Step, bool) {
	switch s, kept := o.Claims[i].Seal, o.Kept[o.Record.SealName(i)]; {
	case o.Record.Point.Why == "" || !s.Exists:
		return Step{}, false
	case kept != "" && !s.Taken && !s.Wrong:
		// It may still be taken, and says of what: the head must stay that.
		return Step{Say: fmt.Sprintf("nothing is copied: the snapshot that was to seal point %d may still be taken, and may not be removed yet: "+
			"%s; see the events of VolumeSnapshot %s/%s at the standby", o.Record.Point.Number, kept, o.Record.Head.Namespace,
			o.Record.SealName(i)), Reason: PointFailed, After: seldom}, true
	case kept != "":
		return Step{}, false
	case s.Leaving:
		return wait("waiting until the snapshot at the standby is gone"), true
	default:
		return Step{Action: DropVersion{o.Record.SealName(i), s.UID}}, true
	}
}

// dropClone is the step by which the claim goes that was made of the snapshot of a source.
func dropClone(o Observation, i int) (Step, bool) {
	switch clone := o.Claims[i].Clone; {
	case clone == nil:
		return Step{}, false
	case clone.DeletionTimestamp == nil:
		return Step{Action: DropClone{i}}, true
	default:
		return wait("waiting until real claim %s/%s, which was made of a snapshot, is gone", clone.Namespace, clone.Name), true
	}
}
