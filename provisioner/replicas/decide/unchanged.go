package decide

import (
	"time"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// This file has the points of which nothing is read: where the file systems of the source and of the head say of each entry what they said
// when both were compared, the head has what the point is of.

const (
	// fingerprintTask is the ID of the task that finds that out.
	fingerprintTask = "fingerprint"
	// readEvery is how often contents are read at least. Until then nothing shows what storage alters by itself.
	readEvery = 7 * 24 * time.Hour
	// longestFingerprint is as long as one may be that a mover says.
	longestFingerprint = 128
)

// keep is the step by which it becomes known whether the head of a claim has what the point is of already; false if it is to be copied.
// That it is, is not recorded: a mover that starts anew is asked again.
func keep(o Observation, i int) (Step, bool) {
	p, done := o.Record.Point.At(i), o.Claims[i].Copy.Task
	if p.Expect != nil || !mayBeUnchanged(o, i) || done != nil && done.Kind != moverapi.Fingerprint && done.State != moverapi.Cancelled {
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

// mayBeUnchanged says whether fingerprints can tell that a head has what the point is of. What was read of the source was read from a
// snapshot, which may have the new times of a file and not yet what was written then; so it counts only if the source had the same
// fingerprint a while before that snapshot.
func mayBeUnchanged(o Observation, i int) bool {
	was, cut := o.Record.Point.At(i).Was, o.Record.Point.Cut
	return was != nil && was.Fingerprints.Source != "" && was.Fingerprints.Target != "" && !o.Record.Point.Scrub &&
		was.Cut.Sub(was.Since) >= settling && !Ahead(was.Cut, cut) && cut.Sub(was.Cut) < readEvery
}

// fingerprintsOf are what a mover says, if it can be used.
func fingerprintsOf(said *moverapi.Fingerprints) moverapi.Fingerprints {
	if said == nil || len(said.Source) > longestFingerprint || len(said.Target) > longestFingerprint {
		return moverapi.Fingerprints{}
	}
	return *said
}
