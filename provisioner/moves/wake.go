package moves

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// wakePause gathers the events about a move whose pods are not stopped for it.
const wakePause = 250 * time.Millisecond

// watchObjects has moves observed when their objects at home change: the pods that use their
// claims, their movers, their claims and real claims.
func (c *Controller) watchObjects() (unwatch []func() error, err error) {
	pods, err := controller.Watch(c.Pods, func(was, now *home.Pod) { c.podChanged(controller.Either(was, now)) })
	if err != nil {
		return nil, err
	}
	claims, err := controller.Watch(c.Claims, func(was, now *corev1.PersistentVolumeClaim) { c.claimChanged(controller.Either(was, now)) })
	return []func() error{pods, claims}, err
}

func (c *Controller) podChanged(pod *home.Pod) {
	if len(pod.Claims) == 0 {
		return
	}
	c.wake(func(r *record.Record) bool {
		return slices.ContainsFunc(r.Claims, func(known record.Claim) bool { return slices.Contains(pod.Claims, r.Namespace+"/"+known.Name) }) ||
			pod.Namespace == c.Place.StorageNamespace && strings.HasPrefix(pod.Name, record.SecretName(r.UID)+"-")
	})
}

func (c *Controller) claimChanged(claim *corev1.PersistentVolumeClaim) {
	move := types.UID(claim.Labels[keys.MoveOf])
	c.wake(func(r *record.Record) bool {
		return r.UID == move || slices.ContainsFunc(r.Claims, func(known record.Claim) bool { return known.UID == claim.UID })
	})
}

// ClusterChanged has the moves observed that have a copy in a cluster whose state has changed.
func (c *Controller) ClusterChanged(cluster string, _ bool) {
	c.wake(func(r *record.Record) bool {
		return slices.ContainsFunc(r.Claims, func(known record.Claim) bool {
			return known.Source.Ref.Cluster == cluster || known.Target.Ref.Cluster == cluster
		})
	})
}

// wake queues the unfinished moves for which about is true.
func (c *Controller) wake(about func(*record.Record) bool) {
	for _, r := range c.Records.those(about) {
		key := moveKey{types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, r.UID}
		if !r.Down.IsZero() && r.Up.IsZero() {
			c.queue.Add(key)
		} else {
			c.queue.AddAfter(key, wakePause)
		}
	}
}
