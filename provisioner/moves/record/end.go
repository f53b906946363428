package record

// End is one end of a copy.
type End string

// The ends.
const (
	Source End = "source"
	Target End = "target"
	// Snapped is a claim that was made of a snapshot of the source, and that is copied in
	// its place while pods use the source.
	Snapped End = "snapshot"
)

// Ends are those that each copy has.
var Ends = []End{Source, Target}

// At returns the copy at an end. A claim that has no snapshot must not be asked for that.
func (c *Claim) At(end End) *Copy {
	switch end {
	case Source:
		return &c.Source
	case Snapped:
		return &c.Snapshot.Copy
	default: // Target
		return &c.Target
	}
}
