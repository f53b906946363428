package remote

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
)

// This file has the lease after which pods in a silent cluster have ended. Home asks for it with each renewal of its mark, and has stored
// before what it asks for and what was promised, so that this survives the process. When a renewal was sent last is known to the process
// that sent it alone: another one counts from its own start.

// wantedLease is the lease that an administrator wants of a cluster; 0: none.
func wantedLease(remote *v1alpha1.RemoteCluster) time.Duration {
	if remote.Spec.PodLease == nil || remote.DeletionTimestamp != nil {
		return 0
	}
	return remote.Spec.PodLease.Duration
}

// promisedBy is the lease that a remote agent shows.
func promisedBy(tenant *remotev1alpha1.HomeCluster) podlease.Ask {
	if shown := tenant.Status.PodLease; shown != nil {
		return podlease.Ask{Request: shown.Request, Seconds: shown.Seconds}
	}
	return podlease.Ask{}
}

// beat notes that a heartbeat may have been sent until now.
func (c *Cluster) beat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = time.Now()
}

// quiet is for how long this process has certainly sent no heartbeat. No other one has since it leads.
func (c *Cluster) quiet() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.sent)
}

// Silence returns how long must be waited until pods in a cluster that home does not reach have ended.
func (r *Clusters) Silence(ctx context.Context, id string) (podlease.Silence, error) {
	cluster, object := r.Get(id), r.Object(id)
	switch {
	case id == keys.Home:
		return podlease.Silence{Why: "the data is at home, which always answers"}, nil
	case cluster == nil || object == nil:
		return podlease.Silence{Why: fmt.Sprintf("there is no RemoteCluster %s", id)}, nil
	case wantedLease(object) == 0:
		return podlease.Silence{Why: fmt.Sprintf("spec.podLease of RemoteCluster %s is not set, so nobody ends pods there while it is silent",
			id)}, nil
	}
	// Before the record is read: a heartbeat that is sent meanwhile has another one.
	quiet := cluster.quiet()
	_, record, err := r.epochRecord(ctx, id)
	if err != nil {
		return podlease.Silence{}, err
	}
	if record == nil || record.RemoteCluster != string(object.UID) || record.Doubt != nil || !record.PodLease.IsPromised() {
		return podlease.Silence{Why: fmt.Sprintf("the remote agent of cluster %s was not seen to promise, before it fell silent, that it ends "+
			"pods there (condition %s of RemoteCluster %s)", id, v1alpha1.PodLeasePromised, id)}, nil
	}
	return podlease.Of(record.PodLease, quiet), nil
}

// setPodLease sets the condition PodLeasePromised if a lease is wanted, and removes it otherwise. What is known is of the last time that
// the cluster answered.
func (c *Cluster) setPodLease(remote *v1alpha1.RemoteCluster, status *v1alpha1.RemoteClusterStatus) {
	wanted, known := wantedLease(remote), c.epoch.podLease
	if wanted == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.PodLeasePromised)
		return
	}
	promised := condition(v1alpha1.PodLeasePromised, metav1.ConditionFalse, "NotPromised", "the remote agent there has not promised yet to "+
		"end pods of home that use claims when home is silent: if that stays so, let its owner see that it runs, in this version")
	switch {
	case known == nil:
		if meta.FindStatusCondition(status.Conditions, v1alpha1.PodLeasePromised) != nil {
			return // This process has just started, and does not reach it.
		}
	case known.IsPromised():
		length := podlease.Of(known, 0).Length
		promised = condition(v1alpha1.PodLeasePromised, metav1.ConditionTrue, "Promised", fmt.Sprintf("the remote agent there has promised to "+
			"end pods of home that use claims once home has been silent for %v; %v after its last heartbeat, their grace period and a margin "+
			"later, home takes them for ended; whether that agent runs now is not seen", length/2, length))
	}
	promised.ObservedGeneration = remote.Generation
	meta.SetStatusCondition(&status.Conditions, promised)
}
