package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VolumeMove moves the data of one or more claims of its namespace to another place
// while their application runs; the claims stay. It stops the application only
// for the last changes. Its status is for people: what counts is in a record that
// only the provisioner can write.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vmove
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.status.target.cluster`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress`
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
// +kubebuilder:validation:XValidation:rule="has(self.className) == has(oldSelf.className) && has(self.bandwidthLimit) == has(oldSelf.bandwidthLimit) && has(self.dryRun) == has(oldSelf.dryRun)",message="only action, keepSourceFor, rollBackAfter and ttlSecondsAfterFinished can be changed: abort this move and make another"
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

	// BandwidthLimit is how many bytes a second may travel. Without it: as many as can.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="bandwidthLimit cannot be changed: abort the move and make another"
	BandwidthLimit *resource.Quantity `json:"bandwidthLimit,omitempty"`

	// KeepSourceFor is how long the copy at the source is kept once the pods run at the
	// target.
	//
	// +optional
	// +kubebuilder:default="1h"
	KeepSourceFor *metav1.Duration `json:"keepSourceFor,omitempty"`

	// RollBackAfter is how long pods may wait for a copy that stands still, because the
	// target cannot be reached or a mover does not run, before the move goes back to the
	// source by itself. Committed moves do not go back.
	//
	// +optional
	// +kubebuilder:default="10m"
	RollBackAfter *metav1.Duration `json:"rollBackAfter,omitempty"`

	// TTLSecondsAfterFinished is how long after its end the object is kept. Without
	// it: for ever.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// DryRun has it said in the status what would be moved, or what forbids that, and
	// nothing done.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="dryRun cannot be changed: make another VolumeMove"
	DryRun bool `json:"dryRun,omitempty"`

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
