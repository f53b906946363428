package record

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// This file has what is known of a head before it is written to. With scrubs that is compared: it must have what was sealed, and files that
// say that they have not changed must not have. A point that is a scrub compares all, also block volumes, of which that takes to read them
// once more.

// Known is what a real claim at the standby had when it was compared, as long as nobody of ours has written to it since.
type Known struct {
	UID types.UID `json:"uid"`
	// Root, Bytes and RootVersion are those of what it has: see moverapi.Verified. Cut is the moment that it is of, when its contents were
	// last read.
	Root        string    `json:"root"`
	Bytes       int64     `json:"bytes,omitempty"`
	RootVersion int       `json:"rootVersion,omitempty"`
	Cut         time.Time `json:"cut"`
	// Took is how long it took from Cut until it was sealed.
	Took time.Duration `json:"took,omitempty"`
	// Fingerprints are those of the source and of the head that were compared, and Since is the moment from which on the source is known
	// to have had its own.
	Fingerprints moverapi.Fingerprints `json:"fingerprints,omitzero"`
	Since        time.Time             `json:"since,omitzero"`
}

// Finding is what was found wrong with one claim.
type Finding struct {
	Claim string `json:"claim"`
	// Number is that of the point that looked.
	Number int64 `json:"number"`
	// Altered says that what the standby had was not what was sealed there.
	Altered bool `json:"altered,omitempty"`
	// Files, Bytes and First are of what differs unseen: see moverapi.Unseen. With Block there are bytes alone, of all that differs.
	Files int64  `json:"files,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	First string `json:"first,omitempty"`
	Block bool   `json:"block,omitempty"`
}

// knownOf returns what a real claim of a claim is known to have; nil: that is not known.
func (p *Part) knownOf(uid types.UID) *Known {
	for _, known := range p.Known {
		if uid != "" && known.UID == uid {
			return &known
		}
	}
	return nil
}

// forget no longer says what a real claim of a claim has.
func (p *Part) forget(uid types.UID) {
	p.Known = slices.DeleteFunc(slices.Clone(p.Known), func(known Known) bool { return known.UID == uid })
}

// Write has the heads be written to: from now on it is not known what they have. With look the point looks first whether they still have
// what is known. With scrub it is one, if that is known of all heads.
func (r *Record) Write(look, scrub bool) {
	for i := range r.Len() {
		scrub = scrub && r.At(i).knownOf(r.At(i).Head.UID) != nil
	}
	r.Point.Scrub = scrub
	for i := range r.Len() {
		part, session := r.At(i), r.Point.At(i)
		session.Was = part.knownOf(part.Head.UID)
		session.Looked = session.Was == nil || !scrub && (!look || session.Block)
		part.forget(part.Head.UID)
	}
}

// Look notes that the point has looked at a claim, and what it found there; nil: nothing. A scrub that has looked at all makes what was
// found before it count no more.
func (r *Record) Look(i int, found *Finding, now time.Time) {
	r.Point.At(i).Looked = true
	r.Found = slices.Clone(r.Found)
	if found != nil {
		r.Found = append(slices.DeleteFunc(r.Found, func(f Finding) bool { return f.Claim == found.Claim }), *found)
	}
	for i := range r.Len() {
		if !r.Point.Scrub || !r.Point.At(i).Looked {
			return
		}
	}
	r.Scrubbed = now
	r.Found = slices.DeleteFunc(r.Found, func(f Finding) bool { return f.Number != r.Point.Number })
}

// Learn notes what the heads have once they are sealed, and forgets real claims that are none of ours any more.
func (r *Record) Learn(now time.Time) {
	for i := range r.Len() {
		part, session := r.At(i), r.Point.At(i)
		part.Known = slices.DeleteFunc(slices.Clone(part.Known), func(known Known) bool {
			return known.UID == part.Head.UID || known.UID != part.Slot.UID
		})
		part.Known = append(part.Known, session.known(part.Head.UID, r.Point.Cut, now))
	}
}

// known is what a head has after the point of a moment, which is sealed now.
func (s *Session) known(head types.UID, cut, now time.Time) Known {
	if s.Unchanged {
		return *s.Was
	}
	known := Known{UID: head, Root: s.Root, Bytes: s.Bytes, RootVersion: s.RootVersion, Cut: cut, Took: now.Sub(cut),
		Fingerprints: s.Fingerprints, Since: cut}
	if s.Was != nil && s.Was.Fingerprints.Source == s.Fingerprints.Source {
		known.Since = s.Was.Since
	}
	return known
}

// Keep notes that nothing has changed since the head of a claim became what it is, and so that it has what the point is of.
func (p *Point) Keep(i int) {
	s := p.At(i)
	s.Unchanged, s.Copied = true, true
	s.Root, s.Bytes, s.RootVersion = s.Was.Root, s.Was.Bytes, s.Was.RootVersion
}

// KeepNone has the heads of all claims be copied, also of those that were kept: what one has that was read, and one that was not, may be
// of moments that are seconds apart.
func (p *Point) KeepNone() {
	p.Changed = true
	for i := range 1 + len(p.Others) {
		if s := p.At(i); s.Unchanged {
			s.Unchanged, s.Copied, s.Root, s.Bytes, s.RootVersion, s.Sent = false, false, "", 0, 0, 0
		}
	}
}

// timesLate is how much later than a content the times of its file may reach the disk, which a snapshot is of: file systems write them
// every 5 seconds, or 30, unless their settings say otherwise.
const timesLate = time.Minute

// Moment is the one that the version is of.
func (p *Point) Moment() time.Time {
	if p.Unchanged {
		return p.Cut.Add(-timesLate)
	}
	return p.Cut
}
