// Package decide has the decisions about virtual claims as pure functions: the observation
// of one claim goes in, the one next step comes out. Every step leads towards the wanted
// state and is safe to repeat, so a process that is stopped between two steps resumes by
// observing again.
//
// Next is the entry point; RouteTo decides where the backing claim of a claim goes. Start
// with this file for the types, then next.go (claims without a volume) and published.go
// (claims with one).
package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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

	// Backings are the claim's backing claims in the caches, in all clusters.
	Backings []Backing
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
	// NodesGone names the nodes on which the real volume could be used, if none of them
	// exists any more; empty if one does or that is not known. Names are written for the
	// home cluster only.
	NodesGone string
	// NodesDown names them if some exist but none is ready; empty if NodesGone is set.
	NodesDown string
}

// Cluster is the state of one cluster.
type Cluster struct {
	ClusterClasses
	// Usable says whether requests may be sent; Reason and Message say why not, Since since
	// when.
	Usable          bool
	Reason, Message string
	Since           time.Time
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

func find(o Observation, cluster string) *Backing {
	for i := range o.Backings {
		if o.Backings[i].Cluster == cluster {
			return &o.Backings[i]
		}
	}
	return nil
}

func findRef(o Observation, ref backing.Ref) *Backing { return findIn(o.Backings, ref) }

func findIn(backings []Backing, ref backing.Ref) *Backing {
	for i, b := range backings {
		if b.Cluster == ref.Cluster && b.Claim.UID == ref.UID {
			return &backings[i]
		}
	}
	return nil
}

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
		Route Route
	}
	// CreateVolume hands over the virtual volume to be created.
	CreateVolume struct {
		Route   Route
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
	// RecordSource writes on the claim in which cluster its snapshot is; empty: unknown.
	RecordSource struct {
		In string
	}
	// ShowTrouble sets the condition of the claim about its volume; nil removes it.
	ShowTrouble struct {
		Condition *corev1.PersistentVolumeClaimCondition
	}
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
func (ShowTrouble) is() (verb, cluster string)       { return "Show", keys.Home }

// Refusal says why a cluster or node refused a claim.
type Refusal struct {
	Cluster string
	// Node is set if only that node refused.
	Node            string
	Reason, Message string
}

// Message is an event: on the claim while there is one, else on the volume.
type Message struct {
	Warning bool
	// Reason is CamelCase, Text one sentence.
	Reason, Text string
}

func warn(reason, text string) *Message {
	return &Message{Warning: true, Reason: reason, Text: text}
}

func note(reason, text string) *Message {
	return &Message{Reason: reason, Text: text}
}

// where names a cluster in a sentence.
func where(cluster string) string {
	if cluster == keys.Home {
		return "the home cluster"
	}
	return "cluster " + cluster
}

// sooner returns the shorter of two waiting times, of which 0 means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || (b > 0 && b < a) {
		return b
	}
	return a
}
