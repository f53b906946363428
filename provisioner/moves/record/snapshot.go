package record

import "time"

// Snapshot is how a source is copied that nothing may read beside its pod: a snapshot is
// taken of it, a claim is made of that, and that claim is copied. What it holds is only
// ever the beginning of a copy: the source itself is read once nobody has it.
type Snapshot struct {
	// Copy is the claim that is made of it; it has no UID, since its name is the move's.
	Copy
	// By is the VolumeSnapshotClass. Driver and Handle name the volume of which it must be.
	By     string `json:"by"`
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	// Since is when it was first to be made; zero: it was not. Over is since when it is
	// needed no more, Gone says that nothing of it is left.
	Since time.Time `json:"since,omitzero"`
	Over  time.Time `json:"over,omitzero"`
	Gone  bool      `json:"gone,omitempty"`
	// Prepared says that nothing forbids the copy, Copied that all of it was copied, Why
	// why it never will be.
	Prepared bool   `json:"prepared,omitempty"`
	Copied   bool   `json:"copied,omitempty"`
	Why      string `json:"why,omitempty"`
}

// There says whether something of it may be there.
func (s *Snapshot) There() bool { return s != nil && !s.Since.IsZero() && !s.Gone }

// Reads says whether the claim made of it is copied, or is to be.
func (s *Snapshot) Reads() bool { return s.There() && s.Over.IsZero() }

// Whole says whether all of a claim is copied while pods stand still.
func (c *Claim) Whole() bool { return c.Offline && (c.Snapshot == nil || !c.Snapshot.Copied) }
