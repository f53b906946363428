package replicas

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

const (
	// runnableFor is for how long it counts whether a standby could run the pods of a replica, before it is found out again.
	runnableFor = time.Minute
	// lookFor limits the requests that this takes.
	lookFor = 5 * time.Second
	// mostUsers is how many pods of a replica are looked at for that.
	mostUsers = 16
)

// runnableNow remembers whether the standby of a replica could run the pods.
type runnableNow struct {
	decide.Runnable
	at time.Time
	// away says why the cluster could not be asked then.
	away string
}

// of finds it out, unless it did a moment ago, when the cluster was as it is.
func (n *runnableNow) of(ctx context.Context, c *Controller, r *record.Record) decide.Runnable {
	_, away := c.sites.Reach(r.Head.Cluster)
	if n.Status == "" || n.away != away || time.Since(n.at) >= runnableFor {
		ctx, cancel := context.WithTimeout(ctx, lookFor)
		defer cancel()
		n.Runnable, n.at, n.away = c.hostOf(ctx, r).Runnable(), time.Now(), away
		n.Why = plain(n.Why)
	}
	return n.Runnable
}

// hostOf observes whether the cluster of a standby could run the pods that use the claims of a replica: a few pods are read, all else is
// from caches.
func (c *Controller) hostOf(ctx context.Context, r *record.Record) decide.Host {
	host := decide.Host{Cluster: r.Head.Cluster}
	for _, node := range controller.All[corev1.Node](c.Sources.Nodes) {
		if cmp.Or(node.Labels[keys.Cluster], keys.Home) == host.Cluster {
			host.Nodes = append(host.Nodes, node)
		}
	}
	slices.SortFunc(host.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	known := map[string]bool{}
	for i := range r.Len() {
		part := r.At(i)
		claim := c.seenOf(r.Namespace, part.Claim).Claim
		if claim == nil || claim.UID != part.ClaimUID {
			host.Unread = fmt.Sprintf("claim %q is gone, so it is not known which pods would run", part.Claim)
			return host
		}
		if _, _, err := c.routeTo(claim, v1alpha1.ReplicaStandby{Cluster: host.Cluster, ClassName: part.Class}); err != nil {
			host.Refused = err.Error()
			return host
		}
		for _, user := range c.Sources.PodsOf(r.Namespace + "/" + part.Claim) {
			if user.Phase == corev1.PodSucceeded || user.Phase == corev1.PodFailed || known[user.Name] {
				continue
			}
			if known[user.Name] = true; len(known) > mostUsers {
				host.Unread = fmt.Sprintf("more than %d pods use the claims, which are not all looked at", mostUsers)
				return host
			}
			pod, err := c.Client.CoreV1().Pods(r.Namespace).Get(ctx, user.Name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err), err == nil && pod.DeletionTimestamp != nil:
				// Another one follows it, or none.
			case err != nil:
				host.Unread = fmt.Sprintf("what pod %s needs cannot be read now: %v", user.Name, err)
				return host
			default:
				host.Pods = append(host.Pods, *pod)
			}
		}
	}
	return host
}
