package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VolumeMove moves the data of one or more claims of its namespace to another place
// while their application runs; the claims stay. It stops the application only
// for the last changes. Its status is for people: what counts is in a record that
// only the provisioner can write. Once the move is over and nothing of it is kept, that record
// goes, and the condition Finished of the status says that the move does not begin anew.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vmove
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Claims",type=string,JSONPath=`.spec.claims`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.status.target.cluster`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Downtime",type=string,priority=1,JSONPath=`.status.downtime`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VolumeMove struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VolumeMoveSpec   `json:"spec"`
	Status VolumeMoveStatus `json:"status,omitempty"`
}

// VolumeMoveList is a list of VolumeMove objects.
//
// +kubebuilder:object:root=true
type VolumeMoveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []VolumeMove `json:"items"`
}

// VolumeMoveSpec says what is moved, and where to.
//
// +kubebuilder:validation:XValidation:rule="has(self.className) == has(oldSelf.className) && has(self.bandwidthLimit) == has(oldSelf.bandwidthLimit) && has(self.dryRun) == has(oldSelf.dryRun) && has(self.adopt) == has(oldSelf.adopt) && has(self.into) == has(oldSelf.into) && has(self.failover) == has(oldSelf.failover)",message="only action, keepSourceFor, rollBackAfter and ttlSecondsAfterFinished can be changed: abort this move and make another"
// +kubebuilder:validation:XValidation:rule="!has(self.into) || !has(self.adopt) && !has(self.className) && !has(self.target.node)",message="into goes with neither adopt, className nor target.node"
// +kubebuilder:validation:XValidation:rule="!has(self.failover) || has(self.target.cluster) && !has(self.adopt) && !has(self.into) && !has(self.className) && !has(self.rootless)",message="failover is to a cluster, and goes with neither adopt, into, className nor rootless"
// +kubebuilder:validation:XValidation:rule="!has(self.adopt) || size(self.claims) == 1 && !has(self.dryRun)",message="adopt is for one claim, and has no dry run"
type VolumeMoveSpec struct {
	// Claims are the names of the claims, in this namespace. They move together:
	// all claims of a pod that Lodestone serves must be listed.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the claims of a move cannot be changed: abort it and make another"
	// +listType=set
	Claims []string `json:"claims"`

	// Target is where the data is moved to.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the target of a move cannot be changed: abort it and make another"
	Target MoveTarget `json:"target"`

	// ClassName is the real class at the target, one of those that the virtual class
	// allows. Empty: as for a new claim.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the class of a move cannot be changed: abort it and make another"
	ClassName string `json:"className,omitempty"`

	// Verify says how the copy is compared before it is used. Quick reads again, from
	// the disk of the target, what was written while the application stood still; Full
	// reads all of both copies.
	//
	// +optional
	// +kubebuilder:default=Quick
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="verify cannot be changed: abort the move and make another"
	Verify MoveVerify `json:"verify,omitempty"`

	// Passes is how often the data is copied while the application runs, at most. With 0
	// no snapshots are copied either.
	//
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="passes cannot be changed: abort the move and make another"
	Passes *int32 `json:"passes,omitempty"`

	// Offline says whether pods may stand still for as long as a whole copy takes.
	// Claims that are ReadWriteOncePod need it while a pod uses them if no snapshot of
	// them can be copied: nothing can read their volumes beside the pod. All others are
	// copied while their pods run, whatever this says.
	//
	// +optional
	// +kubebuilder:default=Forbid
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="offline cannot be changed: abort the move and make another"
	Offline MoveOffline `json:"offline,omitempty"`

	// Rootless has the movers in remote clusters run as the pods do that use the claims, and
	// not as root, so that namespaces of the Pod Security Standard restricted admit them.
	// What that user cannot keep is refused: files of others, devices, block volumes.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="rootless cannot be changed: abort the move and make another"
	Rootless bool `json:"rootless,omitempty"`

	// BandwidthLimit is how many bytes a second may travel. Without it: as many as can.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",message="bandwidthLimit is how many bytes a second may travel, such as 50Mi"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="bandwidthLimit cannot be changed: abort the move and make another"
	BandwidthLimit *resource.Quantity `json:"bandwidthLimit,omitempty"`

	// KeepSourceFor is how long the copy at the source is kept once the pods run at the
	// target. It goes before that when a later move of the claims is committed, and stays
	// while one goes on.
	//
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="keepSourceFor is a time in hours, minutes and seconds, such as 90m or 24h"
	KeepSourceFor *metav1.Duration `json:"keepSourceFor,omitempty"`

	// RollBackAfter is how long pods may wait for a copy that stands still, because the
	// target cannot be reached, a mover does not run or the source is not detached, before
	// the move goes back to the source by itself. Committed moves do not go back.
	//
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="rollBackAfter is a time in hours, minutes and seconds, such as 90m or 24h"
	RollBackAfter *metav1.Duration `json:"rollBackAfter,omitempty"`

	// TTLSecondsAfterFinished is how long after its end the object is kept. Without
	// it: for ever.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// DryRun has it said in the status what would be moved, or what forbids that, and
	// nothing done.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="dryRun cannot be changed: make another VolumeMove"
	DryRun bool `json:"dryRun,omitempty"`

	// Adopt is the UID of a real claim at the target that has newer data of the claim than
	// its volume stands for, as after home was restored from a backup. Nothing is copied:
	// pods are stopped, and the claim gets that one as it is. The older copy is kept. It
	// takes the right to unlock volumemoves.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="adopt cannot be changed: abort the move and make another"
	Adopt string `json:"adopt,omitempty"`

	// Into is the name of the VolumeMove that brought these claims here and still keeps the
	// copy that they came from. The data goes back into that copy, in place of new real
	// claims, so that only what differs is sent. That copy is written to, and from Provision
	// on no longer one to fall back on; a snapshot of it is taken first, where that is possible.
	// The copies in use stay whole until this move is committed.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="into cannot be changed: abort the move and make another"
	Into string `json:"into,omitempty"`

	// Failover gives the claims a sealed version of their VolumeReplica in place of their volumes: the targets are made of that, and
	// nothing is copied from the sources, which may be lost. The sources are kept until action Finalize. The claims are all those of
	// the VolumeReplica, so that what they get is of one moment.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="failover cannot be changed: abort the move and make another"
	Failover *MoveFailover `json:"failover,omitempty"`

	// Action is what is wanted of the move. Abort ends one that is not committed and
	// leaves everything at the source; Finalize removes the copy at the source now. GiveUp
	// does the one or the other without the other cluster, which is gone for good: what the
	// move left there stays. It takes the right to giveup remoteclusters.
	//
	// +optional
	// +kubebuilder:default=Move
	// +kubebuilder:validation:XValidation:rule="self == oldSelf || oldSelf == 'Move' || self == 'GiveUp'",message="an action cannot be taken back"
	Action MoveAction `json:"action,omitempty"`
}

// MoveFailover says which version a claim gets, and who says that nobody writes to its volume any more.
type MoveFailover struct {
	// Replica is the name of the VolumeReplica of the claims, in this namespace.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Replica string `json:"replica"`
	// Version is the name of a sealed version. Empty: the newest.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Version string `json:"version,omitempty"`
	// Fence says how it is known that nobody writes to the volume of the claim any more. Proven: its cluster answers, and shows
	// that. Lease: if its cluster does not answer, its remote agent has promised to end pods there when home is silent (spec.podLease
	// of the RemoteCluster), and the time for that is waited for; they run on if no agent works there, or a node does not end them.
	// Declared: you say so, if its cluster does not answer; pods that still run there write to a volume that the claim has
	// no more, and what they do elsewhere is done twice. It takes the right to fence remoteclusters. If the cluster answers, it
	// is Proven.
	//
	// +optional
	// +kubebuilder:default=Proven
	Fence FailoverFence `json:"fence,omitempty"`
}

// FailoverFence names how it is known that nobody writes to a volume.
//
// +kubebuilder:validation:Enum=Proven;Lease;Declared
type FailoverFence string

// How it is known.
const (
	FenceProven   FailoverFence = "Proven"
	FenceLease    FailoverFence = "Lease"
	FenceDeclared FailoverFence = "Declared"
)

// MoveTarget is where data is moved to.
//
// +kubebuilder:validation:XValidation:rule="has(self.cluster) != has(self.node)",message="name either a cluster or a node"
type MoveTarget struct {
	// Cluster is the ID of a remote cluster, or home.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Cluster string `json:"cluster,omitempty"`
	// Node is a node of home, or one that stands for a remote cluster.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
}

// MoveTransport names a way that data travels.
type MoveTransport string

// The ways that data travels.
const (
	// TransportDirect says that the mover at the source has dialled the one at the target.
	TransportDirect MoveTransport = "Direct"
	// TransportSpliced says that the provisioner joins a connection to each mover.
	TransportSpliced MoveTransport = "Spliced"
)

// MoveLeg names a way from the provisioner to a mover.
type MoveLeg string

// The ways from the provisioner to a mover.
const (
	// LegAddress says that it has dialled the address of the mover's pod.
	LegAddress MoveLeg = "Address"
	// LegAPIServer says that it reaches the pod through the API server of its cluster.
	LegAPIServer MoveLeg = "APIServer"
)

// MoveVerify names a way to compare two copies.
//
// +kubebuilder:validation:Enum=Quick;Full
type MoveVerify string

// The ways to compare.
const (
	VerifyQuick MoveVerify = "Quick"
	VerifyFull  MoveVerify = "Full"
)

// MoveOffline says whether pods may stand still for a whole copy.
//
// +kubebuilder:validation:Enum=Forbid;Allow
type MoveOffline string

// Whether they may.
const (
	OfflineForbid MoveOffline = "Forbid"
	OfflineAllow  MoveOffline = "Allow"
)

// MoveAction is what is wanted of a move.
//
// +kubebuilder:validation:Enum=Move;Abort;Finalize;GiveUp
type MoveAction string

// The actions.
const (
	ActionMove     MoveAction = "Move"
	ActionAbort    MoveAction = "Abort"
	ActionFinalize MoveAction = "Finalize"
	ActionGiveUp   MoveAction = "GiveUp"
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
	// ObservedGeneration is the generation of the spec that the provisioner saw when it last wrote the status.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase is where the move is.
	//
	// +optional
	Phase MovePhase `json:"phase,omitempty"`
	// Message is one sentence: what goes on, what is waited for, or what to do.
	//
	// +optional
	Message string `json:"message,omitempty"`
	// QueuePosition is the place of a move that has not begun in the order in which moves
	// begin, 1 for the next one; absent once it has begun. It is exact up to 10, rounded up
	// to tens up to 100, to hundreds up to 1000, and so on. Moves of a namespace that has as
	// many under way as it may have are passed over meanwhile.
	//
	// +optional
	QueuePosition int32 `json:"queuePosition,omitempty"`
	// Progress is what is done of the work of the phase, in words.
	//
	// +optional
	Progress string `json:"progress,omitempty"`
	// Conditions are Accepted, Committed and Finished.
	//
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
	// Failover is what a failover gives the claim.
	//
	// +optional
	Failover *FailoverStatus `json:"failover,omitempty"`
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

// FailoverStatus is what a failover gives its claims.
type FailoverStatus struct {
	// Version is the name of the version.
	Version string `json:"version"`
	// Cut is the moment that it is of: what was written later is not in it.
	Cut metav1.Time `json:"cut"`
	// Fence is how it was known that nobody writes to the volume that the claim had, once that is known.
	//
	// +optional
	Fence FailoverFence `json:"fence,omitempty"`
}

// PhaseTime is when a phase began.
type PhaseTime struct {
	// Phase is one that has begun.
	Phase MovePhase `json:"phase"`
	// Since is when it began.
	Since metav1.MicroTime `json:"since"`
}

// MovePlace is where a copy of the data is.
type MovePlace struct {
	// Cluster is the ID of a remote cluster, or home.
	Cluster string `json:"cluster"`
	// Class is the real class of the copy.
	//
	// +optional
	Class string `json:"class,omitempty"`
	// Node is the node that the copy is on, where its storage ties it to one.
	//
	// +optional
	Node string `json:"node,omitempty"`
}

// MoveLegs are the ways from the provisioner to the movers of a claim: Address, where it
// has dialled that of the pod, or APIServer, where it goes through the API server of the
// pod's cluster.
type MoveLegs struct {
	// Source is the way to the mover at the source.
	//
	// +optional
	Source MoveLeg `json:"source,omitempty"`
	// Target is the way to the mover at the target.
	//
	// +optional
	Target MoveLeg `json:"target,omitempty"`
}

// MovedClaim is one claim of a move.
type MovedClaim struct {
	// Name is the claim.
	Name string `json:"name"`
	// Source is where its data comes from.
	//
	// +optional
	Source *MovePlace `json:"source,omitempty"`
	// Target is where its data goes.
	//
	// +optional
	Target *MovePlace `json:"target,omitempty"`
	// Pass is the pass over the data that is under way, 0 before the first.
	//
	// +optional
	Pass int32 `json:"pass,omitempty"`
	// Bytes is how many bytes of files the present pass has dealt with so far.
	//
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// BytesTotal is how many it is to deal with, as far as that is known.
	//
	// +optional
	BytesTotal int64 `json:"bytesTotal,omitempty"`
	// Files is how many files the present pass has dealt with so far.
	//
	// +optional
	Files int64 `json:"files,omitempty"`
	// FilesTotal is how many it is to deal with, as far as that is known.
	//
	// +optional
	FilesTotal int64 `json:"filesTotal,omitempty"`
	// Sent is how many bytes have travelled from mover to mover in all.
	//
	// +optional
	Sent int64 `json:"sent,omitempty"`
	// Repository is the RemoteCluster that names the object store or the claim which most
	// content travels through (spec.moveRepository); absent: from mover to mover.
	//
	// +optional
	Repository string `json:"repository,omitempty"`
	// Stored is how many bytes have travelled through the repository; they are not in Sent.
	//
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
	// SourceRoot is the root of the tree of hashes of the copy at the source, once
	// both were compared.
	//
	// +optional
	SourceRoot string `json:"sourceRoot,omitempty"`
	// TargetRoot is that of the copy at the target.
	//
	// +optional
	TargetRoot string `json:"targetRoot,omitempty"`
}
