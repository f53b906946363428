// Package steps has what the decision about a virtual claim is made from and what comes out of it:
// the Observation of a claim, the Step to take next with its Action, and the words in which decisions
// write steps and events (Warn, Note, Where, WithTrouble). Package decide chooses the step, package
// claims observes and takes it. The package is pure: no client, no clock. Action has all that can be
// done for a claim.
package steps

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// Observation is the state of one virtual claim, by its UID, at one moment. All of it comes
// from caches; decisions do not change it.
type Observation struct {
	Now time.Time
	UID types.UID

	// Moving is true while a move works on the claim: then no other step may change the
	// claim, its volume or its backing claims.
	Moving bool
	// Claim is the virtual claim, nil if there is none with this UID.
	Claim *corev1.PersistentVolumeClaim
	// Volume is the virtual volume, nil if there is none.
	Volume *corev1.PersistentVolume
	// Another names another virtual volume that stands for the same real claim as Volume, empty for none; Place is the
	// namespace in the cluster of the data that belongs to the claim's. Both are observed only if the volume was made for
	// another claim: see backing.WasRestored.
	Another, Place string
	// Real is the real volume that the virtual volume names, in the cluster of its data,
	// whichever claim it is bound to; nil if it is not in the cache.
	Real *corev1.PersistentVolume
	// StorageLeaving is true while the namespace of backing claims at home is being
	// deleted: no claim can be created there.
	StorageLeaving bool
	// Attached is the name of a node that the virtual volume is attached to.
	Attached string
	// Class is the claim's storage class, nil if it does not exist.
	Class *storagev1.StorageClass
	// Node is the selected node, nil if it does not exist.
	Node *corev1.Node
	// Namespace is the claim's namespace, nil if it does not exist.
	Namespace *corev1.Namespace
	// Source is the claim's data source, nil if it has none.
	Source *Source
	// StandIn is the stand-in for the source snapshot, beside the backing claim at home.
	StandIn StandIn
	// Siblings are the other unbound virtual claims of pods that use the claim.
	Siblings []Sibling

	// Backings are the claim's backing claims in the caches, in all clusters. Standing compares all of them, and those
	// that moves have made under other names, with the volume, if there is one.
	Backings []Backing
	Standing backing.Standing
	// Cluster returns the state of a cluster.
	Cluster func(id string) Cluster

	// Unsent is true if the claim's annotation keys.Routed is known to be only an
	// intention: this process has sent no create request for a backing claim since.
	Unsent bool
	// HandedOut is true if the virtual volume was handed over to be created and is not in
	// the cache yet; it will be created whatever happens to the claim.
	HandedOut bool
	// Gone is true if the API server has confirmed that the backing claim of a released
	// volume and its real volume are gone.
	Gone bool
	// RefusedSize is the size that the published backing claim was recently refused, nil
	// for none.
	RefusedSize *RefusedSize
	// RefusedAttributes are the attributes that the published backing claim was recently
	// refused, nil for none.
	RefusedAttributes *RefusedAttributes
	// QuietUntil is until when size and attributes from the remote cluster are not written
	// at home, because that happened too often.
	QuietUntil time.Time
	// MissedSince is since when the volume's backing claim is missing although its
	// cluster's cache is complete; zero: for long, or it is there.
	MissedSince time.Time
	// WaitsSince is since when WaitsFor has returned the same; zero: for long.
	WaitsSince time.Time
	// LastWarning is the last warning event of a waiting backing claim; nil if its events
	// were not read.
	LastWarning *LastWarning
	// AwaySince is since when ClusterSilent is true; zero: for long, or it is false.
	AwaySince time.Time
	// Places has, by ID, the clusters that can take claims of the class, with the size in
	// bytes of the largest volume that has room there, nil where that is unknown. A nil map
	// means that nothing is known.
	Places map[string]*resource.Quantity
	// Synced is when labels and annotations of the backing claim were last written.
	Synced time.Time
	// Changed names a change of a cluster after which the claim was not written yet, so
	// that its pods are not retried yet.
	Changed string
}

// Sibling is another claim of the same pod.
type Sibling struct {
	Claim *corev1.PersistentVolumeClaim
	// Ready is true if its backing claim could be published.
	Ready bool
}

// Backing is one backing claim.
type Backing struct {
	Cluster string
	// ClusterUID is the UID of the remote cluster that it was seen in; empty for home, and while
	// that is not known.
	ClusterUID string
	Claim      *corev1.PersistentVolumeClaim
	// Volume is the real volume bound to it, nil if there is none.
	Volume *corev1.PersistentVolume
	// Made is the volume that has the name of one made for it, at home and only while it names none
	// itself; nil if there is none.
	Made *corev1.PersistentVolume
	// NodesGone names the nodes on which the real volume could be used, if none of them
	// exists any more; empty if one does or that is not known. Names are written for the
	// home cluster only.
	NodesGone string
	// NodesDown names them if some exist but none is ready; empty if NodesGone is set.
	NodesDown string
}

// Cluster is the state of one cluster.
type Cluster struct {
	route.ClusterClasses
	// Usable says whether requests may be sent; Message says why not, Since since when.
	Usable  bool
	Message string
	Since   time.Time
	// Mapped is the state of the namespace there that belongs to the claim's.
	Mapped Mapped
	// Seen is false while the cache does not have all backing claims of the namespace that
	// belongs to the claim's.
	Seen bool
}

// Mapped is the state of a namespace of a remote cluster.
type Mapped struct {
	// Asked is true where the cluster creates namespaces on request: nothing can be created
	// in one before it is granted.
	Asked bool
	Given bool
	// Reason and Message say why the cluster refuses it. Without a reason it may still be
	// granted; a message then says what it waits for. Since is when this home began to
	// wait.
	Reason, Message string
	Since           time.Time
}

// Source is the state of a claim's data source: another claim to copy, a snapshot, or a version of a
// replica.
type Source struct {
	// Snapshot and Version are nil for a copy of a claim. If one is set, all other fields are empty.
	Snapshot *Snapshot
	Version  *Version
	// Claim is nil if there is no claim of that name.
	Claim *corev1.PersistentVolumeClaim
	// Volume is its virtual volume, nil if there is none.
	Volume *corev1.PersistentVolume
	// Foreign is true if it certainly has, or will get, a volume that is not virtual.
	Foreign bool
	// Backings are its backing claims in the caches.
	Backings []Backing
}

// Snapshot is the state of the VolumeSnapshot that a claim is to be made from.
type Snapshot struct {
	// Unknown is true until discovery has shown whether the home cluster has snapshots;
	// Absent then says that it has none.
	Unknown, Absent bool
	// Object is the snapshot, Content its content; nil if there is none.
	Object  *volumesnapshot.Snapshot
	Content *volumesnapshot.Content
	// At is namespace and name of the snapshot's stand-in, for a backing claim at home.
	At types.NamespacedName
	// There is the snapshot in the remote cluster that the content names, nil if it is not
	// in the cache.
	There *volumesnapshot.Snapshot
	// Driver is the CSI driver that took it; empty if it is not known.
	Driver string
}

// Version is the state of the sealed version of a VolumeReplica that a claim is to be made from. It is
// found by the replica's record, which no tenant can write.
type Version struct {
	// Replica is nil if there is no VolumeReplica of that name, or it has not begun.
	Replica *record.Record
	// Sealed is what the version that the claim names has for it, or the newest if it names none; nil if there is none.
	Sealed *record.Content
	// Away says why the cluster with the versions cannot be asked; empty: it can.
	Away string
	// Place is the namespace there in which the backing claim would be.
	Place string
	// There is the VolumeSnapshot of that name there, nil if it is not in the cache.
	There *volumesnapshot.Snapshot
}

// StandIn is the stand-in of a snapshot in the storage namespace, for the backing claim at
// home; see package volumesnapshot. Both fields are nil if there is none.
type StandIn struct {
	Object  *volumesnapshot.Snapshot
	Content *volumesnapshot.Content
}

// RefusedSize is a size that a published backing claim was recently refused.
type RefusedSize struct {
	Size resource.Quantity
	// Reason is CamelCase, Message one sentence.
	Reason, Message string
	// Until is when the size is requested again.
	Until time.Time
}

// RefusedAttributes are attributes that a published backing claim was recently refused.
type RefusedAttributes struct {
	// Attributes is the name of the VolumeAttributesClass, empty for none.
	Attributes string
	// Reason is CamelCase, Message one sentence.
	Reason, Message string
	// Until is when they are requested again.
	Until time.Time
}

// LastWarning is the last warning event about a waiting backing claim. Another program
// wrote it, in a remote cluster anybody could: it is quoted to the user, and no decision
// depends on it.
type LastWarning struct {
	// Backing is the UID of the claim that the event is about.
	Backing types.UID
	// Reason and Message are empty if there was no warning.
	Reason, Message string
	// Again is when to read again. There is no watch, which would be one more for each
	// waiting claim.
	Again time.Time
}

// BackingIn is the claim's backing claim in a cluster, nil if there is none.
func (o *Observation) BackingIn(cluster string) *Backing {
	for i := range o.Backings {
		if o.Backings[i].Cluster == cluster {
			return &o.Backings[i]
		}
	}
	return nil
}

// BackingOf is the backing claim that a virtual volume refers to, nil if it is not there.
func (o *Observation) BackingOf(ref backing.Ref) *Backing { return find(o.Backings, ref) }

// BackingOf is the backing claim that a virtual volume of the source refers to, nil if it is not there.
func (s *Source) BackingOf(ref backing.Ref) *Backing { return find(s.Backings, ref) }

func find(backings []Backing, ref backing.Ref) *Backing {
	for i, b := range backings {
		if b.Cluster == ref.Cluster && b.Claim.UID == ref.UID {
			return &backings[i]
		}
	}
	return nil
}

// WaitsLong says whether a claim has waited for longer than other programs usually need.
func (o *Observation) WaitsLong() bool { return o.Now.Sub(o.WaitsSince) >= Slow }

// Step is the next action for a claim, with what to report about it.
type Step struct {
	// Action is what to do; nil means nothing until something changes.
	Action Action
	// Tell is an event for the user, nil for none.
	Tell *Message
	// After is when to decide again even if nothing changes; 0 means never.
	After time.Duration
	// Trouble is the CamelCase reason for what is wrong with a volume that exists or takes
	// long; empty for nothing.
	Trouble string
	// TroubleIn is the cluster of a backing claim that takes long; empty if the volume
	// exists, which names its cluster.
	TroubleIn string
	// Shows is the message of the claim's condition while Trouble lasts; empty where other
	// conditions show it.
	Shows string
	// Left is a backing claim that may have data while claim and volume at home are gone,
	// nil for none.
	Left *Backing
	// Unknown says that the state of an existing volume is unknown now: the last known
	// state stays, except for Trouble.
	Unknown bool
}

const (
	// Slow is after what time an event reports that a backing claim is still not bound.
	Slow = 20 * time.Second
	// Overdue is the same for the backing claim of a volume that exists. Its pod may first
	// have to be copied there and scheduled.
	Overdue = 2 * time.Minute
	// TroubleAgain is when the event of a lasting trouble is repeated: events are deleted
	// after an hour.
	TroubleAgain = 5 * time.Minute
)

// idle is the verb of a step without an action.
const idle = "Idle"

// Verb names the action of a step: "Idle" if it has none.
func (s Step) Verb() string {
	if s.Action == nil {
		return idle
	}
	verb, _ := s.Action.is()
	return verb
}

// Cluster is where the request of a step goes; empty if it has no action.
func (s Step) Cluster() string {
	if s.Action == nil {
		return ""
	}
	_, cluster := s.Action.is()
	return cluster
}

// Message is an event: on the claim while there is one, else on the volume.
type Message struct {
	Warning bool
	// Reason is CamelCase, Text one sentence.
	Reason, Text string
}

// Refusal says why a cluster or node refused a claim.
type Refusal struct {
	Cluster string
	// Node is set if only that node refused.
	Node            string
	Reason, Message string
}

// Warn is a warning.
func Warn(reason, text string) *Message {
	return &Message{Warning: true, Reason: reason, Text: text}
}

// Note is an event that is no warning.
func Note(reason, text string) *Message {
	return &Message{Reason: reason, Text: text}
}

// Where names a cluster in a sentence.
func Where(cluster string) string {
	if cluster == keys.Home {
		return "the home cluster"
	}
	return "cluster " + cluster
}

// Sooner returns the shorter of two waiting times, of which 0 means none.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || (b > 0 && b < a) {
		return b
	}
	return a
}

// ShownAsTold shows the trouble of a step on the claim, with the text of its event.
func ShownAsTold(step Step) Step {
	if step.Trouble != "" && step.Tell != nil && step.Tell.Reason == step.Trouble {
		step.Shows = step.Tell.Text
	}
	return step
}

// WithTrouble adds a trouble to a step. If the step already has an event, that is written
// instead; the condition shows the trouble all the same.
func WithTrouble(step Step, reason, text string) Step {
	step.Trouble, step.Shows = reason, text
	if step.After == 0 || step.After > TroubleAgain {
		step.After = TroubleAgain
	}
	if step.Tell == nil {
		step.Tell = Warn(reason, text)
	}
	return step
}

// IfSlow returns m once a backing claim has waited for Slow, else nil.
func IfSlow(o Observation, b *corev1.PersistentVolumeClaim, m *Message) *Message {
	if o.Now.Sub(b.CreationTimestamp.Time) < Slow {
		return nil
	}
	return m
}

// Action is what a step does, with all parameters: one of the types below.
type Action interface {
	// is returns the name of the action in metrics, events and logs, which stays when the
	// type is renamed, and where its request goes: keys.Home or a remote cluster.
	is() (verb, cluster string)
}

type (
	// RecordCluster writes the chosen cluster on the claim.
	RecordCluster struct {
		To string
	}
	// CreateBacking creates the backing claim.
	CreateBacking struct {
		Route route.Route
	}
	// CreateVolume hands over the virtual volume to be created.
	CreateVolume struct {
		Route   route.Route
		Backing Backing
	}
	// MarkPublished records on the backing claim that its virtual volume exists or is about
	// to be created.
	MarkPublished struct {
		Backing Backing
	}
	// RemoveBacking deletes a backing claim that was never published. With a refusal, which
	// only that backing claim shows, it also reschedules the claim.
	RemoveBacking struct {
		Backing Backing
		Refusal *Refusal
	}
	// Reschedule removes the selected node from the claim; the refusal is nil if no cluster
	// or node refused it.
	Reschedule struct {
		Refusal *Refusal
	}
	// RequeuePods writes the claim so that kube-scheduler retries the pods that wait for
	// it.
	RequeuePods struct{}
	// ReleaseBacking deletes the backing claim of a released volume.
	ReleaseBacking struct {
		Backing Backing
	}
	// ConfirmGone asks the API server whether a backing claim that is not in the cache any
	// more, and its real volume, are gone.
	ConfirmGone struct {
		Ref backing.Ref
	}
	// FinishVolume allows the released virtual volume to be deleted.
	FinishVolume struct{}
	// UpdateVolume updates the virtual volume from the real one.
	UpdateVolume struct {
		Backing Backing
	}
	// ExpandBacking changes the requested size of a published backing claim.
	ExpandBacking struct {
		Backing Backing
		Size    resource.Quantity
	}
	// UpdateClaimStatus writes the size status of a claim at home, virtual or backing. All
	// else in Status is as observed.
	UpdateClaimStatus struct {
		Backing Backing
		On      *corev1.PersistentVolumeClaim
		Status  *corev1.PersistentVolumeClaimStatus
	}
	// MarkFixedSize writes on a claim why its volume cannot be expanded; empty: it can.
	MarkFixedSize struct {
		Why string
	}
	// ModifyBacking sets the attributes class of the backing claim to that of the virtual
	// claim.
	ModifyBacking struct {
		Backing Backing
	}
	// SyncMetadata sets labels and annotations of the backing claim, and removes those that
	// are nil.
	SyncMetadata struct {
		Backing             Backing
		Labels, Annotations map[string]any
	}
	// ReadEvents reads the events of a waiting backing claim.
	ReadEvents struct {
		Backing Backing
	}
	// HealBacking takes the next step to replace the backing claim Ref, which somebody
	// deleted. Backing.Claim is the claim that has its name now, nil if there is none.
	HealBacking struct {
		Cure    Cure
		Ref     backing.Ref
		Backing Backing
	}
	// MakeStandIn creates what is missing of the stand-in of a snapshot.
	MakeStandIn struct {
		StandIn StandIn
	}
	// RemoveStandIn deletes a stand-in.
	RemoveStandIn struct {
		StandIn StandIn
	}
	// RecordSource writes on the claim in which cluster its snapshot or version is; empty: unknown. Version is
	// the version that it gets from now on; empty: that stays as it is.
	RecordSource struct {
		In, Version string
	}
	// LockClaim makes new pods of the claim wait, because newer data of it exists than what its volume stands for, or because its
	// twin is bound to another volume than that.
	LockClaim struct{}
	// ShowTrouble sets the condition of the claim about its volume; nil removes it.
	ShowTrouble struct {
		Condition *corev1.PersistentVolumeClaimCondition
	}
)

// Cure is the action of a step of healing: the backing claim at home that somebody deleted
// goes, and a new one is bound to the same real volume. At every moment the real volume has
// a backing claim with our finalizer or the policy Retain.
type Cure string

// The cures, in order.
const (
	// Begin records on the virtual volume that its backing claim is being healed, and the
	// reclaim policy that the real volume must have afterwards.
	Begin Cure = "Begin"
	// Retain sets policy Retain, so that the real volume outlives its claim.
	Retain Cure = "Retain"
	// LetGo removes our finalizer from the deleted claim.
	LetGo Cure = "LetGo"
	// Free clears the UID in the real volume's claimRef, so that it waits for a new claim
	// of the same name.
	Free Cure = "Free"
	// Rebuild creates that claim.
	Rebuild Cure = "Rebuild"
	// Adopt makes the virtual volume name the new backing claim: the one created at home,
	// or one that was recreated in a remote cluster.
	Adopt Cure = "Adopt"
	// Restore gives the real volume its own reclaim policy back.
	Restore Cure = "Restore"
	// End removes the record.
	End Cure = "End"
)

func (RecordCluster) is() (verb, cluster string)     { return "Record", keys.Home }
func (a CreateBacking) is() (verb, cluster string)   { return "Create", a.Route.Cluster }
func (CreateVolume) is() (verb, cluster string)      { return "Publish", keys.Home }
func (a MarkPublished) is() (verb, cluster string)   { return "Mark", a.Backing.Cluster }
func (a RemoveBacking) is() (verb, cluster string)   { return "Remove", a.Backing.Cluster }
func (Reschedule) is() (verb, cluster string)        { return "Reschedule", keys.Home }
func (RequeuePods) is() (verb, cluster string)       { return "Wake", keys.Home }
func (a ReleaseBacking) is() (verb, cluster string)  { return "Release", a.Backing.Cluster }
func (a ConfirmGone) is() (verb, cluster string)     { return "Confirm", a.Ref.Cluster }
func (FinishVolume) is() (verb, cluster string)      { return "Finish", keys.Home }
func (UpdateVolume) is() (verb, cluster string)      { return "Update", keys.Home }
func (a ExpandBacking) is() (verb, cluster string)   { return "Expand", a.Backing.Cluster }
func (UpdateClaimStatus) is() (verb, cluster string) { return "Reflect", keys.Home }
func (MarkFixedSize) is() (verb, cluster string)     { return "Fix", keys.Home }
func (a ModifyBacking) is() (verb, cluster string)   { return "Modify", a.Backing.Cluster }
func (a SyncMetadata) is() (verb, cluster string)    { return "Carry", a.Backing.Cluster }
func (a ReadEvents) is() (verb, cluster string)      { return "Ask", a.Backing.Cluster }
func (HealBacking) is() (verb, cluster string)       { return "Heal", keys.Home }
func (MakeStandIn) is() (verb, cluster string)       { return "Stage", keys.Home }
func (RemoveStandIn) is() (verb, cluster string)     { return "Unstage", keys.Home }
func (RecordSource) is() (verb, cluster string)      { return "Locate", keys.Home }
func (LockClaim) is() (verb, cluster string)         { return "Lock", keys.Home }
func (ShowTrouble) is() (verb, cluster string)       { return "Show", keys.Home }
