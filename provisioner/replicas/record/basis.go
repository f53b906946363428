package record

import (
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// This file has what a head begins with that is made where much of the data lies already: then only what differs travels. Nothing of that
// is taken for granted. Each point compares all that the head has, by content, so a basis costs at most what an empty head does.

// Basis is a snapshot at the standby that a head is made from.
type Basis struct {
	// Name is that of the snapshot, and Volume is what it is of.
	Name   string                `json:"name"`
	Volume volumesnapshot.Volume `json:"volume"`
	// Of is the real claim that a move of the claim keeps there: the point takes a snapshot of it with the class By, and removes that. It
	// is never written to, so what has diverged stays in it. Zero: Name is what a version has of the claim.
	Of backing.Ref `json:"of,omitzero"`
	By string      `json:"by,omitempty"`
}

// IsTaken says whether the point takes the snapshot, and removes it.
func (b *Basis) IsTaken() bool { return b != nil && b.Of.UID != "" }

// BasisName is the name of the snapshot of a claim's kept volume that a point takes.
func (r *Record) BasisName(i int) string {
	return numbered(i, "replica-%s-%d-%d-basis", r.UID, r.Point.Number, r.Point.Cut.Unix())
}
