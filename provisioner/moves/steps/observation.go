package steps

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// Observation is the state of one move and its objects.
type Observation struct {
	Now time.Time
	// Move is the VolumeMove, nil if there is none with the record's UID.
	Move *v1alpha1.VolumeMove
	// Record is nil if there is none.
	Record *record.Record
	// MayBegin says that it is the turn of a move that has no record.
	MayBegin bool
	// Claims are in the order of the record.
	Claims []Claim
	// Group is observed only while the record says that it may exist.
	Group Group
	// Pods are the home pods that use one of the claims. They were read after the claims
	// and volumes.
	Pods []Pod
	// Seen has those who use a source, of every claim, as they were after the volumes.
	proof.Seen
	// Settling is for how long pods are still observed after the claims were released: an
	// API server that had not yet seen the release may have added the gate.
	Settling time.Duration
	// Advanced is when a copy last made progress, as far as known; zero while the movers
	// are not queried.
	Advanced time.Time
	// Failing is since when every step has failed, FailingWhy the last error; zero if the
	// last step succeeded.
	Failing    time.Time
	FailingWhy string
	// Next is the name of another move that holds one of the claims now; empty if none does.
	Next string
	// Taker is a later move that has begun and takes the copies at the source as its targets; empty if there is none.
	Taker types.UID
	// Earlier is the record of the move that keeps the copies which this one takes as its targets; nil if it takes none, or
	// that move is over.
	Earlier *record.Record
	// Source and Target are the states of the clusters of both ends.
	Source, Target Cluster
}

// At returns the state of the cluster of an end. A snapshot is in that of the source.
func (o *Observation) At(end record.End) *Cluster {
	if end == record.Target {
		return &o.Target
	}
	return &o.Source
}

// Cluster is the state of the cluster of an end.
type Cluster struct {
	// Unusable says why it takes no requests; empty if it does. Otherwise nothing is known
	// of its objects.
	Unusable string
	// Away says that it was asked, and cannot be used for now: it is neither that a single request failed, nor that it is being asked for
	// the first time since the program started.
	Away bool
	// Silence is how long must be waited until pods there have ended. It is observed only of the source of a failover with fence Lease that
	// takes no requests.
	Silence podlease.Silence
	// Gone says that its RemoteCluster was deleted. Nobody will answer there unless
	// somebody creates it again.
	Gone bool
}

// Claim has the objects of one claim of a move.
type Claim struct {
	// Claim is the virtual claim, nil if there is none with its UID.
	Claim *corev1.PersistentVolumeClaim
	// Volume is the volume with the virtual volume's name, nil if there is none.
	Volume *corev1.PersistentVolume
	// Attached says that the source is attached to a node under the name of the virtual
	// volume. Its attacher keeps a finalizer on that until it is detached, and it stays
	// attached as long as any pod on that node uses it under whatever name, so a mover too.
	Attached bool
	Source   Side
	Target   Side
	// Snapshot is observed only while the record says that it may exist.
	Snapshot Snapshot
	// On are the nodes, in the source's cluster, of pods that use the claim and are not
	// being deleted, without movers.
	On []string
	// Levels are the SELinux levels in the security contexts of pods, in the source's
	// cluster, that use the claim.
	Levels []string
	// FallBack is the snapshot that can be taken of the copy at the source before a later move writes to it; one that is Gone
	// cannot be taken, and its Why says why. It is observed only until it is recorded.
	FallBack *record.Snapshot
	// Now is the copy that a later move has given the claim. It is observed only in Finalize, if
	// there is one.
	Now Elsewhere
	// Overwritten says that the replica does not count the version any more whose slot the claim is to get: it writes there, or is about to.
	Overwritten bool
	// NoBasis says why no volume can be made of the version that the target is to begin with; empty: one can, or the target has its volume.
	// It is observed only in Provision.
	NoBasis string
	// Copy is the status of the mover at ReadEnd, nil if it was not reached; CopyError says
	// why not.
	Copy      *moverapi.Status
	CopyError string
	// Connection is how the movers are connected, for the status.
	Connection transport.Connection
	// New is the virtual volume for the target, if it can be built; NewError says why not.
	// It is observed only from Verify on.
	New      *corev1.PersistentVolume
	NewError string
}

// At returns the objects at an end.
func (c *Claim) At(end record.End) *Side {
	switch end {
	case record.Source:
		return &c.Source
	case record.Snapped:
		return &c.Snapshot.Side
	default: // record.Target
		return &c.Target
	}
}

// Elsewhere is a copy that is at neither end of the move.
type Elsewhere struct {
	Side
	Ref backing.Ref
	// Unusable says why nothing is known of it; empty if it was observed.
	Unusable string
}

// Side has the objects at one end.
type Side struct {
	// Backing is the claim with the backing claim's name, nil if there is none.
	Backing *corev1.PersistentVolumeClaim
	// Real is the real volume that is bound to it.
	Real *corev1.PersistentVolume
	// Mover is the pod or ShadowPod of the mover.
	Mover movers.State
}

// Snapshot has the objects for a snapshot of a source: the VolumeSnapshot, the claim
// created from it as Backing, and that claim's mover. Objects that are not this move's are
// left out.
type Snapshot struct {
	Side
	// Exists, Leaving, Ready and UID are the VolumeSnapshot's.
	Exists, Leaving, Ready bool
	UID                    types.UID
	// Problem describes why it is not ready, if known. Refused says that it never will be. Untouched says that no snapshot
	// controller has looked at it yet.
	Problem   string
	Refused   bool
	Untouched bool
}

// Group is one snapshot of several sources. One that is not this move's is left out.
type Group struct {
	// Exists, Leaving, Ready and UID are the VolumeGroupSnapshot's.
	Exists, Leaving, Ready bool
	UID                    types.UID
	// Members are the names of the VolumeSnapshots that belong to it, by the index of their claim. They
	// are observed only while the record does not have them.
	Members map[int]string
	// Problem describes why it is not ready, if known. Refused says that it never will be.
	Problem string
	Refused bool
}

// Pod is a pod that uses a claim.
type Pod struct {
	Name string
	UID  types.UID
	// Node is the node of the pod; empty while it has none.
	Node string
	// Cluster is the one that its node stands for: home, unless it is a virtual node. Released says that it was given up: it goes once
	// nobody else holds it.
	Cluster  string
	Released bool
	// Hosted: the remote agent of that cluster has its copy there, if there is one, and nobody else, such as a program that has nodes of
	// its own for that cluster.
	Hosted bool
	// Claims are the indices of the claims that it uses.
	Claims []int
	// Gated: it has the scheduling gate of moves. Bound: it has a node.
	Gated, Bound, Leaving, Ready, Finished bool
	// Owned says whether a controller would replace it. Job is the name of its Job, if any:
	// that would replace it too, but count a pod that was stopped as failed.
	Owned bool
	Job   string
	// Held: in a dry run a new pod like this one got the gate. NotHeld says why not; both
	// are empty unless this is the next pod to be stopped.
	Held    bool
	NotHeld string
	// Grace is its grace period in seconds, or that of its deletion if that is longer.
	Grace int64
	// Hasty: its grace period is zero, so the API server deletes it before its node has
	// ended it.
	Hasty bool
}
