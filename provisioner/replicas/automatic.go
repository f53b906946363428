package replicas

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
)

const (
	// lookEvery is how often claims are looked at that are to fail over by themselves: how long a cluster is silent changes by the clock
	// alone.
	lookEvery = 2 * time.Second
	// mostFailovers is how many claims fail over by themselves at once, so that the cluster that takes them is not asked for all of them
	// in one moment.
	mostFailovers = 8
	// takenUp is how long a VolumeMove counts as running before it is seen to hold its claim.
	takenUp = 30 * time.Second
)

// automatic has claims fail over by themselves. Only the goroutine that runs it uses it.
type automatic struct {
	*Controller
	// silent is since when this process has seen a cluster not answer, without a break. The times have a monotonic reading: a clock that
	// is set makes no outage longer.
	silent map[string]time.Time
	known  map[types.UID]*attempts
}

// attempts is what is remembered of a replica.
type attempts struct {
	// said is what the last event said, tried the name of the last VolumeMove that was made, and at when.
	said, tried string
	at          time.Time
}

// failover is one that is due, and what is said of it.
type failover struct {
	move *v1alpha1.VolumeMove
	why  string
}

// run works until ctx ends.
func (a *automatic) run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			a.look(ctx)
		}
	}
}

// look begins the failovers that are due.
func (a *automatic) look(ctx context.Context) {
	replicas := slices.DeleteFunc(controller.All[v1alpha1.VolumeReplica](a.Objects), func(r *v1alpha1.VolumeReplica) bool {
		return r.Spec.AutomaticFailover == nil
	})
	if len(replicas) == 0 {
		clear(a.silent)
		clear(a.known)
		return
	}
	answering := a.noteSilent()
	running := 0
	due := map[*v1alpha1.VolumeReplica]failover{}
	there := map[types.UID]bool{}
	for _, replica := range replicas {
		there[replica.UID] = true
		seen := a.known[replica.UID]
		if seen == nil {
			seen = &attempts{}
			a.known[replica.UID] = seen
		}
		o := a.outage(replica, seen, answering)
		if o.Moving || seen.tried != "" && o.Now.Sub(seen.at) < takenUp {
			running++
		}
		move, why := o.FailsOver()
		if move != nil {
			due[replica] = failover{move, why}
			continue
		}
		a.tell(seen, replica, "NotFailedOver", why)
	}
	for uid := range a.known {
		if !there[uid] {
			delete(a.known, uid)
		}
	}
	for replica, next := range due {
		if running >= mostFailovers {
			return
		}
		running++
		a.begin(ctx, replica, next)
	}
}

// noteSilent notes which remote clusters do not answer, and returns those that can be used.
func (a *automatic) noteSilent() (answering []string) {
	for _, id := range a.Clusters.IDs() {
		cluster := a.Clusters.Get(id)
		switch {
		case cluster == nil || !cluster.Silent():
			delete(a.silent, id)
		case a.silent[id].IsZero():
			a.silent[id] = time.Now()
		}
		if _, why := a.sites.Reach(id); why == "" {
			answering = append(answering, id)
		}
	}
	slices.Sort(answering)
	return answering
}

// outage observes what decides whether a claim fails over. All of it is from caches: what may do harm is asked for again by the failover.
func (a *automatic) outage(replica *v1alpha1.VolumeReplica, seen *attempts, answering []string) decide.Outage {
	o := decide.Outage{Replica: replica, Now: time.Now(), Record: a.Records.all()[replica.UID]}
	if o.Record == nil {
		return o
	}
	o.Claim = controller.Get[corev1.PersistentVolumeClaim](a.Sources.Claims, replica.Namespace+"/"+o.Record.Claim)
	if o.Claim != nil {
		if volume := controller.Get[corev1.PersistentVolume](a.Sources.Volumes, o.Claim.Spec.VolumeName); volume != nil {
			o.At = volume.Labels[keys.Cluster]
		}
	}
	o.Moving = a.Moving(o.Record.ClaimUID)
	if newest := o.Record.Newest(); newest != nil {
		o.Tried = seen.tried == decide.FailoverName(newest)
	}
	if began := a.silent[o.At]; !began.IsZero() {
		o.Silent, o.Since = o.Now.Sub(began), began
		if object := a.Clusters.Object(o.At); object != nil {
			// The process may be younger than the outage.
			if c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.Reachable); c != nil && c.Status == metav1.ConditionFalse &&
				c.LastTransitionTime.Time.Before(o.Since) {
				o.Since = c.LastTransitionTime.Time
			}
		}
	}
	if _, why := a.sites.Reach(o.Record.Head.Cluster); why != "" {
		o.StandbyAway = why
	}
	if i := slices.IndexFunc(answering, func(id string) bool { return id != o.At }); i >= 0 {
		o.Witness = answering[i]
	}
	return o
}

// begin makes the VolumeMove of a failover, once for a version.
func (a *automatic) begin(ctx context.Context, replica *v1alpha1.VolumeReplica, next failover) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	seen := a.known[replica.UID]
	_, err := a.Replicas.In(replica.Namespace).Create(ctx, next.move, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		a.tell(seen, replica, "NotFailedOver", plain(fmt.Sprintf("VolumeMove %s cannot be made: %v", next.move.Name, err)))
		return
	}
	seen.tried, seen.at = next.move.Name, time.Now()
	if err == nil {
		a.tell(seen, replica, "FailsOver", next.why)
	}
}

// tell writes an event on a replica, once for each sentence.
func (a *automatic) tell(seen *attempts, replica *v1alpha1.VolumeReplica, reason, say string) {
	if say == seen.said {
		return
	}
	seen.said = say
	if say == "" {
		return
	}
	a.Recorder.Event(&corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "VolumeReplica", Namespace: replica.Namespace, Name: replica.Name, UID: replica.UID,
	}, corev1.EventTypeWarning, reason, say)
}
