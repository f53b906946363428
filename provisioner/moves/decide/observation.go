// Package decide holds the decisions of a move as pure functions: the record and what
// is there go in, the one next step comes out. Each step is one write, safe to repeat;
// a program that is stopped anywhere goes on by observing again. All that is observed
// was asked of API servers a moment ago, never taken from caches.
package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Observation is what is known of one move.
type Observation struct {
	Now time.Time
	// Move is the VolumeMove, nil when there is none of the record's UID.
	Move *v1alpha1.VolumeMove
	// Record is nil while there is none.
	Record *record.Record
	// Claims are in the order of the record.
	Claims []Claim
	// Pods are those of home that use one of the claims. They were read after the
	// claims and volumes.
	Pods []Pod
	// Others says who else uses a source, in words, as pods of the remote cluster and
	// nodes that the volume is attached to; read after the volumes too.
	Others []string
	// Users are the nodes that pods which use a source are bound to now, those of movers
	// left out. Away says why of a node, of these or of the record, it is not known what
	// runs there; it has no entry for one that is ready or gone.
	Users []record.Node
	Away  map[record.Node]string
	// Off are those of them that are gone or said to be off: nothing runs there.
	Off map[record.Node]bool
	// Writers are the pods that use a source and have not ended, but for those of home on
	// nodes that stand for a cluster.
	// Unended are others that were last seen so before they were gone, Ended those of
	// which it was seen that they ended. Margin is how long after its grace period such a
	// pod may still run on a node that is ready.
	Writers []record.Pod
	Unended []record.Pod
	Ended   map[types.UID]bool
	Margin  time.Duration
	// Settling is how long pods are still looked at once the claims are free: they may have
	// got the gate from an API server that had not heard of that yet.
	Settling time.Duration
	// Advanced is when a copy got further last, as far as is known; zero while nobody looks.
	Advanced time.Time
	// Failing is since when every step fails, FailingWhy the last error; zero: none does.
	Failing    time.Time
	FailingWhy string
	// Unusable says why the cluster of an end takes no requests; empty if it does.
	// Nothing is known of what is there then.
	Unusable map[record.End]string
	// Gone says of an end that there is no such cluster any more: its RemoteCluster was
	// removed. Nobody will answer there unless somebody makes another one.
	Gone map[record.End]bool
}

// Claim is what is there for one claim of a move.
type Claim struct {
	// Claim is the virtual claim, nil when there is none of its UID.
	Claim *corev1.PersistentVolumeClaim
	// Volume is what has the name of the virtual volume, nil if nothing has.
	Volume *corev1.PersistentVolume
	Source Side
	Target Side
	// Snapshot is only observed while the record says that there may be one.
	Snapshot Snapshot
	// On are the nodes of the source's cluster that pods are bound to which use the claim
	// and are not ending, those of movers left out.
	On []string
	// Levels are the SELinux levels that pods state, in the source's cluster, which use the
	// claim.
	Levels []string
	// Copy is what the mover that reads, as Reads says, tells, nil if it was not reached; CopyError
	// why not.
	Copy      *movecontrol.Status
	CopyError string
	// Way is how the movers are connected, for people.
	Way Way
	// New is the virtual volume for the target, if it can be built; NewError says why
	// not. Only observed from Verify on.
	New      *corev1.PersistentVolume
	NewError string
}

// Side is what is there at one end.
type Side struct {
	// Backing is what has the name of the backing claim, nil if nothing has.
	Backing *corev1.PersistentVolumeClaim
	// Real is the real volume that is bound to it.
	Real *corev1.PersistentVolume
	// Mover is the pod or ShadowPod of the mover.
	Mover Mover
}

// Mover is what is there of a mover.
type Mover struct {
	// Exists says that it, or its pod, may run; Leaving that it is being deleted.
	Exists, Leaving bool
	// Unstarted: it was made, and has neither keys nor been started.
	Unstarted bool
	// Running says that its pod is ready to be talked to.
	Running bool
	// Ended says that it stopped by itself and must be made anew.
	Ended bool
	// Keyless says that it was started, has a node and does not run for so long that its
	// Secret may be missing.
	Keyless bool
	// Node is where its pod is bound to; empty while it has none.
	Node string
	// Problem is why it does not run, in words, as far as known.
	Problem string
	// Pod is the UID of its pod, and IPs are the pod's addresses as its cluster tells them;
	// empty while there is none.
	Pod types.UID
	IPs []string
}

// Way is how data travels between two movers.
type Way struct {
	// Transport is empty while they are apart.
	Transport v1alpha1.MoveTransport
	// Legs are set where the provisioner joins them.
	Legs *v1alpha1.MoveLegs
	// Why is why one does not dial the other, as far as known.
	Why string
}

// Pod is one that uses a claim.
type Pod struct {
	Name string
	UID  types.UID
	// Node is where it is bound to; empty while it has none.
	Node string
	// Claims are the indices of the claims that it uses.
	Claims []int
	// Gated: it has the gate of moves. Bound: it has a node.
	Gated, Bound, Leaving, Ready, Finished bool
	// Owned says whether a controller would make it anew. Job is the name of the Job whose it
	// is: that would, too, but counts a pod that was stopped as one that failed.
	Owned bool
	Job   string
	// Hasty: it has no grace period, so that it goes without a word of its node.
	Hasty bool
}
