package decide_test

import (
	"fmt"
	"slices"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has what must hold in a small world. What does not is a violation, which ends the exploration with how it came to that.

type violation string

func must(holds bool, format string, args ...any) {
	if !holds {
		fail(format, args...)
	}
}

func fail(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }

// write has a mover write to a real claim at the standby: never to one that has a version which counts, nor to one of a claim.
func (s *small) write(b *smallReal, has smallContent) {
	must(!b.taken, "what a claim has, or is about to get, is written to")
	must(b.mark == "", "what says that it has a version is written to")
	for i := range s.record.Sealed {
		must(!s.slots || s.record.Sealed[i].UID != b.uid, "what counts as a version is written to")
	}
	b.has = has
}

// checkSave checks a record that is about to be written: each version has exactly what was sent for its moment, none goes that is wanted or
// held, and once there is one there always is.
func (s *small) checkSave(next *record.Record) {
	if s.replica.deleted {
		return
	}
	for i := range next.Sealed {
		v := &next.Sealed[i]
		j := slices.IndexFunc(s.record.Sealed, func(was record.Version) bool { return was.Name == v.Name })
		switch {
		case j < 0 && !v.Going:
			s.checkSealed(next, i)
		case j >= 0 && v.Going && !s.record.Sealed[j].Going:
			s.checkGoing(next, i)
		}
	}
	for i := range s.record.Sealed {
		was := &s.record.Sealed[i]
		if slices.ContainsFunc(next.Sealed, func(v record.Version) bool { return v.Name == was.Name }) {
			continue
		}
		if s.slots {
			must(was.Name != s.chosen() || s.failover.stage == committed, "the version is no longer counted that the claim is to get")
			continue
		}
		snap := s.west.snap(was.Name)
		must(snap == nil || snap.leaving || snap.uid != was.UID, "a version is no longer counted that is there")
	}
	must(!s.hadVersion || next.Newest() != nil, "there was a version, and there is none")
}

// checkSealed checks a version that is new.
func (s *small) checkSealed(next *record.Record, i int) {
	v, has := &next.Sealed[i], torn
	if s.slots {
		for j := range s.west.claims {
			if b := &s.west.claims[j]; b.uid == v.UID && !b.leaving {
				must(!s.west.isWritten(b.name), "a version is sealed of what is being written to")
				must(v.IsIn(0, b.mark), "a version is sealed in a slot that says something else")
				has = b.has
			}
		}
	} else if snap := s.west.snap(v.Name); snap != nil && snap.uid == v.UID && snap.taken {
		has = snap.has
	}
	must(has != torn, "version %s is torn, or not there", v.Name)
	must(has.String() == v.Root, "version %s has %d, and %s was compared", v.Name, has, v.Root)
	c := slices.IndexFunc(s.cuts, func(cut smallCut) bool { return cut.number == v.Number })
	must(c >= 0 && s.cuts[c].has == has, "version %s has %d, and its moment %v", v.Name, has, s.cuts)
	must(has.epoch() == s.newest.epoch() || s.claim.uid != next.ClaimUID,
		"version %s has what was written before the failover, and is sealed after it", v.Name)
	for _, before := range next.Sealed[:i] {
		must(before.Number < v.Number && (before.Going || !before.Cut.After(v.Cut) || s.jumped), "version %s is older than the one before it",
			v.Name)
	}
}

// chosen is the name of the version that a claim is to get; empty if there is none.
func (s *small) chosen() string {
	if s.failover.stage == beganOne || s.failover.stage == madeOne || s.failover.stage == committed {
		return s.failover.chosen.Name
	}
	return ""
}

// checkGoing checks a version that is to go from now on: enough newer ones are there, or it is lost.
func (s *small) checkGoing(next *record.Record, i int) {
	v := &next.Sealed[i]
	must(v.Name != s.chosen(), "a version goes that the claim is to get")
	must(v.Name != s.drill, "a version goes that a drill uses")
	must(!v.Pinned, "a version goes that is pinned")
	newer := 0
	for j := i + 1; j < len(next.Sealed); j++ {
		snap := s.west.snap(next.Sealed[j].Name)
		if next.Sealed[j].Counts() && snap != nil && snap.uid == next.Sealed[j].UID && !snap.leaving {
			newer++
		}
	}
	must(newer >= int(smallSpec.Versions.Keep), "a version goes, and there are %d newer ones", newer)
}

// dropVersion deletes a snapshot at the standby, unless its owner keeps it.
func (s *small) dropVersion(a decide.DropVersion, late bool) {
	snap := s.west.snap(a.Name)
	switch {
	case snap == nil || snap.uid != a.UID || snap.leaving:
		return
	case !s.replica.deleted:
		i := slices.IndexFunc(s.record.Sealed, func(v record.Version) bool { return v.UID == a.UID })
		must(i < 0 || s.record.Sealed[i].Going, "a version is deleted that counts")
		must(i >= 0 || s.record.Point != nil && s.record.Point.Why != "" || late, "a snapshot is deleted that is of no version")
		must(a.Name != s.drill, "a version is deleted that a drill uses")
	}
	must(late || a.Name != s.chosen(), "a version is deleted that the claim is to get")
	if s.west.keeps {
		if !late {
			s.keep(a.Name)
		}
		return
	}
	snap.leaving = true
}

// isWritten says whether a mover may write to a real claim.
func (c *smallCluster) isWritten(claim string) bool {
	return slices.ContainsFunc(c.movers, func(m smallMover) bool {
		return m.claim == claim && m.running && m.role == moverapi.Receiver
	})
}

// checkSeal checks that nobody writes to what a snapshot is taken of that is to seal the point.
func (s *small) checkSeal(snap *smallSnap) {
	if s.record == nil || s.record.Point == nil || s.record.Point.Stage != record.Seal || snap.name != s.record.SealName(0) {
		return
	}
	must(!s.west.isWritten(snap.claim), "a snapshot is taken of what is being written to")
}

// checkMade checks what a failover makes a volume of.
func (s *small) checkMade(has smallContent) {
	must(has.String() == s.failover.chosen.Root, "the claim is to get %d, and the version %s", has, s.failover.chosen.Root)
	must(has > 0, "the claim is to get what is torn")
}

// checkRemoved checks that nothing is left once home forgets the replica, but what came late.
func (s *small) checkRemoved(late bool) {
	if late {
		return
	}
	must(s.replica.deleted, "home forgets a replica that is wanted")
	for i := range s.west.snaps {
		must(s.west.snaps[i].leaving, "snapshot %s is left in west", s.west.snaps[i].name)
	}
	for i := range s.west.claims {
		b := &s.west.claims[i]
		another := !s.slots && s.record.Head.UID != "" && b.uid != s.record.Head.UID
		must(b.leaving || b.taken || b.late || another || s.slots && b.name == s.chosen(), "real claim %s is left in west", b.name)
	}
	for i := range s.west.movers {
		must(s.west.movers[i].leaving, "mover %s is left in west", s.west.movers[i].name)
	}
	for i := range s.east.snaps {
		must(s.east.snaps[i].leaving || s.east.snaps[i].late, "snapshot %s is left in east", s.east.snaps[i].name)
	}
	for i := range s.east.claims {
		must(s.east.claims[i].leaving || s.east.claims[i].late, "real claim %s is left in east", s.east.claims[i].name)
	}
	for i := range s.east.movers {
		must(s.east.movers[i].leaving || s.east.movers[i].late, "mover %s is left in east", s.east.movers[i].name)
	}
}
