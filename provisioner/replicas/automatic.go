package replicas

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
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
	// begun are the failovers that were made, by claim: of two copies of a claim one alone is failed over to.
	begun map[types.UID]begun
	// probes is what other clusters say of those, by the name of the one that says it.
	probes map[string]*probing
}

// attempts is what is remembered of a replica.
type attempts struct {
	// said is what the last event said.
	said string
	// runnable is whether the standby could run the pods.
	runnable runnableNow
}

// begun is the last VolumeMove that was made for a claim, when, and for which replica.
type begun struct {
	move    string
	at      time.Time
	replica types.UID
}

// failover is one that is due, and what is said of it.
type failover struct {
	decide.Outage
	seen *attempts
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

// look begins the failovers that are due. While every cluster answers it remembers nothing: a VolumeMove that was made before is found
// by its name.
func (a *automatic) look(ctx context.Context) {
	answering := a.noteSilent()
	if len(a.silent) == 0 {
		clear(a.known)
		clear(a.begun)
		clear(a.probes)
		return
	}
	a.askProbes(ctx, answering)
	a.lookThrough(ctx, answering)
}

// lookThrough looks at all replicas whose claims are to fail over by themselves. What it remembers of others it forgets.
func (a *automatic) lookThrough(ctx context.Context, answering []string) {
	running, records := 0, a.Records.all()
	var due []failover
	known, begunNow := map[types.UID]*attempts{}, map[types.UID]begun{}
	for replica := range controller.Each[v1alpha1.VolumeReplica](a.Objects) {
		if replica.Spec.AutomaticFailover == nil {
			continue
		}
		seen := a.known[replica.UID]
		if seen == nil {
			seen = &attempts{}
		}
		known[replica.UID] = seen
		o := a.outage(replica, records[replica.UID], answering)
		a.stillBegun(o, begunNow)
		if o.Moving {
			running++
		}
		if move, why := a.choose(ctx, seen, o); move != nil {
			due = append(due, failover{o, seen, move, why})
		} else {
			a.tell(seen, replica, "NotFailedOver", why)
		}
	}
	a.known, a.begun = known, begunNow
	due = decide.Freshest(due, func(next failover) decide.Outage { return next.Outage })
	for _, next := range due[:min(len(due), max(0, mostFailovers-running))] {
		a.begin(ctx, next)
	}
}

// stillBegun notes what was begun for the claims of a replica whose cluster does not answer. Once it does that is of an earlier outage, and
// another cluster may be silent for ever.
func (a *automatic) stillBegun(o decide.Outage, begunNow map[types.UID]begun) {
	if o.Record == nil || o.At != "" && o.Silent <= 0 {
		return
	}
	for _, claim := range o.Record.ClaimUIDs() {
		if last, ok := a.begun[claim]; ok {
			begunNow[claim] = last
		}
	}
}

// choose returns the failover that is to begin; nil: none, and why not.
func (a *automatic) choose(ctx context.Context, seen *attempts, o decide.Outage) (move *v1alpha1.VolumeMove, why string) {
	if move, why = o.FailsOver(); move == nil {
		return nil, why
	}
	// Asked last, for it takes requests.
	o.Runnable = seen.runnable.of(ctx, a.Controller, o.Record)
	silence, err := a.Clusters.Silence(ctx, o.At)
	if err != nil {
		return nil, plain(fmt.Sprintf("it is not known how cluster %s is fenced, which is tried again: %v", o.At, err))
	}
	o.Promised = silence.IsPromised()
	return o.FailsOver()
}

// noteSilent notes which remote clusters do not answer, and returns those that can be used.
func (a *automatic) noteSilent() (answering []string) {
	maps.DeleteFunc(a.silent, func(id string, _ time.Time) bool { return a.Clusters.Get(id) == nil })
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

// seenOf returns what is known of a claim, and where its data is, from caches.
func (c *Controller) seenOf(namespace, name string) (seen decide.AffectedClaim) {
	seen.Claim = controller.Get[corev1.PersistentVolumeClaim](c.Sources.Claims, namespace+"/"+name)
	if seen.Claim != nil {
		if volume := controller.Get[corev1.PersistentVolume](c.Sources.Volumes, seen.Claim.Spec.VolumeName); volume != nil {
			seen.At = volume.Labels[keys.Cluster]
		}
	}
	return seen
}

// outage observes what decides whether a claim fails over. All of it is from caches: what may do harm is asked for again by the failover.
func (a *automatic) outage(replica *v1alpha1.VolumeReplica, r *record.Record, answering []string) decide.Outage {
	o := decide.Outage{Replica: replica, Now: time.Now(), Record: r}
	if r == nil {
		return o
	}
	for i := range r.Len() {
		part := r.At(i)
		o.Claims = append(o.Claims, a.seenOf(replica.Namespace, part.Claim))
		last := a.begun[part.ClaimUID]
		o.Moving = o.Moving || a.Moving(part.ClaimUID) || last.move != "" && o.Now.Sub(last.at) < takenUp
		switch newest := r.Newest(); {
		case last.move != "" && last.replica != replica.UID:
			o.Other = last.move
		case newest != nil:
			o.Tried = o.Tried || last.move == decide.FailoverName(newest)
		}
	}
	o.At = o.Claims[0].At
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
	if _, why := a.sites.Reach(r.Head.Cluster); why != "" {
		o.StandbyAway = why
	}
	o.Probes = a.probesOf(o.At, answering, o.Now)
	if i := slices.IndexFunc(answering, func(id string) bool { return id != o.At }); i >= 0 {
		o.Witness = answering[i]
	}
	return o
}

// begin makes the VolumeMove of a failover, once for a version.
func (a *automatic) begin(ctx context.Context, next failover) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_, err := a.Replicas.In(next.move.Namespace).Create(ctx, next.move, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		a.tell(next.seen, next.Replica, "NotFailedOver", plain(fmt.Sprintf("VolumeMove %s cannot be made, which is tried again: %v",
			next.move.Name, err)))
		return
	}
	for i := range next.Record.Len() {
		a.begun[next.Record.At(i).ClaimUID] = begun{next.move.Name, time.Now(), next.Replica.UID}
	}
	if err == nil {
		a.tell(next.seen, next.Replica, "FailsOver", next.why)
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
	a.Recorder.Event(referenceTo(replica), corev1.EventTypeWarning, reason, say)
}
