// Package decide has the decisions about virtual claims as pure functions: the observation
// of one claim goes in, the one next step comes out. Every step leads towards the wanted
// state and is safe to repeat, so a process that is stopped between two steps resumes by
// observing again.
//
// What goes in and comes out is package steps, where the backing claim goes is package route.
// Next is the entry point: start with this file (claims without a volume, and at its end when one is
// made before the twin is bound), then published.go (claims with one).
package decide

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// Next returns the next step for a claim. It is a pure function of the observation.
func Next(o steps.Observation) steps.Step {
	if o.Moving {
		// Keep the last known state until the move has ended.
		return steps.Step{Unknown: true}
	}
	return tellAgain(removeUnusedStandIn(o, nextStep(o)))
}

// Patience is how long a claim waits for a cluster that stopped answering before any
// request was sent to it.
const Patience = 30 * time.Second

func nextStep(o steps.Observation) steps.Step {
	switch {
	case o.Volume != nil:
		return published(o)
	case o.HandedOut:
		return steps.Step{}
	case o.Claim == nil || o.Claim.DeletionTimestamp != nil || o.Claim.Spec.VolumeName != "":
		step := discard(o, func(steps.Backing) bool { return true })
		step.Left = leftBehind(o)
		return step
	case o.Class == nil || !virtualclass.Is(o.Class):
		// The class may come back; keep what exists for the claim.
		return steps.Step{}
	}
	if o.Claim.Annotations[keys.Import] != "" {
		// kubectl lodestone import will bind it to an existing volume.
		return steps.Step{After: steps.Slow, Tell: steps.IfSlow(o, o.Claim, steps.Note("WaitingForImport", fmt.Sprintf(
			"waiting for an import to give the claim its volume: run kubectl lodestone import again, or take annotation %s off to have a new volume",
			keys.Import)))}
	}
	class, err := virtualclass.Parse(o.Class)
	if err == nil {
		err = route.ValidateClaim(o.Claim)
	}
	if err != nil {
		return steps.Step{Tell: steps.Warn("InvalidClaim", err.Error())}
	}
	// Kubernetes treats even an empty annotation as a selected node.
	if _, chosen := o.Claim.Annotations[keys.SelectedNode]; !chosen {
		return unscheduled(o, class)
	}
	return scheduled(o, class)
}

// unscheduled is the step for a claim without a selected node. A backing claim for an
// earlier choice is deleted, since the next choice may be another cluster.
func unscheduled(o steps.Observation, class virtualclass.Class) steps.Step {
	if step := discard(o, func(steps.Backing) bool { return true }); step.Action != nil {
		return step
	}
	refusals := locality.DecodeRefusals(o.Claim.Annotations[keys.Refused])
	active := locality.ActiveRefusals(refusals, o.Now)
	if o.Changed != "" || len(active) < len(refusals) {
		return steps.Step{Action: steps.RequeuePods{}}
	}
	var after time.Duration
	for _, r := range active {
		if left := r.Until.Sub(o.Now); after == 0 || left < after {
			after = left
		}
	}
	step := recordSource(o)
	step.After = steps.Sooner(step.After, after)
	return tooLarge(o, class, step)
}

// scheduled is the step for a claim with a selected node and no volume yet.
func scheduled(o steps.Observation, class virtualclass.Class) steps.Step {
	if o.Node == nil {
		name := o.Claim.Annotations[keys.SelectedNode]
		return giveUp(o, nil, steps.Warn("NodeGone", fmt.Sprintf("the selected node %q no longer exists: the scheduler chooses another", name)))
	}
	to, err := route.To(route.Input{
		Claim: o.Claim, Class: class, Node: o.Node, Namespace: o.Namespace,
		Cluster: func(id string) route.ClusterClasses { return o.Cluster(id).ClusterClasses },
	})
	id := locality.OfNode(o.Node.Labels)
	var refused *route.Refused
	var invalid *route.Invalid
	switch {
	case errors.As(err, &invalid):
		return steps.Step{Tell: steps.Warn("InvalidClaim", invalid.Message)}
	case errors.As(err, &refused) && refused.Reason != route.NoRealClass:
		return giveUp(o, refusalOf(id, refused), nil)
	case id != keys.Home && !o.Cluster(id).Usable:
		// Check this before the classes: an unreachable cluster shows none.
		return unusable(o, id)
	case refused != nil:
		return giveUp(o, refusalOf(id, refused), nil)
	}
	if sibling := refusedSibling(o, to); sibling != nil {
		return giveUp(o, nil,
			steps.Note("SiblingRefused", fmt.Sprintf("claim %q of the same pod was refused by %s: the scheduler chooses another place for all "+
				"its claims", sibling.Name, steps.Where(to.Cluster))))
	}
	if unnamed(o) && len(o.Backings) == 0 {
		return recordSource(o)
	}
	var obstacle *Obstacle
	to.FromSnapshot = o.Source != nil && (o.Source.Snapshot != nil || o.Source.Version != nil)
	if to.Source, obstacle = CopyFrom(o.Claim, o.Source, to); complete(o.BackingIn(to.Cluster)) {
		obstacle = nil
	}
	if obstacle != nil && obstacle.Refusal != nil {
		return giveUp(o, obstacle.Refusal, nil)
	}
	// A claim has one backing claim: delete first what an earlier choice left.
	if step := discard(o, func(b steps.Backing) bool {
		return b.Cluster != to.Cluster || stale(b.Claim, to, o.Cluster(to.Cluster).Offered) ||
			(otherSource(b, to) || to.FromSnapshot && !complete(&b) && standInOutdated(o)) && sourceDropped(o, to) == nil
	}); step.Action != nil || step.Tell != nil {
		return step
	}
	if lacks := sourceDropped(o, to); lacks != nil {
		return removed(o, lacks)
	}
	// Do this before reporting an obstacle: a backing claim that no provisioner fills any
	// more protects the source of the copy, which cannot be deleted while a claim seems to
	// copy it.
	if to.Cluster == keys.Home && to.Deferred() && isDropped(o.BackingIn(keys.Home), to) {
		return dropped(o, to)
	}
	if obstacle != nil {
		step := steps.Step{Tell: obstacle.Tell}
		if o.Source.Version != nil {
			step.After = lookAgain(o)
		}
		return step
	}
	if b := o.BackingIn(to.Cluster); o.Source != nil && handMade(b) {
		return steps.Step{Tell: notACopy(*b)}
	}
	if step, wanted := standInStep(o, to); wanted {
		return step
	}
	return createOrPublish(o, class, to)
}

// stale says whether an unpublished backing claim at home was created for another node, or
// is being deleted by somebody.
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

// createOrPublish creates the backing claim of a route, waits for it and publishes it.
func createOrPublish(o steps.Observation, class virtualclass.Class, to route.Route) steps.Step {
	have := o.BackingIn(to.Cluster)
	if have == nil {
		if mapped := o.Cluster(to.Cluster).Mapped; to.Cluster != keys.Home && mapped.Asked && !mapped.Given {
			return awaitNamespace(o, to.Cluster, mapped)
		}
		if to.Cluster != keys.Home && o.Claim.Annotations[keys.Routed] != to.Cluster {
			if beingWritten(o) {
				return steps.Step{}
			}
			return steps.Step{Action: steps.RecordCluster{To: to.Cluster}}
		}
		return steps.Step{Action: steps.CreateBacking{Route: to}}
	}
	if !Ready(*have, to) {
		return awaitBound(o, *have, to)
	}
	for _, sibling := range o.Siblings {
		if !sibling.Ready {
			return steps.Step{After: steps.Slow,
				Tell: steps.IfSlow(o, have.Claim,
					steps.Note("WaitingForSibling", fmt.Sprintf("waiting until claim %q of the same pod can be served too", sibling.Claim.Name)))}
		}
	}
	if class.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete && backing.Unpublished(have.Claim) {
		if to.Cluster == keys.Home && !complete(have) {
			// The mark that goes here says that a twin is not settled yet.
			return awaitBound(o, *have, to)
		}
		// A retained volume can be deleted without an event for us, so record it first.
		return steps.Step{Action: steps.MarkPublished{Backing: *have}}
	}
	publish := *have
	if to.Cluster == keys.Home {
		publish.Volume = realOf(publish)
	}
	return steps.Step{Action: steps.CreateVolume{Route: to, Backing: publish}}
}

// Ready says whether a backing claim can be published: it is bound to a real volume in the
// cache, or its binding is certain. A shadow was admitted, and its class binds only when a pod
// there uses it, which happens only after publishing.
func Ready(b steps.Backing, to route.Route) bool {
	switch {
	case b.Claim.DeletionTimestamp != nil || b.Claim.Status.Phase == corev1.ClaimLost:
		return false
	case b.Claim.Status.Phase == corev1.ClaimBound:
		return b.Volume != nil
	case to.Cluster == keys.Home:
		return promised(b, to)
	}
	return to.Deferred()
}

// refusedSibling returns a claim of the same pod that the target cluster or node refused:
// the pod can only run elsewhere, so all its claims must go there.
func refusedSibling(o steps.Observation, to route.Route) *corev1.PersistentVolumeClaim {
	for _, sibling := range o.Siblings {
		refusals := locality.DecodeRefusals(sibling.Claim.Annotations[keys.Refused])
		if _, refused := locality.RefusalOf(refusals, to.Cluster, to.Node, o.Now); refused {
			return sibling.Claim
		}
	}
	return nil
}

// discard returns the step that deletes one of the matching backing claims that were never
// published; idle if none is left. A published one stays: it may have data.
func discard(o steps.Observation, match func(steps.Backing) bool) steps.Step {
	for _, b := range o.Backings {
		if !match(b) {
			continue
		}
		if !backing.Unpublished(b.Claim) || used(b) {
			if o.Claim == nil || o.Claim.Spec.VolumeName != "" {
				continue
			}
			return steps.Step{Tell: steps.Warn("BackingHasData", fmt.Sprintf(
				"real claim %s/%s in %s was this claim's volume and may hold data: make the pod run in that cluster, or delete this claim "+
					"to start anew", b.Claim.Namespace, b.Claim.Name, steps.Where(b.Cluster)))}
		}
		if b.Cluster != keys.Home && !o.Cluster(b.Cluster).Usable {
			return cannotReach(o, b.Cluster)
		}
		return steps.Step{Action: steps.RemoveBacking{Backing: b}}
	}
	if o.Claim == nil || o.Unsent {
		return steps.Step{}
	}
	// The annotation says that a backing claim may exist although none is in the cache.
	if id := o.Claim.Annotations[keys.Routed]; id != "" && o.BackingIn(id) == nil && o.Volume == nil {
		cluster := o.Cluster(id)
		if cluster.Known && !cluster.Seen && match(steps.Backing{Cluster: id, Claim: o.Claim}) {
			return cannotReach(o, id)
		}
	}
	return steps.Step{}
}

// used says whether a pod uses or used a remote backing claim: a node is selected there
// only for a pod. Then it was published, whatever its annotation says: home may have been
// restored from a backup.
func used(b steps.Backing) bool {
	return b.Cluster != keys.Home && b.Claim.Annotations[keys.SelectedNode] != ""
}

func cannotReach(o steps.Observation, id string) steps.Step {
	cluster := o.Cluster(id)
	text := fmt.Sprintf("waiting for cluster %s, which may hold a backing claim of this claim", id)
	switch {
	case cluster.Usable:
		text += ": " + unreadable(cluster.Mapped)
	case cluster.Message != "":
		text += ": " + cluster.Message
	}
	return steps.Step{After: steps.Slow, Tell: steps.Warn("ClusterNotUsable", text)}
}

// unreadable says why the backing claims of a namespace are not known.
func unreadable(mapped steps.Mapped) string {
	switch {
	case mapped.Message != "":
		return "it gives the claim's namespace no place: " + mapped.Message
	case mapped.Asked:
		return "backing claims in its namespace cannot be read yet; if this lasts, look at the NamespaceRequest there"
	}
	return "backing claims in its namespace cannot be read yet; if this lasts, bind the rights of deploy/remote-volumes there"
}

// giveUp removes the selected node from the claim once no backing claim is left.
func giveUp(o steps.Observation, refused *steps.Refusal, tell *steps.Message) steps.Step {
	if step := discard(o, func(steps.Backing) bool { return true }); step.Action != nil || step.Tell != nil {
		return step
	}
	if beingWritten(o) {
		return steps.Step{}
	}
	if tell == nil {
		tell = steps.Warn(refused.Reason, refused.Message)
	}
	return steps.Step{Action: steps.Reschedule{Refusal: refused}, Tell: tell}
}

// beingWritten says whether kube-controller-manager is about to write the claim, as it does
// once after the first selection of a node: if we wrote before, its write would fail with a
// warning event for the user.
func beingWritten(o steps.Observation) bool {
	return o.Claim.Annotations[keys.StorageProvisioner] == ""
}

// isDropped says whether the real provisioner removed the selected node from a backing
// claim at home whose class binds only with one.
func isDropped(b *steps.Backing, to route.Route) bool {
	return b != nil && !Ready(*b, to) && b.Claim.Annotations[keys.SelectedNode] == ""
}

// dropped is the step for a backing claim at home whose selected node the real provisioner
// removed.
func dropped(o steps.Observation, to route.Route) steps.Step {
	return removed(o, &steps.Refusal{Cluster: keys.Home, Node: to.Node, Reason: "NoCapacity",
		Message: fmt.Sprintf("real storage class %q cannot make the volume for node %q: free some space there or let the pod run elsewhere",
			to.Class.Name, to.Node)})
}

// removed is the step for a refusal that only the backing claim shows: deletion and refusal
// are one step. If they were two, the claim would get the same backing claim again in
// between.
func removed(o steps.Observation, refused *steps.Refusal) steps.Step {
	if beingWritten(o) {
		return steps.Step{}
	}
	step := discard(o, func(steps.Backing) bool { return true })
	if remove, ok := step.Action.(steps.RemoveBacking); ok {
		remove.Refusal = refused
		step.Action, step.Tell = remove, steps.Warn(refused.Reason, refused.Message)
	}
	return step
}

func refusalOf(cluster string, r *route.Refused) *steps.Refusal {
	return &steps.Refusal{Cluster: cluster, Node: r.Node, Reason: r.Reason, Message: r.Message}
}

// unusable is the step for a claim whose selected node represents a cluster to which no
// requests may be sent. If no request for the claim was sent there, the claim waits for
// Patience and then goes elsewhere; otherwise a backing claim may exist there and no second
// one may be created.
func unusable(o steps.Observation, id string) steps.Step {
	if o.Claim.Annotations[keys.Routed] == id && !o.Unsent {
		return cannotReach(o, id)
	}
	cluster := o.Cluster(id)
	text := fmt.Sprintf("cluster %s cannot be used now", id)
	if cluster.Message != "" {
		text += ": " + cluster.Message
	}
	if left := Patience - o.Now.Sub(cluster.Since); left > 0 {
		return steps.Step{After: left + time.Millisecond, Tell: steps.Warn("ClusterNotUsable", text)}
	}
	return giveUp(o, &steps.Refusal{Cluster: id, Reason: "ClusterNotUsable", Message: text + "; the scheduler chooses another place"}, nil)
}

// namespaceSlow is how long the user gets no event while a namespace is being created.
const namespaceSlow = 3 * time.Second

// Reasons why a cluster was refused for lack of its namespace.
const (
	namespaceRefused = "NamespaceRefused"
	namespaceNotMade = "NamespaceNotMade"
)

// Outlived says whether the cause of a refusal is gone before its period ends: the cluster
// has granted the namespace since.
func Outlived(o steps.Observation, r locality.Refusal) bool {
	return (r.Reason == namespaceRefused || r.Reason == namespaceNotMade) && o.Cluster(r.Cluster).Mapped.Given
}

// awaitNamespace is the step for a claim whose backing claim needs a namespace that the
// cluster has not granted yet. If the cluster refuses it, or does not answer for a while,
// the claim goes elsewhere.
func awaitNamespace(o steps.Observation, id string, mapped steps.Mapped) steps.Step {
	if mapped.Reason != "" {
		return giveUp(o, &steps.Refusal{Cluster: id, Reason: namespaceRefused, Message: fmt.Sprintf(
			"cluster %s gives namespace %q no place: %s", id, o.Claim.Namespace, mapped.Message)}, nil)
	}
	waited := o.Now.Sub(mapped.Since)
	switch {
	case waited >= Patience && mapped.Message != "":
		return giveUp(o, &steps.Refusal{Cluster: id, Reason: namespaceNotMade, Message: fmt.Sprintf(
			"cluster %s has no namespace for %q yet: %s", id, o.Claim.Namespace, mapped.Message)}, nil)
	case waited >= Patience:
		return giveUp(o, &steps.Refusal{Cluster: id, Reason: namespaceNotMade, Message: fmt.Sprintf(
			"cluster %s does not answer the request for namespace %q: let its administrator see whether the remote agent runs there (namespace "+
				"lodestone-remote)", id, o.Claim.Namespace)}, nil)
	}
	step := steps.Step{After: namespaceSlow - waited}
	if waited >= namespaceSlow {
		step.After = Patience - waited + time.Millisecond
		text := fmt.Sprintf("waiting until cluster %s has made the namespace that belongs to %q", id, o.Claim.Namespace)
		if mapped.Message != "" {
			text += ": " + mapped.Message
		}
		step.Tell = steps.Note("WaitingForNamespace", text)
	}
	return step
}

// tooLarge adds to the step of a claim without a node that no cluster that it may use has
// room for it: kube-scheduler reports that on the pod only, and not how much room there is.
// It is reported only if the room of every such cluster is known.
func tooLarge(o steps.Observation, class virtualclass.Class, step steps.Step) steps.Step {
	if step.Action != nil || step.Tell != nil {
		return step
	}
	at, largest := "", resource.Quantity{}
	for _, id := range slices.Sorted(maps.Keys(o.Places)) {
		limit := o.Places[id]
		switch {
		case !class.Allows(id), id != keys.Home && !remotecluster.MayUse(o.Namespace, id):
			continue
		case limit == nil:
			return step
		case at == "" || limit.Cmp(largest) > 0:
			at, largest = id, *limit
		}
	}
	if at == "" {
		return step
	}
	// The room changes without an event for this claim.
	step.After = steps.Sooner(step.After, steps.TroubleAgain)
	asked := requested(o.Claim)
	if asked.Cmp(largest) <= 0 {
		return step
	}
	if left := readEventsAfter - o.Now.Sub(o.Claim.CreationTimestamp.Time); left > 0 {
		step.After = steps.Sooner(step.After, left+time.Millisecond)
		return step
	}
	step.Tell = steps.Warn("TooLarge", fmt.Sprintf("the claim asks for %s, and no cluster that it may go to has room for a volume of that "+
		"size: the most is %s, in %s; ask for less, or have room made", asked.String(), roundedDown(largest), steps.Where(at)))
	return step
}

// roundedDown formats a size in bytes for people, rounded down.
func roundedDown(size resource.Quantity) string {
	for _, unit := range []int64{1 << 30, 1 << 20} {
		if size.Value() >= 10*unit {
			return resource.NewQuantity(size.Value()/unit*unit, resource.BinarySI).String()
		}
	}
	return size.String()
}

// The volume that a real provisioner makes for a twin names the twin from the start, and then
// kube-controller-manager binds the twin to it. The virtual volume is made of it meanwhile. The
// annotation that marks the twin as unpublished stays until the twin is bound: while the virtual
// volume exists, it says that nobody has seen yet to which volume.

// promised says whether a twin that is not bound yet will be bound to the real volume that was made
// for it. Its class must bind late: kube-controller-manager gives a claim of such a class no volume but
// one that names it, and the one that fits is taken. Of another class it may choose any that is free.
func promised(b steps.Backing, to route.Route) bool {
	claim, real := b.Claim, realOf(b)
	if real == nil || real.Spec.ClaimRef == nil || !to.Deferred() || to.Class.Provisioner == "" || className(claim) != to.Class.Name ||
		!backing.Unpublished(claim) || backing.CopyOf(claim) != "" {
		return false
	}
	have, want := real.Spec.Capacity[corev1.ResourceStorage], requested(claim)
	lacks := func(mode corev1.PersistentVolumeAccessMode) bool {
		return !slices.Contains(real.Spec.AccessModes, mode)
	}
	of := real.Spec.ClaimRef
	return of.UID == claim.UID && of.Namespace == claim.Namespace && of.Name == claim.Name &&
		real.DeletionTimestamp == nil && real.Status.Phase != corev1.VolumeReleased && real.Status.Phase != corev1.VolumeFailed &&
		real.Annotations[provisionedBy] == to.Class.Provisioner &&
		real.Spec.StorageClassName == to.Class.Name &&
		ptr.Deref(real.Spec.VolumeAttributesClassName, "") == backing.Attributes(claim) &&
		ptr.Deref(real.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == mode(claim) &&
		have.Cmp(want) >= 0 && !slices.ContainsFunc(claim.Spec.AccessModes, lacks)
}

// realOf is the real volume of a twin: the one that it is bound to, or the one that was made for it.
func realOf(b steps.Backing) *corev1.PersistentVolume { return cmp.Or(b.Volume, b.Made) }

// unsettled says whether a virtual volume at home was made before its twin was bound, and the twin is
// not bound to the same real volume.
func unsettled(o steps.Observation, ref backing.Ref, b steps.Backing) bool {
	return ref.Cluster == keys.Home && backing.Unpublished(b.Claim) &&
		(b.Claim.Status.Phase == corev1.ClaimPending || backing.Misbound(o.Volume, b.Claim))
}

// backingMisbound is the reason of a claim whose twin was bound to another real volume than its virtual
// volume was made of.
const backingMisbound = "BackingMisbound"

// settle waits until a twin is bound. If it is bound to another volume, new pods of the claim wait: the
// one that they would use may be deleted, since nothing is bound to it.
func settle(o steps.Observation, ref backing.Ref, b steps.Backing) steps.Step {
	if !backing.Misbound(o.Volume, b.Claim) {
		return pending(o, ref, b)
	}
	step := steps.ShownAsTold(steps.Step{Trouble: backingMisbound, Tell: steps.Warn(backingMisbound, fmt.Sprintf(
		"real claim %s in %s was bound to volume %q, but this claim's volume is %q, which may be deleted now: new pods wait; save what "+
			"running pods have written, then delete this claim and create it anew",
		ref.Key(), steps.Where(ref.Cluster), b.Claim.Spec.VolumeName, o.Volume.Annotations[keys.BackingVolume]))})
	if o.Claim == nil || o.Claim.DeletionTimestamp != nil || o.Claim.Spec.VolumeName != o.Volume.Name {
		return step
	}
	return lock(o, step)
}
