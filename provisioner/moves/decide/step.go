package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Verb names what a step does.
type Verb string

// The verbs of a step. Each is one write, but StartMover and DropMover, whose Secret goes
// with them.
const (
	// Idle waits.
	Idle Verb = "Idle"
	// Adopt puts the finalizer on the VolumeMove; Inspect finds out what is to be
	// moved and writes the first record; Save writes the record.
	Adopt   Verb = "Adopt"
	Inspect Verb = "Inspect"
	Save    Verb = "Save"
	// HoldClaim puts the finalizer on a claim, Lock has new pods of it wait, Unlock
	// takes both back, Touch has kube-controller-manager look at it.
	HoldClaim Verb = "HoldClaim"
	Lock      Verb = "Lock"
	Unlock    Verb = "Unlock"
	Touch     Verb = "Touch"
	// Keep has the real volume of the source outlive its claim, Restore gives it the
	// policy that it had.
	Keep    Verb = "Keep"
	Restore Verb = "Restore"
	// MakeTarget makes the backing claim at the target, Publish makes it an ordinary
	// one, Shelve marks that of the source as the move's. DropBacking removes that of
	// an end.
	MakeTarget  Verb = "MakeTarget"
	Publish     Verb = "Publish"
	Shelve      Verb = "Shelve"
	DropBacking Verb = "DropBacking"
	// EnsureMover makes the mover of an end, StartMover gives it its keys and starts it,
	// GiveKeys gives it those again if it has none, DropMover removes it. Start gives the
	// mover of the source a task.
	EnsureMover Verb = "EnsureMover"
	StartMover  Verb = "StartMover"
	GiveKeys    Verb = "GiveKeys"
	DropMover   Verb = "DropMover"
	Start       Verb = "Start"
	// MakeSnapshot makes the snapshot of a source, MakeClone a claim of it, DropClone and
	// DropSnapshot remove them.
	MakeSnapshot Verb = "MakeSnapshot"
	MakeClone    Verb = "MakeClone"
	DropClone    Verb = "DropClone"
	DropSnapshot Verb = "DropSnapshot"
	// DeletePod deletes a pod, Ungate takes our gate off one.
	DeletePod Verb = "DeletePod"
	Ungate    Verb = "Ungate"
	// DeleteVolume deletes the virtual volume, FreeVolume takes its finalizers off,
	// MakeVolume makes one.
	DeleteVolume Verb = "DeleteVolume"
	FreeVolume   Verb = "FreeVolume"
	MakeVolume   Verb = "MakeVolume"
	// DeleteMove deletes the VolumeMove, Forget the record, Leave takes the finalizer
	// off the VolumeMove.
	DeleteMove Verb = "DeleteMove"
	Forget     Verb = "Forget"
	Leave      Verb = "Leave"
)

// Need names what a move waits for that may take somebody to come.
type Need string

// The needs.
const (
	// ClusterAway: a cluster does not answer, which can be given up if it is gone for ever.
	ClusterAway Need = "ClusterAway"
	// NodeAway: a node does not, on which somebody may still write.
	NodeAway Need = "NodeAway"
	// CopyGone: the copy at the target is not where it was. Replaced: somebody made another
	// virtual volume.
	CopyGone Need = "CopyGone"
	Replaced Need = "VolumeReplaced"
)

// Needs are all of them.
var Needs = []Need{ClusterAway, NodeAway, CopyGone, Replaced}

// Step is the next thing to do.
type Step struct {
	Verb Verb
	// Claim is an index; End one of its ends.
	Claim int
	End   record.End
	// Record is set for Save, Pod for DeletePod and Ungate, Task for Start, Volume for
	// MakeVolume, Text, which is written on the claim, for Touch.
	Record *record.Record
	Pod    Pod
	Task   movecontrol.Task
	Volume *corev1.PersistentVolume
	Text   string
	// Node is a must for EnsureMover that the record does not say, Near only what is best.
	Node, Near string
	// Also are further steps that depend neither on this one nor on one another: other
	// claims, pods and movers need not wait for another look at everything.
	Also []Step
	// Say is what is waited for, or done, in one sentence.
	Say string
	// After is how soon to look again after Idle, and Need who might have to come before
	// that helps; empty for nobody.
	After time.Duration
	Need  Need
}
