package record

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// This file has what is known of how much a point has changed. What a head had, and what was written to it since, less what it has now, is
// what was overwritten or removed: a point that does that to an abnormal share may have copied what somebody has spoiled.

// Change is an abnormal share of changes.
type Change struct {
	// Version is the name of the version that has them, Number its number.
	Version string `json:"version"`
	Number  int64  `json:"number"`
	// Claim is the claim that has shrunk so much; empty: it is of all claims.
	Claim string `json:"claim,omitempty"`
	// Had is how many bytes there were before, and Gone how many of those there are not any more as they were.
	Had  int64 `json:"had"`
	Gone int64 `json:"gone"`
}

// Held is what a real claim at the standby had when a version was last sealed in it.
type Held struct {
	UID   types.UID `json:"uid"`
	Bytes int64     `json:"bytes"`
	// Wrote is how much points have written to it since that failed.
	Wrote int64 `json:"wrote,omitempty"`
}

// HeldBy returns what a real claim of a claim had; nil: it never had a version.
func (p *Part) HeldBy(uid types.UID) *Held {
	for _, held := range p.Held {
		if uid != "" && held.UID == uid {
			return &held
		}
	}
	return nil
}

// hold notes what a real claim of a claim has. What is known of real claims that are none of ours any more is dropped.
func (p *Part) hold(held Held) {
	p.Held = slices.DeleteFunc(slices.Clone(p.Held), func(h Held) bool {
		return h.UID == held.UID || h.UID != p.Head.UID && h.UID != p.Slot.UID
	})
	p.Held = append(p.Held, held)
}

// HoldSealed notes what the heads have once the point is sealed.
func (r *Record) HoldSealed() {
	for i := range r.Len() {
		r.At(i).hold(Held{UID: r.At(i).Head.UID, Bytes: r.Point.At(i).Bytes})
	}
}

// HoldFailed notes how much a point that failed has written to the head of a claim: the next one does not write that again.
func (r *Record) HoldFailed(i int, wrote int64) {
	if held := r.At(i).HeldBy(r.At(i).Head.UID); held != nil && wrote > 0 {
		held.Wrote += wrote
		r.At(i).hold(*held)
	}
}

// Pin has all versions stay that are older than the one with a change.
func (r *Record) Pin(change *Change) {
	r.Change = change
	for i := range r.Sealed {
		r.Sealed[i].Pinned = !r.Sealed[i].Going && r.Sealed[i].Number < change.Number
	}
}

// Unpin has them go as others do. The next point in a slot with one of them makes the same change once more, so it is not judged.
func (r *Record) Unpin() {
	if r.PinnedSlot() != nil {
		for i := range r.Len() {
			p := r.At(i)
			p.Held = slices.DeleteFunc(slices.Clone(p.Held), func(h Held) bool { return h.UID == p.Head.UID })
		}
	}
	r.Change = nil
	for i := range r.Sealed {
		r.Sealed[i].Pinned = false
	}
}

// PinnedSlot returns the version that the heads have and that is pinned; nil if there is none. Slots alone have versions in heads.
func (r *Record) PinnedSlot() *Version {
	for v := range r.Sealed {
		for i := range r.Len() {
			if r.Slots && r.Sealed[v].Pinned && r.Sealed[v].At(i).UID == r.At(i).Head.UID {
				return &r.Sealed[v]
			}
		}
	}
	return nil
}
