package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MovePhase is where a move is.
type MovePhase string

// The phases of a move, in their order. From MoveCommit on a move only goes forward;
// before it, it can go back, in MoveRollBack, which ends in MoveAborted or MoveFailed. A
// dry run that nothing forbids is MoveChecked at once.
const (
	MovePrepare   MovePhase = "Prepare"
	MoveProvision MovePhase = "Provision"
	MovePreCopy   MovePhase = "PreCopy"
	MoveQuiesce   MovePhase = "Quiesce"
	MoveFence     MovePhase = "Fence"
	MoveFinalSync MovePhase = "FinalSync"
	MoveVerifying MovePhase = "Verify"
	MoveCommit    MovePhase = "Commit"
	MoveResume    MovePhase = "Resume"
	MoveRetain    MovePhase = "Retain"
	MoveFinalize  MovePhase = "Finalize"
	MoveDone      MovePhase = "Done"
	MoveRollBack  MovePhase = "RollBack"
	MoveAborted   MovePhase = "Aborted"
	MoveFailed    MovePhase = "Failed"
	MoveChecked   MovePhase = "Checked"
)

// Conditions of a VolumeMove.
const (
	// MoveAccepted: nothing forbids the move. False: the message says what does.
	MoveAccepted = "Accepted"
	// MoveCommitted: the claims have their volumes at the target.
	MoveCommitted = "Committed"
	// MoveFinished: nothing more will be done.
	MoveFinished = "Finished"
)

// MoveAlreadyThere is the reason for which a move is not Accepted all of whose data is
// where it is to go: there is nothing to do.
const MoveAlreadyThere = "AlreadyThere"

// VolumeMoveStatus is what the provisioner did.
type VolumeMoveStatus struct {
	// +optional
	Phase MovePhase `json:"phase,omitempty"`
	// Message is one sentence: what goes on, what is waited for, or what to do.
	//
	// +optional
	Message string `json:"message,omitempty"`
	// Progress is what is done of the work of the phase, in words.
	//
	// +optional
	Progress string `json:"progress,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Target is where the data goes.
	//
	// +optional
	Target *MovePlace `json:"target,omitempty"`
	// Claims are in the order of the spec.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Claims []MovedClaim `json:"claims,omitempty"`
	// Phases are the times at which phases began.
	//
	// +optional
	// +listType=map
	// +listMapKey=phase
	Phases []PhaseTime `json:"phases,omitempty"`
	// DownSince is since when pods could not use the claims, absent while they can.
	//
	// +optional
	DownSince *metav1.MicroTime `json:"downSince,omitempty"`
	// Downtime is how long pods could not use the claims: from when they were asked to
	// end until new ones could be scheduled.
	//
	// +optional
	Downtime *metav1.Duration `json:"downtime,omitempty"`
}

// PhaseTime is when a phase began.
type PhaseTime struct {
	Phase MovePhase        `json:"phase"`
	Since metav1.MicroTime `json:"since"`
}

// MovePlace is where a copy of the data is.
type MovePlace struct {
	// Cluster is the ID of a remote cluster, or home.
	Cluster string `json:"cluster"`
	// +optional
	Class string `json:"class,omitempty"`
	// +optional
	Node string `json:"node,omitempty"`
}

// MoveLegs are the ways from the provisioner to the movers of a claim: Address, where it
// has dialled that of the pod, or APIServer, where it goes through the API server of the
// pod's cluster.
type MoveLegs struct {
	// +optional
	Source MoveLeg `json:"source,omitempty"`
	// +optional
	Target MoveLeg `json:"target,omitempty"`
}

// MovedClaim is one claim of a move.
type MovedClaim struct {
	Name string `json:"name"`
	// +optional
	Source *MovePlace `json:"source,omitempty"`
	// +optional
	Target *MovePlace `json:"target,omitempty"`
	// Pass is the pass over the data that is under way, 0 before the first.
	//
	// +optional
	Pass int32 `json:"pass,omitempty"`
	// Bytes and Files are what the present pass has dealt with so far, of the totals
	// as far as they are known.
	//
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// +optional
	BytesTotal int64 `json:"bytesTotal,omitempty"`
	// +optional
	Files int64 `json:"files,omitempty"`
	// +optional
	FilesTotal int64 `json:"filesTotal,omitempty"`
	// Sent is how many bytes have travelled from mover to mover in all.
	//
	// +optional
	Sent int64 `json:"sent,omitempty"`
	// Repository is the RemoteCluster that names the object store or the claim which most
	// content travels through (spec.moveRepository); absent: from mover to mover. Stored is how many bytes have
	// travelled that way; they are not in Sent.
	//
	// +optional
	Repository string `json:"repository,omitempty"`
	// +optional
	Stored int64 `json:"stored,omitempty"`
	// Rate is how many bytes a second travel now.
	//
	// +optional
	Rate int64 `json:"rate,omitempty"`
	// Transport is how the data travels now, or travelled last: Direct, where the mover at
	// the source has dialled the one at the target; Spliced, where the provisioner joins a
	// connection to each. Absent before they were connected.
	//
	// +optional
	Transport MoveTransport `json:"transport,omitempty"`
	// Legs are the ways from the provisioner to the movers, where it joins them.
	//
	// +optional
	Legs *MoveLegs `json:"legs,omitempty"`
	// TransportMessage is why the data does not travel directly, in one sentence.
	//
	// +optional
	TransportMessage string `json:"transportMessage,omitempty"`
	// SourceRoot and TargetRoot are the roots of the trees of hashes of both copies,
	// once they were compared.
	//
	// +optional
	SourceRoot string `json:"sourceRoot,omitempty"`
	// +optional
	TargetRoot string `json:"targetRoot,omitempty"`
}
