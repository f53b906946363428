package decide

import (
	"cmp"
	"fmt"
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
)

// point is the next step of making a version.
func point(o Observation) Step {
	p := o.Record.Point
	switch {
	case p.Stage == record.Clean:
	case o.Refused.Text != "":
		return giveUp(o, o.Refused.Text)
	case p.Cut.Before(o.FailedOver):
		return giveUp(o, "the claim got an earlier version meanwhile (failover)")
	case o.Now.Sub(p.Cut) > longest:
		return giveUp(o, fmt.Sprintf("it took longer than %d days", longest/(24*time.Hour)))
	case o.Source.Gone || o.Standby.Gone:
		return giveUp(o, cmp.Or(o.Source.Unusable, o.Standby.Unusable))
	}
	switch p.Stage {
	case record.Cut:
		return cut(o)
	case record.Copy:
		return copyOver(o)
	case record.Settle:
		return settle(o)
	case record.Seal:
		return seal(o)
	case record.Clean:
		if step, ok := clean(o); ok {
			return step
		}
		next := o.Record.Clone()
		if next.Point = nil; p.Why != "" {
			if o.Seal.Exists && o.Kept[o.Record.SealName()] != "" {
				// It counts as no version, and goes once it may.
				next.Sealed = append(next.Sealed, versionOf(o))
				next.Sealed[len(next.Sealed)-1].Going = true
			}
			next.Failures, next.Failed, next.Why = next.Failures+1, o.Now, p.Why
		}
		return Step{Action: Save{next}}
	}
	return Step{Say: "the record of the replica names a stage that this version does not know: start the version that wrote it",
		Reason: StandsStill, After: seldom}
}

// giveUp ends a point that fails.
func giveUp(o Observation, why string) Step {
	next := o.Record.Enter(record.Clean, o.Now)
	next.Point.Why = sentence.Short(sentence.Plain(why, len(why)), 1024)
	return Step{Action: Save{next}, Say: fmt.Sprintf("point %d is given up: %s", next.Point.Number, next.Point.Why), Reason: PointFailed}
}

func away(why string) Step { return Step{Say: why, Reason: ClusterAway, After: seldom} }

func wait(format string, args ...any) Step {
	return Step{Say: fmt.Sprintf(format, args...), After: soon}
}

// cut makes what is copied, and where to.
func cut(o Observation) Step {
	r, p, s := o.Record, o.Record.Point, o.Snapshot
	late := o.Now.Sub(p.Since)
	if o.Source.Unusable != "" {
		return away(o.Source.Unusable)
	}
	switch {
	case s.Wrong:
		return giveUp(o, s.Problem)
	case o.Origin == nil || o.Origin.UID != p.Source.UID:
		return giveUp(o, fmt.Sprintf("real claim %s is gone, or another", p.Source.Key()))
	case o.Clone != nil && (o.Clone.DeletionTimestamp != nil || !isFrom(o.Clone, r.PointName())):
		return giveUp(o, fmt.Sprintf("real claim %s/%s is not the one that this point made, or somebody deleted it", o.Clone.Namespace,
			o.Clone.Name))
	case o.Clone != nil:
	case late > snapshotPatience || s.Problem != "" && late > patience:
		return giveUp(o, fmt.Sprintf("the snapshot of the volume was not ready within %s: %s", late.Round(time.Second), cmp.Or(s.Problem,
			"no reason is given")))
	case s.Leaving:
		return giveUp(o, "somebody deleted the snapshot of the volume")
	case !s.Exists:
		return Step{Action: TakeSnapshot{}}
	case !s.Ready:
		return wait("waiting until the snapshot of the volume is ready%s", sentence.Prefixed(": ", s.Problem))
	default:
		return Step{Action: MakeClone{}}
	}
	if o.Standby.Unusable != "" {
		return away(o.Standby.Unusable)
	}
	switch h := o.Head; {
	case h == nil && r.Head.UID != "":
		// The versions are snapshots of their own: they stay.
		next := r.Clone()
		next.Head.UID = ""
		return Step{Action: Save{next}, Say: fmt.Sprintf("somebody deleted real claim %s at the standby: the next point copies all again",
			r.Head.Key()), Reason: PointFailed}
	case h == nil:
		return Step{Action: MakeHead{}}
	case !isHead(o):
		return giveUp(o, fmt.Sprintf("a claim %s is at the standby already and is not this replica's: remove it there", r.Head.Key()))
	case h.DeletionTimestamp != nil:
		return giveUp(o, fmt.Sprintf("real claim %s at the standby is being deleted", r.Head.Key()))
	case r.Head.UID == "":
		next := r.Clone()
		next.Head.UID = h.UID
		return Step{Action: Save{next}}
	}
	return Step{Action: Save{r.Enter(record.Copy, o.Now)}}
}

// isFrom says whether a claim was made of the snapshot of a name.
func isFrom(claim *corev1.PersistentVolumeClaim, snapshot string) bool {
	from := claim.Spec.DataSource
	return from != nil && from.Kind == volumesnapshot.Kind && from.Name == snapshot
}

// copyOver brings the head to what the point is of, and compares both.
func copyOver(o Observation) Step {
	r, p := o.Record, o.Record.Point
	switch {
	case o.Source.Unusable != "":
		return away(o.Source.Unusable)
	case o.Standby.Unusable != "":
		return away(o.Standby.Unusable)
	case !isHead(o) || o.Head.DeletionTimestamp != nil:
		return giveUp(o, fmt.Sprintf("somebody deleted real claim %s at the standby", r.Head.Key()))
	case o.Clone == nil || o.Clone.DeletionTimestamp != nil:
		return giveUp(o, "somebody deleted the claim that was made of the snapshot")
	}
	if step, ok := runMovers(o); ok {
		return step
	}
	task := moverapi.Task{ID: "verify", Kind: moverapi.Verify}
	switch {
	case p.Expect == nil:
		task = moverapi.Task{ID: "prepare", Kind: moverapi.Prepare}
	case !p.Copied:
		// Nobody writes to what was made of a snapshot.
		task = moverapi.Task{ID: "final", Kind: moverapi.Final}
	}
	done, step, ok := runTask(o, task)
	next := r.Clone()
	switch {
	case !ok:
		return step
	case task.Kind == moverapi.Prepare:
		if why := whyNotWhole(done.Prepared); why != "" {
			return giveUp(o, why)
		}
		next.Point.Expect = done.Prepared.Source
		return Step{Action: Save{next}}
	case task.Kind == moverapi.Final:
		next.Point.Copied, next.Point.Sent = true, done.Progress.BytesSent
		return Step{Action: Save{next}}
	}
	if v := done.Verified; v == nil || !v.Equal || v.TargetRoot == "" {
		return giveUp(o, "the copy at the standby differs from what was copied"+sentence.Prefixed(": ", firstDifference(v))+
			"; this point is not sealed, and the versions before it stay: see the health of the storage in both clusters")
	}
	next = r.Enter(record.Settle, o.Now)
	next.Point.Root = done.Verified.TargetRoot
	return Step{Action: Save{next}}
}

func firstDifference(v *moverapi.Verified) string {
	if v == nil || len(v.Differences) == 0 {
		return ""
	}
	return v.Differences[0].Path + ": " + v.Differences[0].What
}

// runMovers is the next step by which both movers run and reach each other; false once they do.
func runMovers(o Observation) (Step, bool) {
	waiting := ""
	for _, end := range []struct {
		role moverapi.Role
		at   string
		m    movers.State
	}{{moverapi.Sender, "source", o.Reader}, {moverapi.Receiver, "standby", o.Writer}} {
		switch m := end.m; {
		case !m.Exists:
			return Step{Action: MakeMover{end.role}}, true
		case m.Ended && !m.Leaving:
			return Step{Action: DropMover{end.role}}, true
		case m.Unstarted && !m.Leaving:
			return Step{Action: StartMover{end.role}}, true
		case m.Keyless && !m.Leaving:
			return Step{Action: GiveKeys{end.role}}, true
		case !m.Running && waiting == "":
			waiting = fmt.Sprintf("waiting until the mover at the %s runs%s", end.at, sentence.Prefixed(": ", m.Problem))
		}
	}
	switch {
	case waiting != "":
	case o.Copy == nil:
		waiting = "waiting until the mover at the source answers: " + o.CopyError
	case !o.Copy.Connected:
		waiting = "waiting until the movers reach each other: " + o.Copy.ConnectionError
	}
	since := o.Record.Point.Since
	if o.Advanced.After(since) {
		since = o.Advanced
	}
	if o.Now.Sub(since) > patience {
		return giveUp(o, fmt.Sprintf("the copy has stood still for %s%s", patience, sentence.Prefixed(": ", waiting))), true
	}
	return wait("%s", waiting), waiting != ""
}

// runTask makes the movers do a task. With ok it is done; otherwise step is the next one.
func runTask(o Observation, task moverapi.Task) (done *moverapi.TaskStatus, step Step, ok bool) {
	task.Expect = o.Record.Point.Expect
	if o.Replica != nil && o.Replica.Spec.BandwidthLimit != nil {
		task.BytesPerSecond = o.Replica.Spec.BandwidthLimit.Value()
	}
	switch status := o.Copy.Task; {
	case status == nil || status.ID != task.ID || status.State == moverapi.Cancelled:
		return nil, Step{Action: Start{task}}, false
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

// settle ends both movers: what is sealed is what they left.
func settle(o Observation) Step {
	if step, ok := endMovers(o); ok {
		return step
	}
	switch {
	case !isHead(o) || o.HeadVolume == nil || o.HeadVolume.Spec.CSI == nil:
		return giveUp(o, fmt.Sprintf("real claim %s at the standby is gone, or not bound to a volume of a CSI driver", o.Record.Head.Key()))
	case o.SealBy == "":
		return giveUp(o, "no snapshot can be taken at the standby: "+o.NoSeal)
	}
	next := o.Record.Enter(record.Seal, o.Now)
	next.Point.SealBy = o.SealBy
	next.Point.Head = volumesnapshot.Volume{Driver: o.HeadVolume.Spec.CSI.Driver, Handle: o.HeadVolume.Spec.CSI.VolumeHandle}
	return Step{Action: Save{next}}
}

// endMovers is the step by which both movers end; false once they have.
func endMovers(o Observation) (Step, bool) {
	for _, end := range []struct {
		role    moverapi.Role
		at      string
		cluster Cluster
		m       movers.State
	}{{moverapi.Receiver, "standby", o.Standby, o.Writer}, {moverapi.Sender, "source", o.Source, o.Reader}} {
		switch {
		case end.cluster.Gone:
		case end.cluster.Unusable != "":
			return away(end.cluster.Unusable), true
		case end.m.Exists && !end.m.Leaving:
			return Step{Action: DropMover{end.role}}, true
		case end.m.Exists:
			return wait("waiting until the mover at the %s has ended%s", end.at, sentence.Prefixed(": ", end.m.Problem)), true
		}
	}
	return Step{}, false
}

// seal takes the snapshot of the head, and writes down the version.
func seal(o Observation) Step {
	r, p, s := o.Record, o.Record.Point, o.Seal
	late := o.Now.Sub(p.Since)
	switch {
	case o.Standby.Unusable != "":
		return away(o.Standby.Unusable)
	case s.Wrong:
		return giveUp(o, s.Problem)
	case s.Exists && s.Leaving:
		return giveUp(o, "somebody deleted the snapshot that was to seal it")
	case late > snapshotPatience || s.Problem != "" && late > patience:
		return giveUp(o, fmt.Sprintf("the snapshot at the standby was not ready within %s: %s", late.Round(time.Second), cmp.Or(s.Problem,
			"no reason is given")))
	case !s.Exists && !isHead(o):
		return giveUp(o, fmt.Sprintf("somebody deleted real claim %s at the standby", r.Head.Key()))
	case !s.Exists:
		return Step{Action: TakeSeal{}}
	case !s.Ready:
		return wait("waiting until the snapshot at the standby is ready%s", sentence.Prefixed(": ", s.Problem))
	}
	next := r.Enter(record.Clean, o.Now)
	next.Sealed = append(next.Sealed, versionOf(o))
	next.Failures, next.Failed, next.Why = 0, time.Time{}, ""
	return Step{Action: Save{next}, Say: fmt.Sprintf("point %d is sealed", p.Number)}
}

// versionOf is the version that the snapshot of the head seals.
func versionOf(o Observation) record.Version {
	r, p := o.Record, o.Record.Point
	return record.Version{
		Number: p.Number, Epoch: r.Epoch, Name: r.SealName(), UID: o.Seal.UID, Cut: p.Cut, Took: o.Now.Sub(p.Cut), Root: p.Root, Sent: p.Sent,
		Volume: p.Head,
	}
}

// clean is the step by which all goes that a point has made but what it sealed; false once it is gone. What is in a cluster that has no
// RemoteCluster any more stays.
func clean(o Observation) (Step, bool) {
	p, s := o.Record.Point, o.Snapshot
	if step, ok := endMovers(o); ok {
		return step, true
	}
	if p.Why != "" && !o.Standby.Gone && o.Seal.Exists && o.Kept[o.Record.SealName()] == "" {
		if o.Seal.Leaving {
			return wait("waiting until the snapshot at the standby is gone"), true
		}
		return Step{Action: DropVersion{o.Record.SealName(), o.Seal.UID}}, true
	}
	switch {
	case o.Source.Gone:
		return Step{}, false
	case o.Clone != nil && o.Clone.DeletionTimestamp == nil:
		return Step{Action: DropClone{}}, true
	case o.Clone != nil:
		return wait("waiting until real claim %s/%s, which was made of a snapshot, is gone", o.Clone.Namespace, o.Clone.Name), true
	case s.Exists && !s.Leaving:
		return Step{Action: DropSnapshot{}}, true
	case s.Exists:
		return wait("waiting until the snapshot of the volume is gone%s", sentence.Prefixed(": ", s.Problem)), true
	}
	return Step{}, false
}
