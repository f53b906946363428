package record

// Cause is why a move went back or never began, as one of few words: for counting. Why
// says it to people.
type Cause string

// The causes. The first four are somebody's wish.
const (
	Aborted      Cause = "Aborted"
	MoveDeleted  Cause = "MoveDeleted"
	ClaimDeleted Cause = "ClaimDeleted"
	GivenUp      Cause = "GivenUp"
	// Refused: it never began. AlreadyThere: nor did it, for all data is where it is to go.
	Refused      Cause = "Refused"
	AlreadyThere Cause = "AlreadyThere"
	// NotStarted: movers did not run, or did not reach each other. NotKept: the target
	// cannot keep what is in the volume, or has no room for it. MoverFailed: a mover gave a
	// task up. StoodStill: pods waited too long for a copy that did not get further.
	NotStarted  Cause = "NotStarted"
	NotKept     Cause = "NotKept"
	MoverFailed Cause = "MoverFailed"
	StoodStill  Cause = "StoodStill"
	// Differs: both copies were not the same.
	Differs Cause = "Differs"
	// PodsInTheWay: pods that may not be stopped, or too many of them. TargetChanged: the
	// real claim at the target was deleted, was somebody else's, or could not be used.
	// VolumeReplaced: somebody made another virtual volume.
	PodsInTheWay   Cause = "PodsInTheWay"
	TargetChanged  Cause = "TargetChanged"
	VolumeReplaced Cause = "VolumeReplaced"
	// TooMuch: more was to be remembered than a record has room for.
	TooMuch Cause = "TooMuch"
)

// Causes are all of them.
var Causes = []Cause{Aborted, MoveDeleted, ClaimDeleted, GivenUp, Refused, AlreadyThere, NotStarted, NotKept, MoverFailed, StoodStill, Differs, PodsInTheWay, TargetChanged, VolumeReplaced, TooMuch}

// Wished says whether that is what somebody wanted: such a move has not failed.
func (c Cause) Wished() bool {
	return c == Aborted || c == MoveDeleted || c == ClaimDeleted || c == GivenUp
}
