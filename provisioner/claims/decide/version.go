package decide

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has what is different for a claim that is to be made from a sealed version of a VolumeReplica: which version that is says
// the replica's record, and its VolumeSnapshot is beside the backing claim already.

// Reasons of claims that are to be made from a version.
const (
	versionNotReady = "VersionNotReady"
	versionGone     = "VersionGone"
)

// unnamed says whether a claim is to be made from a version and does not name one yet.
func unnamed(o steps.Observation) bool {
	return o.Source != nil && o.Source.Version != nil && o.Claim.Annotations[keys.ReplicaVersion] == ""
}

// lookAgain is when a claim is looked at again that is to be made from a version, since nothing tells when a record or its snapshot
// changes: seldom if it has waited for long.
func lookAgain(o steps.Observation) time.Duration {
	return min(max(o.Now.Sub(o.Claim.CreationTimestamp.Time)/10, time.Second), steps.Slow)
}

// PartOf returns which claim of a VolumeReplica a claim gets the data of, as its index; -1 if it does not say that, or there is none.
func PartOf(r *record.Record, claim *corev1.PersistentVolumeClaim) int {
	switch of := claim.Annotations[keys.ReplicaClaim]; {
	case of != "":
		return r.Index(of)
	case r.Len() == 1:
		return 0
	}
	return -1
}

// originOfVersion returns where a version is, or why no claim can be made from it, wherever its pod runs.
func originOfVersion(claim *corev1.PersistentVolumeClaim, v *steps.Version) (Origin, *Obstacle) {
	name, wanted := route.ReplicaOf(claim), claim.Annotations[keys.ReplicaVersion]
	await := func(text string, details ...any) (Origin, *Obstacle) {
		return Origin{}, &Obstacle{Tell: steps.Note(versionNotReady, fmt.Sprintf(text, details...))}
	}
	gone := func(text string, details ...any) (Origin, *Obstacle) {
		return Origin{}, &Obstacle{Tell: steps.Warn(versionGone, fmt.Sprintf(text, details...))}
	}
	switch {
	case v.Replica == nil:
		return await("there is no VolumeReplica %q in namespace %s that has begun, and this claim is to be made from one: delete this claim, or "+
			"make that", name, claim.Namespace)
	case v.Replica.Slots:
		return gone("VolumeReplica %q keeps its versions in two real claims that are written in turn, without snapshots, and no other claim can "+
			"be made of one: delete this claim, and fail over to use a version (kubectl lodestone failover)", name)
	case PartOf(v.Replica, claim) < 0:
		return gone("VolumeReplica %q is of %s: say in annotation %s of which of them this claim gets the data", name,
			named(v.Replica.Claims()), keys.ReplicaClaim)
	case v.Replica.Len() > 1 && wanted == "":
		return gone("VolumeReplica %q is of %s, and each claim that is made of it names the same version, so that all are of one moment: name "+
			"one that its status has in annotation %s", name, named(v.Replica.Claims()), keys.ReplicaVersion)
	case v.Sealed == nil && wanted == "":
		return await("waiting until VolumeReplica %q has sealed a version, which this claim is to be made from", name)
	case v.Sealed == nil:
		return gone("VolumeReplica %q has no version %q, which this claim is to be made from: delete this claim, and make one from a version "+
			"in its status", name, wanted)
	}
	head := v.Replica.Head
	at, in := types.NamespacedName{Namespace: head.Namespace, Name: v.Sealed.Name}, steps.Where(head.Cluster)
	switch {
	case v.Away != "":
		return await("waiting until %s can be used, which has the version that this claim is to be made from: %s", in, v.Away)
	case v.Place != head.Namespace:
		return gone("the versions of VolumeReplica %q are in namespace %s of %s, and this claim belongs in %s there: the ID or the namespaces "+
			"of home were changed since they were made", name, head.Namespace, in, v.Place)
	case v.There == nil:
		return await("waiting until VolumeSnapshot %s in %s is seen, which this claim is to be made from", at, in)
	case v.There.UID != v.Sealed.UID:
		return gone("VolumeSnapshot %s in %s is another than the one that was sealed, which this claim is to be made from: delete this claim, "+
			"and make one from another version", at, in)
	case v.There.DeletionTimestamp != nil:
		return gone("VolumeSnapshot %s in %s, which this claim is to be made from, is being deleted: delete this claim, and make one from "+
			"another version", at, in)
	}
	if size, want := v.There.Status.RestoreSize, claim.Spec.Resources.Requests[corev1.ResourceStorage]; size != nil && want.Cmp(*size) < 0 {
		return Origin{}, invalid("the claim asks for %s, less than the %s of the version that it is to be made from: create it anew with at "+
			"least as much", want.String(), size)
	}
	ref := backing.Ref{Cluster: head.Cluster, Namespace: at.Namespace, Name: at.Name, UID: v.Sealed.UID}
	return Origin{Cluster: head.Cluster, Ref: ref}, nil
}

// named lists claims in a sentence.
func named(claims []string) string {
	if len(claims) == 1 {
		return "claim " + claims[0]
	}
	return "claims " + strings.Join(claims, ", ")
}

// fromVersion returns the VolumeSnapshot that the backing claim of a claim is created from on a route, or the obstacle.
func fromVersion(claim *corev1.PersistentVolumeClaim, v *steps.Version, to route.Route) (types.NamespacedName, *Obstacle) {
	origin, obstacle := originOfVersion(claim, v)
	if obstacle != nil {
		return types.NamespacedName{}, obstacle
	}
	if origin.Cluster != to.Cluster {
		return types.NamespacedName{}, &Obstacle{Refusal: &steps.Refusal{Cluster: to.Cluster, Reason: sourceElsewhere, Message: fmt.Sprintf(
			"the versions of VolumeReplica %q are in %s, and volumes are made from them there: let the pod run there", route.ReplicaOf(claim),
			steps.Where(origin.Cluster))}}
	}
	return origin.Ref.Key(), unfitDriver(v.Sealed.Name, v.Sealed.Volume.Driver, to)
}
