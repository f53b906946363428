package record

import (
	"hash/crc32"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// This file has what is different where the standby has no snapshots: each claim has two real claims there, its slots, that are written
// in turn. A point is written to the head; once it was compared, the head has the newest version and becomes the slot, and the slot becomes
// the head. So the head never has the newest version, and at each moment one of the two has a whole one.

// names is how many names of slots there are for a replica.
const names = 1000

// NameSlot names a real claim that is to be made at the standby for a claim, and counts it. The name is one that the real claim of a moved
// claim may have, since a failover makes that of it; moves count from 1, so theirs are others.
func (r *Record) NameSlot(i int) backing.Ref {
	n := int(crc32.ChecksumIEEE([]byte(r.UID))>>12+1)*names + r.Named%names
	r.Named++
	return backing.Ref{Cluster: r.Head.Cluster, Namespace: r.At(i).Head.Namespace, Name: backing.Moved(r.At(i).ClaimUID, n)}
}

// SlotOf returns the real claim that has what a version has of a claim.
func (r *Record) SlotOf(i int, has *Content) (at backing.Ref, ok bool) {
	for _, at = range []backing.Ref{r.At(i).Head, r.At(i).Slot} {
		if r.Slots && has.UID != "" && at.UID == has.UID {
			return at, true
		}
	}
	return backing.Ref{}, false
}

// IsIn says whether a slot has what the version has of a claim, by what the slot says of itself. It does not say so where the record is of
// an earlier moment than the standby, as after home was restored from a backup: then it may have been written to since.
func (v *Version) IsIn(i int, seal string) bool {
	said, err := volumesnapshot.DecodeSeal(seal)
	return err == nil && said.Number == v.Number && said.Cut.Equal(v.Cut) && said.Root == v.At(i).Root
}

// Overwrite no longer counts the versions that are in heads, which are written to from now on. The newest is not among them.
func (r *Record) Overwrite() {
	for i := range r.Len() {
		r.LoseSlot(i, r.At(i).Head.UID)
	}
}

// LoseSlot no longer counts the versions that have what is in a real claim of a claim, and returns how many there were.
func (r *Record) LoseSlot(i int, uid types.UID) (lost int) {
	return r.LoseSlotUnless(i, uid, func(*Version) bool { return false })
}

// LoseSlotUnless is LoseSlot, but for versions that are kept.
func (r *Record) LoseSlotUnless(i int, uid types.UID, kept func(*Version) bool) (lost int) {
	before := len(r.Sealed)
	r.Sealed = slices.DeleteFunc(r.Sealed, func(v Version) bool { return uid != "" && v.At(i).UID == uid && !kept(&v) })
	if lost = before - len(r.Sealed); lost > 0 {
		// It may have been written to.
		r.At(i).forget(uid)
	}
	return lost
}

// Turn has the newest version be in the slots, and so out of the way of the next point.
func (r *Record) Turn() {
	newest := r.Newest()
	for i := range r.Len() {
		if part := r.At(i); newest != nil && part.Head.UID != "" && newest.At(i).UID == part.Head.UID {
			part.Head, part.Slot = part.Slot, part.Head
		}
	}
}
