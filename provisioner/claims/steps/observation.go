// Package steps has what the decision about a virtual claim is made from and what comes out of it:
// the Observation of a claim, the Step to take next with its Action, and the words in which decisions
// write steps and events (Warn, Note, Where, WithTrouble). Package decide chooses the step, package
// claims observes and takes it. The package is pure: no client, no clock. action.go has all that can
// be done for a claim.
package steps

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
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

// Source is the state of a claim's data source: another claim to copy, or a snapshot.
type Source struct {
	// Snapshot is nil for a copy of a claim. If it is set, all other fields are empty.
	Snapshot *Snapshot
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
