package record

import "slices"

// This file has points of which something is left in a cluster that does not answer; see left.go of package decide.

// Leave notes a point of which something is left at its source. Of that the names are enough.
func (r *Record) Leave(p *Point) {
	left := Point{Number: p.Number, Stage: Clean, Since: p.Since, Cut: p.Cut, By: p.By, Group: p.Group,
		Why: p.Why, Others: make([]Session, len(p.Others))}
	for i := range r.Len() {
		its := p.At(i)
		*left.At(i) = Session{Source: its.Source, Volume: its.Volume, Taken: its.Taken}
	}
	r.Left = append(r.Left[:len(r.Left):len(r.Left)], left)
}

// OfLeft returns the record as it is for one of the points that were left.
func (r *Record) OfLeft(i int) *Record {
	of := r.Clone()
	of.Point, of.Left = &r.Left[i], nil
	return of.Clone()
}

// LeftIn says whether a point has left something in a cluster.
func (r *Record) LeftIn(cluster string) bool {
	return slices.ContainsFunc(r.Left, func(p Point) bool { return p.Source.Cluster == cluster })
}
