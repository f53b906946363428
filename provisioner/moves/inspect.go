// This file inspects a VolumeMove before it begins, in this order: the target, each claim
// with its source and target, the pods, and last a dry run. The result is the first record
// of the move. It is long because it is a list of checks.

package moves

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/nodeaccess"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/swap/plan"
	"github.com/lodestone-storage/lodestone/provisioner/witness"
)

// validity is for how long the keys of a move can be used; no move lasts longer.
const validity = 30 * 24 * time.Hour

// passes is how often the data is copied while the application runs, unless the VolumeMove
// says otherwise.
const passes = 3

// refusal is why a move never begins, in one sentence that says what to do.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// alreadyThere is the refusal for a claim whose data is at the target already.
type alreadyThere struct{ refusal }

// inspect finds out what a VolumeMove moves, from where and to where, and returns its first
// record: of a move that begins, or of one that is refused.
func (c *Controller) inspect(ctx context.Context, move *v1alpha1.VolumeMove) (*record.Record, error) {
	now := time.Now()
	r := &record.Record{
		UID: move.UID, Namespace: move.Namespace, Name: move.Name, Phase: v1alpha1.MovePrepare,
		Verify: move.Spec.Verify, Passes: ptr.Deref(move.Spec.Passes, passes), LongStop: move.Spec.Offline == v1alpha1.OfflineAllow,
		Began: map[v1alpha1.MovePhase]time.Time{v1alpha1.MovePrepare: now},
	}
	if decide.IsAborted(move) {
		r.Phase, r.Why, r.Cause = v1alpha1.MoveAborted, "the move was aborted before it began", record.Aborted
		r.Began[v1alpha1.MoveAborted] = now
		return r, nil
	}
	if limit := move.Spec.BandwidthLimit; limit != nil {
		r.Limit = limit.Value()
	}
	var stops []string
	var err error
	switch {
	case move.Spec.Adopt != "":
		err = c.fillAdoption(ctx, r, move)
	case move.Spec.Failover != nil:
		stops, err = c.fillFailover(ctx, r, move)
	default:
		stops, err = c.fillRecord(ctx, r, move)
	}
	if err == nil && !r.Fits() {
		err = refuse("more is to be remembered of these claims and their volumes than there is room for: move fewer claims at once, or take " +
			"annotations off their volumes")
	}
	if err == nil && move.Spec.DryRun {
		return c.dryRun(ctx, r, stops)
	}
	return refusedRecord(r, err)
}

// refusedRecord returns the record of a move that never begins because of a refusal; other
// errors are returned.
func refusedRecord(r *record.Record, err error) (*record.Record, error) {
	cause := record.Refused
	switch err.(type) { //nolint:errorlint // never wrapped
	case alreadyThere:
		cause = record.AlreadyThere
	case refusal:
	default:
		return r, err
	}
	// The text may come from a remote cluster.
	r.Phase, r.Why, r.Refused, r.Cause, r.Claims = v1alpha1.MoveFailed, steps.Brief(err.Error()), true, cause, nil
	r.Began[v1alpha1.MoveFailed] = r.Began[v1alpha1.MovePrepare]
	return r, nil
}

// fillRecord completes a record and returns the pods that the move would stop now.
func (c *Controller) fillRecord(ctx context.Context, r *record.Record, move *v1alpha1.VolumeMove) (stops []string, err error) {
	node, err := c.targetNode(move.Spec.Target)
	if err != nil {
		return nil, err
	}
	r.Target = v1alpha1.MovePlace{Cluster: locality.OfNode(node.Labels), Class: move.Spec.ClassName, Node: move.Spec.Target.Node}
	if r.Target.Cluster != keys.Home {
		r.Target.Node = ""
		if err := c.requireStarted(r.Target.Cluster); err != nil {
			return nil, err
		}
		if _, why := c.sites.Reach(r.Target.Cluster); why != "" {
			return nil, refuse("%s: wait until it is ready, and move again", why)
		}
	}
	var from *record.Record
	if move.Spec.Into != "" {
		if from, err = c.keeper(r, move); err != nil {
			return nil, err
		}
	}
	var there []alreadyThere
	for i, name := range move.Spec.Claims {
		known, err := c.inspectNamed(ctx, r, i, name, node, from)
		if at, is := err.(alreadyThere); is { //nolint:errorlint // never wrapped
			there = append(there, at)
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(there) > 0 {
			break
		}
		if err := requireOneSource(r.Claims, known); err != nil {
			return nil, err
		}
		r.Claims = append(r.Claims, *known)
	}
	if len(there) == len(move.Spec.Claims) {
		return nil, there[0]
	}
	if len(there) > 0 {
		return nil, there[0].refusal
	}
	if move.Spec.Rootless {
		if err := c.chooseUsers(ctx, r); err != nil {
			return nil, err
		}
	}
	if r.Target.Class == "" {
		r.Target.Class = r.Claims[0].Target.Class
	}
	if r.Group, err = c.inspectGroup(ctx, r); err != nil {
		return nil, err
	}
	return c.inspectPods(ctx, r)
}

// requireStarted is an error for a remote cluster that this process does not know yet: a move that
// waited for its turn while the provisioner was started anew is not refused for that.
func (c *Controller) requireStarted(cluster string) error {
	if cluster == keys.Home {
		return nil
	}
	known := c.Clusters.Get(cluster)
	if known != nil && known.Starting() || known == nil && c.Clusters.Object(cluster) != nil {
		return site.ErrUnreachable("cluster " + cluster + " is not known yet: it is being asked")
	}
	return nil
}

// targetNode returns a node that represents the target.
func (c *Controller) targetNode(target v1alpha1.MoveTarget) (*corev1.Node, error) {
	if target.Node != "" {
		node := c.Node(target.Node)
		if node == nil {
			return nil, refuse("there is no node %q: name one that exists, or a cluster", target.Node)
		}
		return node, nil
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	if target.Cluster != keys.Home {
		node.Name, node.Labels[keys.Cluster] = target.Cluster, target.Cluster
	}
	return node, nil
}

// inspectNamed inspects the claim with this name, the i-th of the move, and creates its
// keys. It goes into the copy that an earlier move keeps, if there is one.
func (c *Controller) inspectNamed(ctx context.Context, r *record.Record, i int, name string, node *corev1.Node,
	earlier *record.Record) (*record.Claim, error) {
	if wrong := validation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return nil, refuse("%q cannot be the name of a claim: %s", name, strings.Join(wrong, "; "))
	}
	claim, err := c.sites.Home().Claim(ctx, r.Namespace, name)
	switch {
	case err != nil:
		return nil, err
	case claim == nil:
		return nil, refuse("there is no claim %q in namespace %s: name claims that exist", name, r.Namespace)
	}
	known, err := c.inspectClaim(ctx, r, claim, node, earlier)
	if err != nil {
		return nil, err
	}
	if err := c.requireNewest(ctx, claim, known); err != nil {
		return nil, err
	}
	issued, err := moverapi.IssueKeys(r.KeysOf(i), r.Began[v1alpha1.MovePrepare], validity)
	if err != nil {
		return nil, err
	}
	known.Keys = issued
	known.Store, err = c.storeFor(ctx, r, i, known)
	return known, err
}

// inspectClaim inspects one claim and returns its part of the record.
func (c *Controller) inspectClaim(ctx context.Context, r *record.Record, claim *corev1.PersistentVolumeClaim,
	node *corev1.Node, earlier *record.Record) (*record.Claim, error) {
	volume, err := c.virtualVolume(ctx, claim)
	if err != nil {
		return nil, err
	}
	if err := requireMovable(claim, volume); err != nil {
		return nil, err
	}
	other := c.Records.blocking(r.UID, claim.UID)
	if other != nil && !isAtTarget(other.Phase) {
		return nil, busyWith(claim, other)
	}
	from, err := backing.RefOf(volume)
	if err != nil {
		return nil, refuse("volume %s of claim %q is not one that Lodestone made: %v", volume.Name, claim.Name, err)
	}
	source, err := c.inspectSource(ctx, claim, volume, from)
	var target *record.Copy
	var kept *record.Kept
	switch {
	case err != nil:
	case earlier != nil:
		target, kept, err = c.inspectKept(ctx, claim, volume, node, from, earlier)
	default:
		target, err = c.inspectTarget(ctx, r, claim, node, *source)
	}
	if _, there := err.(alreadyThere); other != nil && !there { //nolint:errorlint // never wrapped
		return nil, fmt.Errorf("VolumeMove %s has just moved claim %s: waiting until it lets go of its pods", other.Name, claim.Name)
	}
	if err != nil {
		return nil, err
	}
	known := &record.Claim{Name: claim.Name, UID: claim.UID, Volume: plan.Remembered(volume), Source: *source, Target: *target, Kept: kept,
		Offline: slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod)}
	if known.Offline {
		if known.Snapshot, known.NoSnapshot, err = c.inspectSnapshot(ctx, r, source); err != nil {
			return nil, err
		}
	}
	if kept == nil {
		known.Basis, err = c.inspectBasis(ctx, r, claim, node, target.Ref)
	}
	return known, err
}

// virtualVolume is the volume of a claim, nil if it has none; whether it is virtual is another question.
func (c *Controller) virtualVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if claim.Spec.VolumeName == "" {
		return nil, nil
	}
	return c.sites.Home().Volume(ctx, claim.Spec.VolumeName)
}

func busyWith(claim *corev1.PersistentVolumeClaim, other *record.Record) error {
	wayOut := fmt.Sprintf("or end it with kubectl lodestone move abort %s -n %s, and move again", other.Name, other.Namespace)
	if !record.Before(other.Phase, v1alpha1.MoveCommit) {
		wayOut = fmt.Sprintf("which kubectl lodestone move status %s -n %s shows, and move again", other.Name, other.Namespace)
	}
	return refuse("claim %q is being moved by VolumeMove %s (%s): wait until that has let go of it, %s", claim.Name, other.Name, other.Phase,
		wayOut)
}

// isAtTarget says whether the data of an unfinished move is at its target for good: moving
// it there again is a no-op, moving it elsewhere must wait for a few seconds.
func isAtTarget(phase v1alpha1.MovePhase) bool {
	return phase == v1alpha1.MoveRetain || phase == v1alpha1.MoveFinalize
}

// requireMovable returns why a claim itself cannot be moved.
func requireMovable(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	owner := metav1.GetControllerOf(claim)
	switch {
	case claim.DeletionTimestamp != nil:
		return refuse("claim %q is being deleted", claim.Name)
	case owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1":
		return refuse("claim %q belongs to pod %q (a generic ephemeral volume) and goes with it, so it cannot outlive a move: use a "+
			"claim of its own", claim.Name, owner.Name)
	case volume == nil || claim.Spec.VolumeName != volume.Name || volume.Annotations[keys.Backing] == "" || volume.Spec.ClaimRef == nil ||
		volume.Spec.ClaimRef.UID != claim.UID:
		return refuse("claim %q has no volume that Lodestone made: let a pod use it first, or copy its data to a claim of a virtual "+
			"storage class", claim.Name)
	case claim.Status.Phase != corev1.ClaimBound || volume.Status.Phase != corev1.VolumeBound || volume.DeletionTimestamp != nil:
		return refuse("claim %q is not bound to its volume: see its events, and move again when it is", claim.Name)
	case slices.ContainsFunc(volume.Finalizers, func(f string) bool { return !plan.IsOwnFinalizer(f) && !plan.IsAttacherFinalizer(f) }):
		return refuse("volume %s of claim %q has a finalizer of somebody else (%s), who would not learn of its successor: take it off, "+
			"and move again", volume.Name, claim.Name, strings.Join(volume.Finalizers, ", "))
	case volume.Annotations[keys.Healing] != "" || volume.Annotations[keys.Lost] != "":
		return refuse("volume %s of claim %q is being healed, or was declared lost: move again when that is over", volume.Name, claim.Name)
	}
	return nil
}

// inspectSource inspects the backing claim and real volume at the source.
func (c *Controller) inspectSource(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume,
	from backing.Ref) (*record.Copy, error) {
	if err := c.requireStarted(from.Cluster); err != nil {
		return nil, err
	}
	at, why := c.sites.Reach(from.Cluster)
	if why != "" {
		return nil, refuse("%s: the data of claim %q is there; move again when it answers", why, claim.Name)
	}
	if !at.Home && at.Remote == nil {
		return nil, refuse("cluster %s runs no remote agent, which makes the movers there: install deploy/remote in it, and move again",
			from.Cluster)
	}
	b, err := at.Claim(ctx, from.Namespace, from.Name)
	if err != nil {
		return nil, err
	}
	if b == nil || b.UID != from.UID || b.DeletionTimestamp != nil || b.Status.Phase != corev1.ClaimBound {
		return nil, refuse("real claim %s behind claim %q is not bound to a real volume: see its events in %s", from.Key(), claim.Name,
			from.Cluster)
	}
	if from.Cluster == keys.Home && backing.Misbound(volume, b) {
		return nil, refuse("real claim %s behind claim %q is bound to volume %s, and not to that of the claim: delete the claim and create it "+
			"anew", from.Key(), claim.Name, b.Spec.VolumeName)
	}
	if !backing.IsOf(b, claim.UID, c.Place.HomeID) {
		// As of a volume that was restored from a backup, which the claim may not have taken over. The source is deleted in the end.
		return nil, refuse("real claim %s behind claim %q is not its own (label %s there): see the events of the claim, and move again",
			from.Key(), claim.Name, keys.ClaimUID)
	}
	real, err := at.Volume(ctx, b.Spec.VolumeName)
	if err != nil {
		return nil, err
	}
	if real == nil {
		return nil, refuse("real volume %s of claim %q cannot be seen in %s: move again when it can", b.Spec.VolumeName, claim.Name, from.Cluster)
	}
	if err := requireAttachmentsReadable(ctx, at, from.Cluster); err != nil {
		return nil, err
	}
	copied := &record.Copy{Ref: from, Real: real.Name, Class: ptr.Deref(b.Spec.StorageClassName, "")}
	if at.Home {
		copied.Policy = real.Spec.PersistentVolumeReclaimPolicy
	}
	return copied, nil
}

// requireNewest refuses a claim of which newer data exists than what its volume stands for: a move would copy the older data over
// it. It also records the generation of the copy at the target.
func (c *Controller) requireNewest(ctx context.Context, claim *corev1.PersistentVolumeClaim, known *record.Claim) error {
	copies, _, err := c.copiesOf(ctx, claim, known.Volume)
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	standing := c.Place.Compare(known.Volume, key, claim.UID, copies)
	if standing.Behind() {
		return refuse("%s", standing.Describe(key))
	}
	known.Generation = standing.After()
	for _, b := range copies {
		// What an earlier home has written there is later in any case.
		known.Generation = max(known.Generation, backing.NextGeneration(backing.GenerationOf(b.Claim), backing.ReplacedBy(b.Claim)))
	}
	return nil
}

// requireAttachmentsReadable refuses a source if its attachments to nodes cannot be read.
func requireAttachmentsReadable(ctx context.Context, at site.Site, cluster string) error {
	if at.Home {
		return nil
	}
	_, err := at.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsForbidden(err):
		return refuse("cluster %s does not let this one see what volumes are attached to there: apply deploy/remote of this version in it, "+
			"and move again", cluster)
	case err != nil:
		return fmt.Errorf("list attachments in cluster %s: %w", cluster, err)
	}
	return nil
}

// inspectTarget inspects where the data is to go, as for a new claim there.
func (c *Controller) inspectTarget(ctx context.Context, r *record.Record, claim *corev1.PersistentVolumeClaim, node *corev1.Node,
	source record.Copy) (*record.Copy, error) {
	to, err := c.routeTo(claim, r.Target.Class, node)
	if err != nil {
		return nil, err
	}
	target := &record.Copy{Class: to.Class.Name, Node: r.Target.Node}
	if to.Cluster == source.Ref.Cluster && to.Class.Name == source.Class {
		if err := c.requireChange(ctx, r, claim, node, source); err != nil {
			return nil, err
		}
	}
	at, why := c.sites.Reach(to.Cluster)
	if why != "" {
		return nil, refuse("%s: wait until it is ready, and move again", why)
	}
	key, err := c.freeName(ctx, at, claim, to.Cluster)
	if err != nil {
		return nil, err
	}
	target.Ref = backing.Ref{Cluster: to.Cluster, Namespace: key.Namespace, Name: key.Name}
	return target, nil
}

// routeTo returns where a claim would go as a new one, to a real class if one is named.
func (c *Controller) routeTo(claim *corev1.PersistentVolumeClaim, real string, node *corev1.Node) (route.Route, error) {
	to, err := c.targets.Route(claim, real, node)
	if err != nil {
		return route.Route{}, refuse("%v", err)
	}
	return to, nil
}

// requireChange refuses a move within one class of one cluster that would change nothing:
// to no other node, or to a node to which the volume is already confined by its own
// affinity. A volume that can be used on all nodes may be copied for one of them.
func (c *Controller) requireChange(ctx context.Context, r *record.Record, claim *corev1.PersistentVolumeClaim, node *corev1.Node,
	source record.Copy) error {
	if r.Target.Node == "" {
		return alreadyThere{refusal(fmt.Sprintf("the data of claim %q is there already, in storage class %q: name another cluster, node or class",
			claim.Name, source.Class))}
	}
	real, err := c.sites.Home().Volume(ctx, source.Real)
	if err != nil {
		return err
	}
	if isConfinedTo(real, node) {
		return alreadyThere{refusal(fmt.Sprintf("the data of claim %q is on node %s already, in storage class %q: name another cluster, "+
			"node or class", claim.Name, node.Name, source.Class))}
	}
	return nil
}

// isConfinedTo says whether a real volume can be used on some nodes only, of which this is
// one.
func isConfinedTo(real *corev1.PersistentVolume, node *corev1.Node) bool {
	return nodeaccess.Confined(real) && nodeaccess.Allows(real, node)
}

// namespaceTimeout is how long a cluster may take to answer a request for a namespace.
const namespaceTimeout = time.Minute

// maxNames is how many names are tried for the backing claim at the target.
const maxNames = 32

// freeName returns an unused name for the backing claim at the target.
func (c *Controller) freeName(ctx context.Context, at site.Site, claim *corev1.PersistentVolumeClaim, cluster string) (types.NamespacedName,
	error) {
	if cluster == keys.Home {
		return firstFreeName(ctx, at, c.Place.StorageNamespace, claim, cluster)
	}
	key, err := c.defaultName(at, claim, cluster)
	if err != nil {
		return key, err
	}
	taken, err := at.Claim(ctx, key.Namespace, key.Name)
	if err != nil || taken == nil {
		return key, err
	}
	// A leftover, whoever's it is, or the claim's own data in another class. It stays.
	if !c.findsClaims(cluster) {
		return key, refuse("cluster %s has a claim %s already, and no virtual node of this version stands for it, whose pods alone could use "+
			"the data under another name: %s, and move again", cluster, key, adviceOnTakenName(taken, claim, c.Place.HomeID))
	}
	return firstFreeName(ctx, at, key.Namespace, claim, cluster)
}

// adviceOnTakenName says what to do about a name that is in use.
func adviceOnTakenName(taken, claim *corev1.PersistentVolumeClaim, homeID string) string {
	switch {
	case backing.IsOf(taken, claim.UID, homeID) && taken.Labels[keys.MoveOf] != "" && backing.Unpublished(taken):
		return "that is what a move of this claim has left which went back, so wait until it is removed"
	case backing.IsOf(taken, claim.UID, homeID) && taken.Labels[keys.MoveOf] != "":
		return fmt.Sprintf("that is the copy that an earlier move of this claim keeps, so remove it with kubectl lodestone move finalize "+
			"pvc/%s -n %s, or let a virtual node stand for the cluster", claim.Name, claim.Namespace)
	case backing.IsOf(taken, claim.UID, homeID):
		return "that is the data of this claim, so move it home first"
	}
	return "remove that claim there if its data is not needed"
}

// findsClaims says whether a home node represents a cluster whose virtual node gives pods
// there the claims that volumes name.
func (c *Controller) findsClaims(cluster string) bool {
	return slices.ContainsFunc(c.StandIns(cluster), func(n *corev1.Node) bool { return n.Labels[keys.Claims] == keys.ClaimsOfVolumes })
}

// firstFreeName returns the first unused one of the names for backing claims of moves.
func firstFreeName(ctx context.Context, at site.Site, namespace string, claim *corev1.PersistentVolumeClaim,
	cluster string) (types.NamespacedName, error) {
	for n := range maxNames {
		key := types.NamespacedName{Namespace: namespace, Name: backing.Moved(claim.UID, n+1)}
		taken, err := at.Claim(ctx, key.Namespace, key.Name)
		if err != nil || taken == nil {
			return key, err
		}
	}
	return types.NamespacedName{}, refuse("cluster %s has a claim under each of the names %s/%s to %s: remove there what is not needed, "+
		"and move again", cluster, namespace, backing.Moved(claim.UID, 1), backing.Moved(claim.UID, maxNames))
}

// defaultName returns the name that the backing claim of a new claim would have in a remote
// cluster.
func (c *Controller) defaultName(at site.Site, claim *corev1.PersistentVolumeClaim, cluster string) (types.NamespacedName, error) {
	remote, view := c.Clusters.Object(cluster), c.View(cluster, claim.Namespace)
	switch {
	case remote == nil:
		return types.NamespacedName{}, refuse("there is no RemoteCluster %s: create it again", cluster)
	case at.Remote == nil:
		return types.NamespacedName{}, refuse("cluster %s runs no remote agent, which makes the movers there: install deploy/remote in it, "+
			"and move again", cluster)
	case view.Mapped.Asked && !view.Mapped.Given && view.Mapped.Message == "" && time.Since(view.Mapped.Since) < namespaceTimeout:
		return types.NamespacedName{}, fmt.Errorf("cluster %s has not said yet whether it gives namespace %s a place", cluster, claim.Namespace)
	case view.Mapped.Asked && !view.Mapped.Given:
		return types.NamespacedName{}, refuse("cluster %s gives namespace %s no place yet: %s; move again when it does", cluster, claim.Namespace,
			view.Mapped.Message)
	}
	return c.Place.Of(cluster, remote.Spec.Namespaces.Strategy, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, claim.UID),
		nil
}

// inspectSnapshot finds out how a source can be copied that nothing can read beside its
// pod. why says why no snapshot can be used.
func (c *Controller) inspectSnapshot(ctx context.Context, r *record.Record, source *record.Copy) (s *record.Snapshot, why string,
	err error) {
	if r.Passes == 0 {
		return nil, "spec.passes is 0", nil
	}
	return c.snapshotOf(ctx, r.MoverName(len(r.Claims), record.Snapped), source)
}

// snapshotOf finds out which snapshot, of this name, can be taken of a source, so that a claim could be made of it. why says why
// none can.
func (c *Controller) snapshotOf(ctx context.Context, name string, source *record.Copy) (s *record.Snapshot, why string, err error) {
	if source.Class == "" {
		return nil, "its real claim has no storage class, which the claim made of a snapshot needs", nil
	}
	by, volume, why, err := frozen.Choose(ctx, c.sites, source.Ref, source.Real)
	if err != nil || why != "" {
		return nil, why, err
	}
	return &record.Snapshot{
		Copy: record.Copy{Ref: backing.Ref{Cluster: source.Ref.Cluster, Namespace: source.Ref.Namespace, Name: name}, Class: source.Class},
		By:   by, Driver: volume.Driver, Handle: volume.Handle,
	}, "", nil
}

// requireOneSource refuses a claim with its data in another cluster than the claims before
// it: a move has one source cluster, whose reachability decides about the move and which
// can be given up.
func requireOneSource(before []record.Claim, claim *record.Claim) error {
	if len(before) == 0 || before[0].Source.Ref.Cluster == claim.Source.Ref.Cluster {
		return nil
	}
	return refuse("the data of claim %q is in cluster %s and that of claim %q in cluster %s, and a move has one source: stop the pods that "+
		"use them, and move them one after another", before[0].Name, before[0].Source.Ref.Cluster, claim.Name, claim.Source.Ref.Cluster)
}

// inspectPods inspects the pods that use the claims, and returns those that must be
// stopped.
func (c *Controller) inspectPods(ctx context.Context, r *record.Record) (stops []string, err error) {
	pods, err := c.Client.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if finished(pod) || pod.DeletionTimestamp != nil || len(usedBy(pod, r)) == 0 {
			continue
		}
		if err := requireStoppable(r, pod); err != nil {
			return nil, err
		}
		if err := c.inspectPodCluster(r, pod); err != nil {
			return nil, err
		}
		if r.Failover == nil {
			// The other claims of the pod fail over after this one, or are lost.
			if err := c.inspectVolumes(ctx, r, pod); err != nil {
				return nil, err
			}
		}
		if pod.Spec.NodeName != "" {
			stops = append(stops, pod.Name)
		}
	}
	whole := slices.IndexFunc(r.Claims, func(known record.Claim) bool { return known.Offline && known.Snapshot == nil })
	if whole >= 0 && len(stops) > 0 && !r.LongStop {
		return nil, refuse("pod %q would stand still while all of claim %q is copied, which is ReadWriteOncePod, so that nothing can read it "+
			"beside a pod, and no snapshot of it can be copied, for %s: allow that with spec.offline Allow (--offline), or stop the pod, "+
			"and move again", stops[0], r.Claims[whole].Name, r.Claims[whole].NoSnapshot)
	}
	return stops, nil
}

// requireStoppable refuses a pod that nobody would make anew, or a Job.
func requireStoppable(r *record.Record, pod *corev1.Pod) error {
	if pod.Spec.NodeName != "" && metav1.GetControllerOf(pod) == nil {
		return refuse("pod %q uses the volume and nobody would make it anew once it is stopped: delete it first, and create it again "+
			"after the move has begun", pod.Name)
	}
	if job := jobOf(pod); pod.Spec.NodeName != "" && job != "" {
		return refuse("%s", decide.OfJob(r.Namespace, pod.Name, job))
	}
	return nil
}

// inspectPodCluster refuses a pod that uses a claim from another cluster than that of the
// data: there it could not be proven that it has stopped writing.
func (c *Controller) inspectPodCluster(r *record.Record, pod *corev1.Pod) error {
	node := c.Node(pod.Spec.NodeName)
	if node == nil {
		return nil
	}
	for i := range r.Claims {
		if at, data := locality.OfNode(node.Labels), r.Claims[i].Source.Ref.Cluster; witness.Uses(&pod.Spec, r.Claims[i].Name) && at != data {
			return refuse("pod %q uses claim %q from cluster %s, while its data is in %s: a volume that several clusters use cannot be moved; "+
				"stop that pod, and move again", pod.Name, r.Claims[i].Name, at, data)
		}
	}
	return nil
}

// inspectVolumes inspects the other claims of a pod: those with virtual volumes must be
// moved too, or the pod could run nowhere.
func (c *Controller) inspectVolumes(ctx context.Context, r *record.Record, pod *corev1.Pod) error {
	for _, volume := range pod.Spec.Volumes {
		if volume.Ephemeral != nil || volume.PersistentVolumeClaim == nil {
			continue
		}
		name := volume.PersistentVolumeClaim.ClaimName
		if slices.ContainsFunc(r.Claims, func(known record.Claim) bool { return known.Name == name }) {
			continue
		}
		claim, err := c.sites.Home().Claim(ctx, pod.Namespace, name)
		switch {
		case err != nil:
			return err
		case claim == nil:
			continue
		}
		if _, err := c.targets.ClassOf(claim); err == nil {
			return refuse("pod %q also uses claim %q, which is not part of this move: name both, for the pod can run only where all its volumes are",
				pod.Name, name)
		}
	}
	return nil
}

// dryRun ends the dry run of a move without an obstacle so far: it checks whether the
// target would accept the real claims, and describes what would happen.
func (c *Controller) dryRun(ctx context.Context, r *record.Record, stops []string) (*record.Record, error) {
	var goes, whole, snapped []string
	for i := range r.Claims {
		known := &r.Claims[i]
		if known.Kept == nil && !r.TakesSlots() {
			if err := c.askTarget(ctx, r, i); err != nil {
				return refusedRecord(r, err)
			}
		}
		through := ""
		if known.Store != nil {
			through = ", most content through " + known.Store.Describe()
		}
		known.Keys, known.Store = nil, nil
		switch {
		case known.Snapshot != nil:
			snapped = append(snapped, known.Name)
		case known.Offline:
			whole = append(whole, known.Name)
		}
		into := ""
		if known.Kept != nil {
			into = ", into the copy that VolumeMove " + known.Kept.Name + " keeps"
		}
		if r.TakesSlots() {
			into = ", as real claim " + known.Target.Ref.Key().String()
		}
		if known.Basis != nil {
			into = fmt.Sprintf(", beginning with version %s of VolumeReplica %s", known.Basis.Version, known.Basis.Replica)
		}
		goes = append(goes, fmt.Sprintf("claim %s from %s to %s%s", known.Name, whereIs(known.Source), whereIs(known.Target), into+through))
	}
	r.Phase = v1alpha1.MoveChecked
	r.Began[r.Phase] = r.Began[v1alpha1.MovePrepare]
	r.Why = "would move " + strings.Join(goes, ", ") + "; "
	until := "for the last changes"
	if len(whole) > 0 {
		until = "while all of ReadWriteOncePod claim " + strings.Join(whole, ", ") + " is copied"
	}
	if len(snapped) > 0 && len(stops) > 0 {
		one := "a snapshot"
		if r.Group != nil {
			one = "a snapshot, of all at one moment,"
		}
		r.Why += fmt.Sprintf("of ReadWriteOncePod claim %s %s would be copied before, and the volume read once in the stop; ",
			strings.Join(snapped, ", "), one)
	}
	switch len(stops) {
	case 0:
		r.Why += "no pod uses that now"
	case 1:
		r.Why += "pod " + stops[0] + " would be stopped " + until
	default:
		r.Why += "pods " + strings.Join(stops, ", ") + " would be stopped " + until
	}
	r.Why += "; what is in the volumes is looked at only by a move that has begun, "
	if len(whole) > 0 {
		r.Why += "in a ReadWriteOncePod claim once its pods are stopped"
	} else {
		r.Why += "before anything is stopped"
	}
	return r, nil
}

// askTarget asks the cluster of a target, with a dry-run request, whether it would admit
// the real claim. That is not possible while the namespace there does not exist.
func (c *Controller) askTarget(ctx context.Context, r *record.Record, i int) error {
	virtual, err := c.sites.Home().Claim(ctx, r.Namespace, r.Claims[i].Name)
	if err != nil {
		return err
	}
	if virtual == nil || virtual.UID != r.Claims[i].UID {
		return refuse("claim %q was deleted", r.Claims[i].Name)
	}
	at, err := c.sites.At(r.Claims[i].Target.Ref.Cluster)
	if err != nil {
		return err
	}
	wanted, err := c.targetClaim(ctx, at, r, i, virtual)
	if err != nil {
		return refuse("%v", err)
	}
	_, err = at.Client.CoreV1().PersistentVolumeClaims(wanted.Namespace).Create(ctx, wanted,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && r.Claims[i].Basis != nil:
		// It would be made empty then.
		r.Claims[i].Basis = nil
		return c.askTarget(ctx, r, i)
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsAlreadyExists(err):
		return refuse("%s would not take real claim %s: %s", r.Claims[i].Target.Ref.Cluster, r.Claims[i].Target.Ref.Key(), plain(err.Error()))
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("ask whether %s would take real claim %s: %w", r.Claims[i].Target.Ref.Cluster, r.Claims[i].Target.Ref.Key(), err)
	}
	return nil
}

// whereIs describes where a copy is: class, cluster and node.
func whereIs(copied record.Copy) string {
	text := "class " + copied.Class + " in " + copied.Ref.Cluster
	if copied.Node != "" {
		text += " on node " + copied.Node
	}
	return text
}

// storeFor returns the repository through which the content of the claim at an index is
// transferred: that of the target's RemoteCluster, else that of the source's; nil if
// neither has one. Within one cluster movers reach each other directly. For a block volume
// only differences are transferred, which restic cannot do.
func (c *Controller) storeFor(ctx context.Context, r *record.Record, i int, known *record.Claim) (*record.Store, error) {
	if known.Source.Ref.Cluster == known.Target.Ref.Cluster || movers.IsBlock(known.Volume) {
		return nil, nil
	}
	for _, cluster := range []string{known.Target.Ref.Cluster, known.Source.Ref.Cluster} {
		remote := c.Clusters.Object(cluster)
		if remote == nil || remote.Spec.MoveRepository == nil {
			continue
		}
		var repository *moverapi.Repository
		var err error
		if claim := remote.Spec.MoveRepository.ClaimName; claim != "" {
			repository, err = c.repositoryOfClaim(ctx, cluster, claim, known)
		} else {
			repository, err = c.repositoryOfSecret(ctx, cluster, remote.Spec.MoveRepository.SecretName)
		}
		if err != nil {
			return nil, err
		}
		return &record.Store{Cluster: cluster, Ticket: repository.For(r.KeysOf(i), rand.Text())}, nil
	}
	return nil, nil
}

// repositoryOfSecret reads the Secret of an object store.
func (c *Controller) repositoryOfSecret(ctx context.Context, cluster, name string) (*moverapi.Repository, error) {
	secret, err := c.Client.CoreV1().Secrets(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse("RemoteCluster %s has the content of moves travel through an object store (spec.moveRepository), and there is no "+
			"Secret %s/%s that says which: create it, or take the field out, and move again",
			cluster, c.Namespace, name)
	case err != nil:
		return nil, fmt.Errorf("read the Secret of the object store for moves: %w", err)
	}
	repository, err := moverapi.ParseRepository(secret.Data)
	if err != nil {
		return nil, refuse("Secret %s/%s, which RemoteCluster %s names for the content of moves (spec.moveRepository), cannot be used: %v; "+
			"mend it, and move again", c.Namespace, name, cluster, err)
	}
	return repository, nil
}

// repositoryOfClaim checks the claims of this name that the movers of both ends would
// mount. Whether they lead to the same storage is tested by the movers.
func (c *Controller) repositoryOfClaim(ctx context.Context, cluster, name string, known *record.Claim) (*moverapi.Repository, error) {
	for _, end := range []record.End{record.Source, record.Target} {
		ref := known.At(end).Ref
		at, why := c.sites.Reach(ref.Cluster)
		if why != "" {
			return nil, refuse("%s: wait until it is ready, and move again", why)
		}
		claim, err := at.Claim(ctx, ref.Namespace, name)
		if err != nil {
			return nil, err
		}
		if wrong := whyUnusableRepository(claim); wrong != "" {
			return nil, refuse("RemoteCluster %s has the content of moves travel through a claim (spec.moveRepository), and claim %s/%s in "+
				"cluster %s %s, and move again", cluster, ref.Namespace, name, ref.Cluster, wrong)
		}
	}
	return &moverapi.Repository{Claim: name}, nil
}

// whyUnusableRepository says, as the end of a sentence, why movers cannot use a claim as a
// repository and what to do; empty if they can.
func whyUnusableRepository(claim *corev1.PersistentVolumeClaim) string {
	switch {
	case claim == nil:
		return "does not exist: create it, or take the field out"
	case claim.Labels[keys.ClaimUID] != "" || claim.Labels[keys.MoveOf] != "" || backing.Protected(claim):
		return "holds the data of somebody's volume: name one that holds nothing else"
	case claim.DeletionTimestamp != nil:
		return "is being deleted: create it again once it is gone"
	case ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeFilesystem:
		return "is a block device: name one with a file system"
	case !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany):
		return "is not ReadWriteMany, so that movers on several nodes could not use it: name one that is"
	case claim.Status.Phase != corev1.ClaimBound:
		return "is not bound to a volume: see its events, wait until it is"
	}
	return ""
}
