package decide

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

const (
	// Patience is how long a claim waits for a cluster that stopped answering
	// before anything was asked of it.
	Patience = 30 * time.Second
	// slow is when a user is told that a backing claim is still not bound.
	slow = 20 * time.Second
	// overdue is when a user is told that the backing claim of a volume that exists
	// is still not bound. Its pod may first have to get there and be scheduled.
	overdue = 2 * time.Minute
)

func next(o Observation) Step {
	switch {
	case o.Volume != nil:
		return published(o)
	case o.HandedOut:
		return Step{Verb: Idle}
	case o.Claim == nil || o.Claim.DeletionTimestamp != nil || o.Claim.Spec.VolumeName != "":
		step := discard(o, func(Backing) bool { return true })
		step.Left = leftBehind(o)
		return step
	case o.Class == nil || !virtualclass.Is(o.Class):
		// The class may come back; what exists for the claim stays as it is.
		return Step{Verb: Idle}
	}
	if o.Claim.Annotations[keys.Import] != "" {
		// It gets a volume that exists, from kubectl lodestone.
		return Step{Verb: Idle, After: slow, Tell: later(o, o.Claim, note("WaitingForImport", fmt.Sprintf(
			"waiting for an import to give the claim its volume: run kubectl lodestone import again, or take annotation %s off to have a new volume", keys.Import)))}
	}
	class, err := virtualclass.Parse(o.Class)
	if err == nil {
		err = route.Validate(o.Claim)
	}
	if err != nil {
		return Step{Verb: Idle, Tell: warn("InvalidClaim", err.Error())}
	}
	// To Kubernetes even an empty annotation is a choice.
	if _, chosen := o.Claim.Annotations[keys.SelectedNode]; !chosen {
		return unscheduled(o, class)
	}
	return scheduled(o, class)
}

// unscheduled is the step for a claim that has no node. A backing claim made for
// an earlier choice goes, since the next choice may be another cluster.
func unscheduled(o Observation, class virtualclass.Class) Step {
	if step := discard(o, func(Backing) bool { return true }); step.Verb != Idle {
		return step
	}
	refusals := refusal.Decode(o.Claim.Annotations[keys.Refused])
	active := refusal.Active(refusals, o.Now)
	if o.Changed != "" || len(active) < len(refusals) {
		return Step{Verb: Wake, Cluster: keys.Home}
	}
	var after time.Duration
	for _, r := range active {
		if left := r.Until.Sub(o.Now); after == 0 || left < after {
			after = left
		}
	}
	step := located(o)
	step.After = after
	return measured(o, class, step)
}

// scheduled is the step for a claim with a selected node and no volume yet.
func scheduled(o Observation, class virtualclass.Class) Step {
	if o.Node == nil {
		name := o.Claim.Annotations[keys.SelectedNode]
		return giveUp(o, nil, warn("NodeGone", fmt.Sprintf("the selected node %q no longer exists: the scheduler chooses another", name)))
	}
	to, err := route.To(route.Input{
		Claim: o.Claim, Class: class, Node: o.Node, Namespace: o.Namespace,
		Cluster: func(id string) route.Cluster { return o.Cluster(id).Cluster },
	})
	id := locality.OfNode(o.Node.Labels)
	var refused *route.Refused
	var invalid *route.Invalid
	switch {
	case errors.As(err, &invalid):
		return Step{Verb: Idle, Tell: warn("InvalidClaim", invalid.Message)}
	case errors.As(err, &refused) && refused.Reason != route.NoRealClass:
		return giveUp(o, refusalOf(id, refused), nil)
	case id != keys.Home && !o.Cluster(id).Usable:
		// Before its classes count: an unreachable cluster shows none.
		return unusable(o, id)
	case refused != nil:
		return giveUp(o, refusalOf(id, refused), nil)
	}
	if sibling := refusedSibling(o, to); sibling != nil {
		return giveUp(o, nil, note("SiblingRefused", fmt.Sprintf("claim %q of the same pod was refused by %s: the scheduler chooses another place for all its claims", sibling.Name, where(to.Cluster))))
	}
	var obstacle *Obstacle
	to.FromSnapshot = o.Source != nil && o.Source.Snapshot != nil
	if to.Source, obstacle = CopyFrom(o.Claim, o.Source, to); complete(find(o, to.Cluster)) {
		obstacle = nil
	}
	if obstacle != nil && obstacle.Refusal != nil {
		return giveUp(o, obstacle.Refusal, nil)
	}
	// One claim, one backing claim: what an earlier choice left goes first.
	if step := discard(o, func(b Backing) bool {
		return b.Cluster != to.Cluster || stale(b.Claim, to, o.Cluster(to.Cluster).Offered) || (otherSource(b, to) || to.FromSnapshot && !complete(&b) && outdated(o)) && ignored(o, to) == nil
	}); step.Verb != Idle || step.Tell != nil {
		return step
	}
	if lacks := ignored(o, to); lacks != nil {
		return removed(o, lacks)
	}
	// Before an obstacle: a twin that nobody fills any more would hold the source of
	// the copy, which cannot go while somebody seems to copy it.
	if to.Cluster == keys.Home && to.Deferred() && isDropped(find(o, keys.Home)) {
		return dropped(o, to)
	}
	if obstacle != nil {
		return Step{Verb: Idle, Tell: obstacle.Tell}
	}
	if b := find(o, to.Cluster); o.Source != nil && handMade(b) {
		return Step{Verb: Idle, Tell: notACopy(*b)}
	}
	if step, wanted := stage(o, to); wanted {
		return step
	}
	return fill(o, class, to)
}

// stale says whether an unpublished twin was made for another node, or is being
// deleted by somebody.
func stale(b *corev1.PersistentVolumeClaim, to route.Route, offered []v1alpha1.OfferedClass) bool {
	selected := b.Annotations[keys.SelectedNode]
	return b.DeletionTimestamp != nil || b.Status.Phase == corev1.ClaimLost ||
		(to.Cluster == keys.Home && selected != "" && selected != to.Node) ||
		// A class that was corrected since, or that is gone, so that nobody would make
		// the volume; a default that changed is no reason.
		(backing.Unpublished(b) && b.Spec.StorageClassName != nil && *b.Spec.StorageClassName != to.Class.Name &&
			(to.Named || b.Status.Phase == corev1.ClaimPending && !offers(offered, *b.Spec.StorageClassName)))
}

func offers(classes []v1alpha1.OfferedClass, name string) bool {
	return slices.ContainsFunc(classes, func(c v1alpha1.OfferedClass) bool { return c.Name == name })
}

// fill creates the backing claim of a route, waits for it and publishes it.
func fill(o Observation, class virtualclass.Class, to route.Route) Step {
	have := find(o, to.Cluster)
	if have == nil {
		if mapped := o.Cluster(to.Cluster).Mapped; to.Cluster != keys.Home && mapped.Asked && !mapped.Given {
			return awaitNamespace(o, to.Cluster, mapped)
		}
		if to.Cluster != keys.Home && o.Claim.Annotations[keys.Routed] != to.Cluster {
			if beingWritten(o) {
				return Step{Verb: Idle}
			}
			return Step{Verb: Record, Cluster: keys.Home, Route: to}
		}
		return Step{Verb: Create, Cluster: to.Cluster, Route: to}
	}
	if !Ready(*have, to.Cluster, to.Deferred()) {
		return awaitBound(o, *have, to)
	}
	for _, sibling := range o.Siblings {
		if !sibling.Ready {
			return Step{Verb: Idle, After: slow, Tell: later(o, have.Claim, note("WaitingForSibling", fmt.Sprintf("waiting until claim %q of the same pod can be served too", sibling.Claim.Name)))}
		}
	}
	if class.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete && backing.Unpublished(have.Claim) {
		// A retained volume can be deleted without a word to us, so the record
		// must come first.
		return Step{Verb: Mark, Cluster: to.Cluster, Backing: *have}
	}
	return Step{Verb: Publish, Cluster: keys.Home, Route: to, Backing: *have}
}

// Ready says whether a backing claim can be published: it is bound to a real
// volume that is seen or, in a remote cluster, it was admitted and its class
// binds only when a pod there uses it, which no pod does before it is published.
func Ready(b Backing, cluster string, deferred bool) bool {
	if b.Claim.DeletionTimestamp != nil {
		return false
	}
	if b.Claim.Status.Phase == corev1.ClaimBound {
		return b.Volume != nil
	}
	return cluster != keys.Home && deferred && b.Claim.Status.Phase != corev1.ClaimLost
}

// later is m once a backing claim is old enough to be called slow.
func later(o Observation, b *corev1.PersistentVolumeClaim, m *Message) *Message {
	if o.Now.Sub(b.CreationTimestamp.Time) < slow {
		return nil
	}
	return m
}

func find(o Observation, cluster string) *Backing {
	for i := range o.Backings {
		if o.Backings[i].Cluster == cluster {
			return &o.Backings[i]
		}
	}
	return nil
}

// refusedSibling returns a claim of the same pod that the target refused: the
// pod can only run elsewhere, and there all its claims must go.
func refusedSibling(o Observation, to route.Route) *corev1.PersistentVolumeClaim {
	for _, sibling := range o.Siblings {
		if _, refused := refusal.Of(refusal.Decode(sibling.Claim.Annotations[keys.Refused]), to.Cluster, to.Node, o.Now); refused {
			return sibling.Claim
		}
	}
	return nil
}
