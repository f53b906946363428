package decide

import (
	"hash/fnv"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has the points of which nothing is read: where the file systems of the source and of the head say of each entry what they said
// when both were compared, the head has what the point is of.

const (
	// fingerprintTask is the ID of the task that finds that out.
	fingerprintTask = "fingerprint"
	// readEvery is how often contents are read at least, and up to a day less often. Until then nothing shows what storage alters by itself.
	readEvery = 6 * 24 * time.Hour
	// shortRPO is up to which RPO all is always read: a version of which nothing was read counts as a minute older.
	shortRPO = 5 * time.Minute
	// longestFingerprint is as long as one may be that a mover says.
	longestFingerprint = 128
)

// keep is the step by which it becomes known whether the head of a claim has what the point is of already; false if it is to be copied.
// That it is, is not recorded: a mover that starts anew is asked again.
func keep(o Observation, i int) (Step, bool) {
	p, done := o.Record.Point.At(i), o.Claims[i].Copy.Task
	if p.Expect != nil || !mayBeUnchanged(o) || done != nil && done.Kind != moverapi.Fingerprint && done.State != moverapi.Cancelled {
		return Step{}, false
	}
	done, step, ok := runTask(o, i, moverapi.Task{ID: fingerprintTask, Kind: moverapi.Fingerprint})
	if !ok {
		return step, true
	}
	if fingerprintsOf(done.Fingerprints) != p.Was.Fingerprints {
		return Step{}, false
	}
	next := o.Record.Clone()
	next.Point.Keep(i)
	next.Point.At(i).Sent = done.Progress.BytesSent
	return copied(o, next), true
}

// mayBeUnchanged says whether fingerprints can tell that the heads have what the point is of. What was read of a source was read from a
// snapshot, which may have the new times of a file and not yet what was written then; so it counts only if the source had the same
// fingerprint a while before that snapshot. A snapshot may as well have what was just written, and not yet its times: so a point is of a
// moment before that, and not made for an application that was frozen for it.
func mayBeUnchanged(o Observation) bool {
	p := o.Record.Point
	if p.Scrub || p.Changed || p.Freeze != nil || o.Replica == nil || RPO(o.Replica) < shortRPO {
		return false
	}
	for i := range o.Record.Len() {
		was := p.At(i).Was
		if was == nil || was.Fingerprints.Source == "" || was.Fingerprints.Target == "" || was.Cut.Sub(was.Since) < settling ||
			Ahead(was.Cut, p.Cut) || p.Cut.Sub(was.Cut) >= readEvery+spread(o.Record) {
			return false
		}
	}
	return true
}

// spread has replicas that were made together not read all at the same time: it is up to a day.
func spread(r *record.Record) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.UID))
	return time.Duration(h.Sum32()%(24*60)) * time.Minute
}

// fingerprintsOf are what a mover says, if it can be used.
func fingerprintsOf(said *moverapi.Fingerprints) moverapi.Fingerprints {
	if said == nil || len(said.Source) > longestFingerprint || len(said.Target) > longestFingerprint {
		return moverapi.Fingerprints{}
	}
	return *said
}
