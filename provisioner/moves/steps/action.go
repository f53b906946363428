package steps

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Action is what a step does, with all parameters: one of the types below. Each is one
// write, except StartMover and DropMover, which also write the Secret, and MakeGroup. Claim is an index in
// the record, End an end of that claim.
type Action interface {
	// is returns the name of the action in messages and logs, which stays when the type is
	// renamed, and what it changes.
	is() (verb string, subject Subject)
}

// Subject is what an action changes: the same action on another subject is another step.
// What an action has none of is zero.
type Subject struct {
	Claim int
	End   record.End
	Pod   types.UID
}

func at(claim int, end record.End) Subject { return Subject{Claim: claim, End: end} }

type (
	// Adopt adds the finalizer to the VolumeMove.
	Adopt struct{}
	// Inspect finds out what is to be moved and writes the first record.
	Inspect struct{}
	// Save writes the record.
	Save struct {
		Record *record.Record
	}
	// HoldClaim adds the finalizer to a claim.
	HoldClaim struct {
		Claim int
	}
	// Lock makes new pods of a claim wait.
	Lock struct {
		Claim int
	}
	// Unlock undoes HoldClaim and Lock; HoldClaim alone if the claim stays locked.
	Unlock struct {
		Claim       int
		StaysLocked bool
	}
	// Touch writes a text on a claim, so that kube-controller-manager processes it. With Unbind
	// the claim is no longer one that was bound, but waits for the volume that it names.
	Touch struct {
		Claim  int
		Text   string
		Unbind bool
	}
	// Keep sets policy Retain on the real volume of the source.
	Keep struct {
		Claim int
	}
	// Restore gives a real volume its former policy back.
	Restore struct {
		Claim int
		End   record.End
	}
	// MakeTarget creates the backing claim at the target.
	MakeTarget struct {
		Claim int
	}
	// TakeKept makes the copy that an earlier move has handed over the target of this one.
	TakeKept struct {
		Claim int
	}
	// TakeSlot makes the real claim that a replica keeps the version in the target of this move.
	TakeSlot struct {
		Claim int
	}
	// ReturnSlot gives it back, as it was before.
	ReturnSlot struct {
		Claim int
	}
	// Publish turns a backing claim into an ordinary one.
	Publish struct {
		Claim int
		End   record.End
	}
	// Shelve marks the backing claim of the source as the move's.
	Shelve struct {
		Claim int
	}
	// DropBacking deletes a backing claim.
	DropBacking struct {
		Claim int
		End   record.End
	}
	// EnsureMover creates a mover, without starting it. Node is its required node if the
	// record has none; Near is a preferred one.
	EnsureMover struct {
		Claim      int
		End        record.End
		Node, Near string
	}
	// StartMover creates the keys of a mover and starts it.
	StartMover struct {
		Claim int
		End   record.End
	}
	// GiveKeys creates the keys of a mover again if they are missing.
	GiveKeys struct {
		Claim int
		End   record.End
	}
	// DropMover deletes a mover.
	DropMover struct {
		Claim int
		End   record.End
	}
	// Start gives the mover that reads a claim a task.
	Start struct {
		Claim int
		Task  moverapi.Task
	}
	// MakeSnapshot creates the snapshot of a source.
	MakeSnapshot struct {
		Claim int
	}
	// MakeClone creates a claim from the snapshot.
	MakeClone struct {
		Claim int
	}
	// DropClone deletes the claim that was created from the snapshot.
	DropClone struct {
		Claim int
	}
	// DropSnapshot deletes the snapshot.
	DropSnapshot struct {
		Claim int
	}
	// MakeGroup creates the one snapshot of several sources, and labels them for it.
	MakeGroup struct{}
	// DropGroup deletes it.
	DropGroup struct{}
	// Unlabel takes the label off a source.
	Unlabel struct {
		Claim int
	}
	// DeletePod deletes a pod.
	DeletePod struct {
		Pod Pod
	}
	// ReleasePod gives up a pod that is being deleted, without its end being seen.
	ReleasePod struct {
		Pod Pod
	}
	// Ungate removes our scheduling gate from a pod.
	Ungate struct {
		Pod Pod
	}
	// DeleteVolume deletes the virtual volume, and takes it from its claim.
	DeleteVolume struct {
		Claim int
	}
	// FreeVolume removes the finalizers of the virtual volume.
	FreeVolume struct {
		Claim int
	}
	// MakeVolume creates the virtual volume.
	MakeVolume struct {
		Claim  int
		Volume *corev1.PersistentVolume
	}
	// DeleteMove deletes the VolumeMove.
	DeleteMove struct{}
	// Forget deletes the record.
	Forget struct{}
	// Leave removes the finalizer from the VolumeMove.
	Leave struct{}
)

func (Adopt) is() (string, Subject)          { return "Adopt", Subject{} }
func (Inspect) is() (string, Subject)        { return "Inspect", Subject{} }
func (Save) is() (string, Subject)           { return "Save", Subject{} }
func (a HoldClaim) is() (string, Subject)    { return "HoldClaim", at(a.Claim, "") }
func (a Lock) is() (string, Subject)         { return "Lock", at(a.Claim, "") }
func (a Unlock) is() (string, Subject)       { return "Unlock", at(a.Claim, "") }
func (a Touch) is() (string, Subject)        { return "Touch", at(a.Claim, "") }
func (a Keep) is() (string, Subject)         { return "Keep", at(a.Claim, record.Source) }
func (a Restore) is() (string, Subject)      { return "Restore", at(a.Claim, a.End) }
func (a MakeTarget) is() (string, Subject)   { return "MakeTarget", at(a.Claim, record.Target) }
func (a TakeKept) is() (string, Subject)     { return "TakeKept", at(a.Claim, record.Target) }
func (a TakeSlot) is() (string, Subject)     { return "TakeSlot", at(a.Claim, record.Target) }
func (a ReturnSlot) is() (string, Subject)   { return "ReturnSlot", at(a.Claim, record.Target) }
func (a Publish) is() (string, Subject)      { return "Publish", at(a.Claim, a.End) }
func (a Shelve) is() (string, Subject)       { return "Shelve", at(a.Claim, record.Source) }
func (a DropBacking) is() (string, Subject)  { return "DropBacking", at(a.Claim, a.End) }
func (a EnsureMover) is() (string, Subject)  { return "EnsureMover", at(a.Claim, a.End) }
func (a StartMover) is() (string, Subject)   { return "StartMover", at(a.Claim, a.End) }
func (a GiveKeys) is() (string, Subject)     { return "GiveKeys", at(a.Claim, a.End) }
func (a DropMover) is() (string, Subject)    { return "DropMover", at(a.Claim, a.End) }
func (a Start) is() (string, Subject)        { return "Start", at(a.Claim, "") }
func (a MakeSnapshot) is() (string, Subject) { return "MakeSnapshot", at(a.Claim, record.Snapped) }
func (a MakeClone) is() (string, Subject)    { return "MakeClone", at(a.Claim, record.Snapped) }
func (a DropClone) is() (string, Subject)    { return "DropClone", at(a.Claim, record.Snapped) }
func (a DropSnapshot) is() (string, Subject) { return "DropSnapshot", at(a.Claim, record.Snapped) }
func (MakeGroup) is() (string, Subject)      { return "MakeGroup", at(0, record.Snapped) }
func (DropGroup) is() (string, Subject)      { return "DropGroup", at(0, record.Snapped) }
func (a Unlabel) is() (string, Subject)      { return "Unlabel", at(a.Claim, record.Source) }
func (a DeletePod) is() (string, Subject)    { return "DeletePod", Subject{Pod: a.Pod.UID} }
func (a ReleasePod) is() (string, Subject)   { return "ReleasePod", Subject{Pod: a.Pod.UID} }
func (a Ungate) is() (string, Subject)       { return "Ungate", Subject{Pod: a.Pod.UID} }
func (a DeleteVolume) is() (string, Subject) { return "DeleteVolume", at(a.Claim, "") }
func (a FreeVolume) is() (string, Subject)   { return "FreeVolume", at(a.Claim, "") }
func (a MakeVolume) is() (string, Subject)   { return "MakeVolume", at(a.Claim, "") }
func (DeleteMove) is() (string, Subject)     { return "DeleteMove", Subject{} }
func (Forget) is() (string, Subject)         { return "Forget", Subject{} }
func (Leave) is() (string, Subject)          { return "Leave", Subject{} }
