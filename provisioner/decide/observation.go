// Package decide holds the decisions of flow A, claim to volume, as pure
// functions: what was observed of one virtual claim goes in, the one next step
// comes out. Every step moves towards the wanted state and is safe to repeat, so
// a program that is stopped between two steps resumes by observing again.
package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// Observation is what is known of one virtual claim, by its UID, at one moment.
// Everything in it comes from caches and is not changed.
type Observation struct {
	Now time.Time
	UID types.UID

	// Moving is true while a move holds the claim: then nothing else touches the claim
	// or what is behind it.
	Moving bool
	// Claim is the virtual claim, nil when there is none of this UID.
	Claim *corev1.PersistentVolumeClaim
	// Volume is the virtual volume, nil when there is none.
	Volume *corev1.PersistentVolume
	// Real is the real volume that the virtual volume names, in the cluster of its
	// data, whatever claim it is bound to; nil when it is not seen there.
	Real *corev1.PersistentVolume
	// StorageLeaving is true while the namespace of twins is being deleted: no
	// claim can be made there.
	StorageLeaving bool
	// Attached is the name of a node that the virtual volume is attached to.
	Attached string
	// Class is the claim's storage class, nil when it does not exist.
	Class *storagev1.StorageClass
	// Node is the selected node, nil when it does not exist.
	Node *corev1.Node
	// Namespace is the claim's, nil when it does not exist.
	Namespace *corev1.Namespace
	// Source is what the claim is to be made from, nil if it is to be empty.
	Source *Source
	// StandIn is what stands in for a snapshot for the claim's twin.
	StandIn StandIn
	// Siblings are the other unbound virtual claims of pods that use the claim.
	Siblings []Sibling

	// Backings are the backing claims that are known, in any cluster.
	Backings []Backing
	// Cluster returns what is known of a cluster.
	Cluster func(id string) Cluster

	// Unsent is true when the claim's Routed annotation is known to be only an
	// intention: no create request for a backing claim ever left this program.
	Unsent bool
	// HandedOut is true when the virtual volume was handed over to be created
	// and is not seen yet; it will be created whatever happens to the claim.
	HandedOut bool
	// Gone is true when the backing claim of a released volume and its real
	// volume were both seen to be gone by asking their API server.
	Gone bool
	// Declined is the size that the place of the published backing claim refused
	// lately, nil for none.
	Declined *Declined
	// Ungiven are the attributes that the place of the published backing claim
	// refused lately, nil for none.
	Ungiven *Ungiven
	// QuietUntil is until when what the remote cluster says of size and attributes
	// is not written at home, for it was so often.
	QuietUntil time.Time
	// MissedSince is since when the backing claim that the volume refers to is not
	// seen in a cluster in which it would be; zero: for long, or it is seen.
	MissedSince time.Time
	// WaitsSince is since when the claim waits for what Waits names; zero: for long.
	WaitsSince time.Time
	// Said is what the events of a backing claim that waits said last; nil while
	// nobody asked.
	Said *Said
	// AwaySince is since when the cluster of the volume's data tells nothing of it;
	// zero: for long, or it does.
	AwaySince time.Time
	// Places are, by their IDs, the clusters that can take claims of the class at all,
	// with the size in bytes of the largest volume that has room there, nil where that
	// is not known. Nil: nothing is.
	Places map[string]*resource.Quantity
	// Carried is when labels and annotations were last carried to the backing claim.
	Carried time.Time
	// Changed names a change of a cluster that the claim has not been told of.
	Changed string
}

// Sibling is another claim of the same pod.
type Sibling struct {
	Claim *corev1.PersistentVolumeClaim
	// Ready is true when its backing claim could be published.
	Ready bool
}

// Backing is one backing claim.
type Backing struct {
	Cluster string
	Claim   *corev1.PersistentVolumeClaim
	// Volume is the real volume bound to it, nil while there is none.
	Volume *corev1.PersistentVolume
	// NodesGone says that no node is left on which the real volume could be used,
	// and at home on which ones it could; empty while there is one, or it is not
	// known.
	NodesGone string
	// NodesDown says the same of nodes that are ready; empty if NodesGone is not.
	NodesDown string
}

// Cluster is what is known of one cluster.
type Cluster struct {
	route.Cluster
	// Usable says whether requests may be sent; Reason and Message say why not,
	// Since when.
	Usable          bool
	Reason, Message string
	Since           time.Time
	// Mapped is the namespace there that belongs to the claim.
	Mapped Mapped
	// Seen is false while it is unknown which backing claims exist in the
	// namespace that belongs to the claim.
	Seen bool
}

// Mapped is what is known of a namespace of a remote cluster.
type Mapped struct {
	// Asked is true where the cluster makes namespaces on request: nothing can be
	// made in one before it is given.
	Asked bool
	Given bool
	// Reason and Message say why the cluster refuses it. Without a reason it may
	// still be given, and the message, if there is one, says what it waits for.
	// Since is when this home began to wait.
	Reason, Message string
	Since           time.Time
}
