package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VolumeReplica keeps a second copy of a claim of its namespace in another cluster, or of several at one moment. Every rpo a snapshot of
// the claim's volume is copied there, compared, and sealed: by a snapshot, or where the standby has none in one of two slots. Its status
// is for people: what counts is in a record that only the provisioner can write. When it is deleted, the copy goes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vreplica
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Claims",type=string,JSONPath=`.spec.claims`
// +kubebuilder:printcolumn:name="Primary",type=string,JSONPath=`.status.primary`
// +kubebuilder:printcolumn:name="Standby",type=string,JSONPath=`.spec.standbys[*].cluster`
// +kubebuilder:printcolumn:name="RPO",type=string,JSONPath=`.spec.rpo`
// +kubebuilder:printcolumn:name="Lag",type=date,JSONPath=`.status.standbys[0].sealed`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="Healthy")].status`
// +kubebuilder:printcolumn:name="Runnable",type=string,priority=1,JSONPath=`.status.standbys[0].runnable`
// +kubebuilder:printcolumn:name="Consistency",type=string,priority=1,JSONPath=`.status.standbys[0].versions[0].consistency`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Healthy")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VolumeReplica struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VolumeReplicaSpec   `json:"spec"`
	Status VolumeReplicaStatus `json:"status,omitempty"`
}

// VolumeReplicaList is a list of VolumeReplica objects.
//
// +kubebuilder:object:root=true
type VolumeReplicaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []VolumeReplica `json:"items"`
}

// VolumeReplicaSpec says of what a second copy is kept, where, and how old it may be.
//
// +kubebuilder:validation:XValidation:rule="has(self.hooks) == (has(self.consistency) && self.consistency == 'Frozen')",message="consistency: Frozen needs hooks, which say how the application is frozen and thawed, and hooks are for that alone: give both or neither"
type VolumeReplicaSpec struct {
	// Claims are the names of the claims, in this namespace. Of several, a group, each version has all, and they are of one moment: one
	// snapshot is taken of all by a VolumeGroupSnapshot, for which their data must be in one cluster, whose driver takes such snapshots.
	// Where that is not so nothing is copied, and the condition Healthy says why.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the claims of a VolumeReplica cannot be changed: make another"
	// +listType=set
	Claims []string `json:"claims"`

	// Standbys are where copies are kept: one.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:XValidation:rule="size(self) == 1",message="a VolumeReplica has one standby: make another VolumeReplica for a second one"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the standby of a VolumeReplica cannot be changed: make another"
	// +listType=map
	// +listMapKey=cluster
	Standbys []ReplicaStandby `json:"standbys"`

	// RPO is how old the newest sealed version may be. From 10s on; a point takes at least as long as to read the volume and its copy
	// once.
	//
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="rpo is a time in hours, minutes and seconds of at least 10s, such as 15m"
	RPO *metav1.Duration `json:"rpo,omitempty"`

	// Consistency says what a point is of. Crash: of a snapshot of the claim's volume, or of those of all claims, as after a loss of
	// power. Frozen: of one that is taken while the pods that use the claims are frozen by hooks, or while none runs. Where that cannot
	// be there is no point, and the condition Healthy says why: it never becomes the other by itself.
	//
	// +optional
	// +kubebuilder:default=Crash
	Consistency ReplicaConsistency `json:"consistency,omitempty"`

	// Hooks are the commands by which pods are frozen and thawed. Whoever sets or changes them needs the right to run commands in pods of
	// the namespace (create pods/exec), and so does the provisioner: bind ClusterRole lodestone-freeze to it there.
	//
	// +optional
	Hooks *ReplicaHooks `json:"hooks,omitempty"`

	// Versions say how many sealed versions are kept.
	//
	// +optional
	// +kubebuilder:default={keep: 4}
	Versions ReplicaVersions `json:"versions,omitempty"`

	// ScrubEvery has points look, before they write, whether storage has altered what nobody wrote; the condition Suspect tells. A point that
	// begins so long after the last scrub is one: it looks at block volumes, too, and reads all of both sides once more. At least 1h.
	// Without it no point looks.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h')",message="scrubEvery is a time in hours, minutes and seconds of at least 1h, such as 168h"
	ScrubEvery *metav1.Duration `json:"scrubEvery,omitempty"`

	// BandwidthLimit is how many bytes a second may travel; several claims have an equal part of it each. Without it: as many as can.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",message="bandwidthLimit is how many bytes a second may travel, such as 50Mi"
	BandwidthLimit *resource.Quantity `json:"bandwidthLimit,omitempty"`

	// AutomaticFailover has the claim fail over by itself if the remote cluster with its data does not answer. Without it nothing fails
	// over by itself. It takes the right to fence remoteclusters, as a failover with fence Declared, which it makes: pods that still run
	// in that cluster go on beside those that follow them until it answers again. Where that cluster has promised to end them
	// (spec.podLease of the RemoteCluster) it makes one with fence Lease.
	//
	// +optional
	AutomaticFailover *AutomaticFailover `json:"automaticFailover,omitempty"`

	// Paused has no new point begun. One that has begun ends.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// AutomaticFailover says when a claim fails over by itself. The standby and another remote cluster than the lost one must answer.
type AutomaticFailover struct {
	// After is how long the cluster must not have answered, without a break.
	//
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="after is a time in hours, minutes and seconds of at least 10s, such as 10m"
	After *metav1.Duration `json:"after,omitempty"`
	// MaxLoss is how old the newest sealed version may have been when the cluster was lost. Without it: twice the RPO.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="maxLoss is a time in hours, minutes and seconds, such as 30m"
	MaxLoss *metav1.Duration `json:"maxLoss,omitempty"`
}

// ReplicaStandby is where a copy is kept.
type ReplicaStandby struct {
	// Cluster is the ID of a remote cluster, or home.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Cluster string `json:"cluster"`
	// ClassName is the real class there, one of those that the virtual class allows. Empty: as for a new claim.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className,omitempty"`
}

// ReplicaConsistency names what a point is of.
//
// +kubebuilder:validation:Enum=Crash;Frozen
type ReplicaConsistency string

// What a point is of.
const (
	// ConsistencyCrash: a snapshot of the volume, as after a loss of power.
	ConsistencyCrash ReplicaConsistency = "Crash"
	// ConsistencyFrozen: a snapshot that is taken while the application is frozen.
	ConsistencyFrozen ReplicaConsistency = "Frozen"
)

// ReplicaHooks say how an application is frozen while the snapshot of a point is taken. Both commands run without a shell, in each pod
// that mounts one of the claims.
type ReplicaHooks struct {
	// Freeze is the command and its arguments after which nothing is written to the claims until Thaw. It has ended, with exit code 0,
	// before the snapshot is taken.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	Freeze []string `json:"freeze"`
	// Thaw is the command that ends what Freeze did. It runs once Freeze may have run, whatever became of that, and again until it ends
	// with exit code 0: so it must do no harm where nothing is frozen.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	Thaw []string `json:"thaw"`
	// Container is the one that the commands run in. Without it: the first of a pod that mounts one of the claims.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Container string `json:"container,omitempty"`
	// Timeout is for how long a pod may be frozen, from when Freeze is called until Thaw is. What takes longer fails.
	//
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('2m')",message="timeout is a time in minutes and seconds from 1s to 2m, such as 30s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// ReplicaVersions say which versions are kept, and in what.
//
// +kubebuilder:validation:XValidation:rule="has(self.__in__) == has(oldSelf.__in__) && (!has(self.__in__) || self.__in__ == oldSelf.__in__)",message="what versions are in cannot be changed: make another VolumeReplica"
// +kubebuilder:validation:XValidation:rule="!has(self.__in__) || self.__in__ != 'Slots' || has(self.keep) && self.keep <= 2",message="in: Slots keeps 2 versions at most: say keep: 2"
// +kubebuilder:validation:XValidation:rule="!has(self.__in__) || self.__in__ != 'Slots' || !has(self.daily) || self.daily == 0",message="in: Slots keeps the last 2 versions alone, and none of earlier days: leave daily out"
type ReplicaVersions struct {
	// Keep is how many sealed versions are kept; older ones go once a newer one is sealed.
	//
	// +optional
	// +kubebuilder:default=4
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	Keep int32 `json:"keep,omitempty"`
	// Daily is of how many of the last days (UTC) that have one the newest version stays, beside those of Keep; the day of the newest
	// version is the first. It takes snapshots: in slots none stays for its day.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=90
	Daily int32 `json:"daily,omitempty"`
	// PinAbove is the share of what the claims had, in percent, that a point may overwrite or remove before the versions from before it are
	// pinned: they stay until Accepted. The condition Suspect tells. Volumes of less than 1 MiB do not count. Without it: 50; 0: no point
	// pins versions.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=99
	PinAbove *int32 `json:"pinAbove,omitempty"`
	// Accepted is the name of the version whose changes are in order, as the condition Suspect says it: those that were pinned because of it
	// go as others do.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Accepted string `json:"accepted,omitempty"`
	// In says what versions are in. Snapshots: in snapshots of one real claim. Slots: in two real claims that are written in turn, which
	// takes twice the room and keeps 2 versions at most. Without it: in snapshots where the class of the copy has them, else in slots.
	//
	// +optional
	In VersionsIn `json:"in,omitempty"`
}

// VersionsIn names what versions are in.
//
// +kubebuilder:validation:Enum=Snapshots;Slots
type VersionsIn string

// What versions are in.
const (
	// InSnapshots: snapshots of one real claim.
	InSnapshots VersionsIn = "Snapshots"
	// InSlots: two real claims that are written in turn.
	InSlots VersionsIn = "Slots"
)

// Conditions of a VolumeReplica.
const (
	// ReplicaHealthy: there is a sealed version, and nothing keeps the next one from being made. False: the message says what does.
	ReplicaHealthy = "Healthy"
	// ReplicaWithinRPO: the newest sealed version is no older than the RPO.
	ReplicaWithinRPO = "WithinRPO"
	// ReplicaSuspect: a point changed an abnormal share, and pinned the versions from before it, or the last scrub found something that has
	// changed without anybody having written it. Without the first and without spec.scrubEvery it is not there.
	ReplicaSuspect = "Suspect"
)

// VolumeReplicaStatus is what the provisioner did.
type VolumeReplicaStatus struct {
	// ObservedGeneration is the generation of the spec that the provisioner saw when it last wrote the status.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Epoch counts the primaries: it grows with each failover to this standby.
	//
	// +optional
	Epoch int64 `json:"epoch,omitempty"`
	// Primary is the cluster that the claim's data is in.
	//
	// +optional
	Primary string `json:"primary,omitempty"`
	// Standbys are in the order of the spec.
	//
	// +optional
	// +listType=map
	// +listMapKey=cluster
	Standbys []ReplicaStandbyStatus `json:"standbys,omitempty"`
	// Conditions are Healthy, WithinRPO and, with spec.scrubEvery or once versions are pinned, Suspect.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ReplicaStandbyStatus is what a standby has.
type ReplicaStandbyStatus struct {
	// Cluster is the ID of a remote cluster, or home.
	Cluster string `json:"cluster"`
	// Class is the real class of the copy; of several claims those that differ, separated by commas.
	//
	// +optional
	Class string `json:"class,omitempty"`
	// In is what the versions are in.
	//
	// +optional
	In VersionsIn `json:"in,omitempty"`
	// Sealed is the moment that the newest sealed version is of: what was written later is not in it.
	//
	// +optional
	Sealed *metav1.Time `json:"sealed,omitempty"`
	// Sent is how many bytes have travelled from mover to mover for that version.
	//
	// +optional
	Sent int64 `json:"sent,omitempty"`
	// Scrubbed is when the last scrub had compared all.
	//
	// +optional
	Scrubbed *metav1.Time `json:"scrubbed,omitempty"`
	// Suspect is the name of the version with an abnormal share of changes, because of which older ones are pinned; empty: none are. It
	// may be gone by now.
	//
	// +optional
	Suspect string `json:"suspect,omitempty"`
	// Versions are the sealed ones, the newest first.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Versions []ReplicaVersion `json:"versions,omitempty"`
	// Runnable says whether the cluster could run the pods that use the claims: True, False, or Unknown where home cannot know it. It is
	// found out at each point, and when the cluster comes or goes. What other pods take there does not count.
	//
	// +optional
	// +kubebuilder:validation:Enum=True;False;Unknown
	Runnable metav1.ConditionStatus `json:"runnable,omitempty"`
	// RunnableMessage says why, in one sentence.
	//
	// +optional
	RunnableMessage string `json:"runnableMessage,omitempty"`
	// Point is the point that is being made, in words; empty: none is.
	//
	// +optional
	Point string `json:"point,omitempty"`
}

// ReplicaVersion is a sealed version.
type ReplicaVersion struct {
	// Name is that of its VolumeSnapshot at the standby; in slots no object has it. Of several claims it is that of the first one; the
	// VolumeSnapshots of the others have the index of their claim in spec.claims behind it, as in -1.
	Name string `json:"name"`
	// Cut is the moment that it is of.
	Cut metav1.Time `json:"cut"`
	// Consistency says how it was made. Crash: of a snapshot, as after a loss of power. Frozen: of one that was taken while the hooks held
	// the application. AtRest: of one that was taken while no pod with the claims ran, where Frozen was asked for.
	//
	// +optional
	Consistency VersionConsistency `json:"consistency,omitempty"`
	// Root is the root of the tree of hashes of its content.
	//
	// +optional
	Root string `json:"root,omitempty"`
	// Daily says that it stays as the newest of its day alone, for spec.versions.daily.
	//
	// +optional
	Daily bool `json:"daily,omitempty"`
	// Pinned says that it stays until spec.versions.accepted says that what changed after it is in order.
	//
	// +optional
	Pinned bool `json:"pinned,omitempty"`
}

// VersionConsistency names how a version was made.
//
// +kubebuilder:validation:Enum=Crash;Frozen;AtRest
type VersionConsistency string

// How a version was made.
const (
	// VersionCrash: of a snapshot, as after a loss of power.
	VersionCrash VersionConsistency = "Crash"
	// VersionFrozen: of one that was taken while the hooks held the application.
	VersionFrozen VersionConsistency = "Frozen"
	// VersionAtRest: of one that was taken while no pod with the claims ran.
	VersionAtRest VersionConsistency = "AtRest"
)
