package moves

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// validity is how long the keys of a move can be used; no move lasts longer.
const validity = 30 * 24 * time.Hour

// passes is how often the data is copied while the application runs where the
// VolumeMove does not say.
const passes = 3

// refusal is why a move never begins, in one sentence that says what to do.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// already is why a claim is not moved whose data is where it is to go.
type already struct{ refusal }

// inspect finds out what a VolumeMove moves, and where from and to, and returns its
// first record: of a move that begins, or of one that is refused.
func (c *Controller) inspect(ctx context.Context, move *v1alpha1.VolumeMove) (*record.Record, error) {
	now := time.Now()
	r := &record.Record{
		UID: move.UID, Namespace: move.Namespace, Name: move.Name, Phase: v1alpha1.MovePrepare,
		Verify: move.Spec.Verify, Passes: ptr.Deref(move.Spec.Passes, passes), LongStop: move.Spec.Offline == v1alpha1.OfflineAllow,
		Began: map[v1alpha1.MovePhase]time.Time{v1alpha1.MovePrepare: now},
	}
	if limit := move.Spec.BandwidthLimit; limit != nil {
		r.Limit = limit.Value()
	}
	stops, err := c.fill(ctx, r, move)
	if err == nil && !r.Fits() {
		err = refuse("more is to be remembered of these claims and their volumes than there is room for: move fewer claims at once, or take annotations off their volumes")
	}
	if err == nil && move.Spec.DryRun {
		return c.check(ctx, r, stops)
	}
	return judged(r, err)
}

// judged turns a refusal into the record of a move that never begins.
func judged(r *record.Record, err error) (*record.Record, error) {
	cause := record.Refused
	switch err.(type) { //nolint:errorlint // never wrapped
	case already:
		cause = record.AlreadyThere
	case refusal:
	default:
		return r, err
	}
	r.Phase, r.Why, r.Refused, r.Cause, r.Claims = v1alpha1.MoveFailed, err.Error(), true, cause, nil
	r.Began[v1alpha1.MoveFailed] = r.Began[v1alpha1.MovePrepare]
	return r, nil
}

// fill completes a record, and returns the pods that the move would stop now.
func (c *Controller) fill(ctx context.Context, r *record.Record, move *v1alpha1.VolumeMove) (stops []string, err error) {
	node, err := c.targetNode(move.Spec.Target)
	if err != nil {
		return nil, err
	}
	r.Target = v1alpha1.MovePlace{Cluster: locality.OfNode(node.Labels), Class: move.Spec.ClassName, Node: move.Spec.Target.Node}
	if r.Target.Cluster != keys.Home {
		r.Target.Node = ""
		if _, why := c.reach(r.Target.Cluster); why != "" {
			return nil, refuse("%s: wait until it is ready, and move again", why)
		}
	}
	var there []already
	for i, name := range move.Spec.Claims {
		known, err := c.inspectNamed(ctx, r, i, name, node)
		if at, is := err.(already); is { //nolint:errorlint // never wrapped
			there = append(there, at)
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(there) > 0 {
			break
		}
		if err := oneSource(r.Claims, known); err != nil {
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
	if r.Target.Class == "" {
		r.Target.Class = r.Claims[0].Target.Class
	}
	return c.inspectPods(ctx, r)
}

func (c *Controller) here() site { at, _ := c.reach(keys.Home); return at }

// targetNode returns a node that stands for the target.
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

// movable says what about a claim itself forbids a move.
func movable(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	owner := metav1.GetControllerOf(claim)
	switch {
	case claim.DeletionTimestamp != nil:
		return refuse("claim %q is being deleted", claim.Name)
	case owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1":
		return refuse("claim %q belongs to pod %q (a generic ephemeral volume) and goes with it, so it cannot outlive a move: use a claim of its own", claim.Name, owner.Name)
	case volume == nil || claim.Spec.VolumeName != volume.Name || volume.Annotations[keys.Backing] == "" || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID:
		return refuse("claim %q has no volume that Lodestone made: let a pod use it first, or copy its data to a claim of a virtual storage class", claim.Name)
	case claim.Status.Phase != corev1.ClaimBound || volume.Status.Phase != corev1.VolumeBound || volume.DeletionTimestamp != nil:
		return refuse("claim %q is not bound to its volume: see its events, and move again when it is", claim.Name)
	case slices.ContainsFunc(volume.Finalizers, func(f string) bool { return !record.Ours(f) && !record.Attacher(f) }):
		return refuse("volume %s of claim %q has a finalizer of somebody else (%s), who would not learn of its successor: take it off, and move again",
			volume.Name, claim.Name, strings.Join(volume.Finalizers, ", "))
	case volume.Annotations[keys.Healing] != "" || volume.Annotations[keys.Lost] != "":
		return refuse("volume %s of claim %q is being healed, or was declared lost: move again when that is over", volume.Name, claim.Name)
	}
	return nil
}

// seesAttachments refuses a source of which it could not be told whether it is attached
// to a node.
func seesAttachments(ctx context.Context, at site, cluster string) error {
	if at.home {
		return nil
	}
	_, err := at.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsForbidden(err):
		return refuse("cluster %s does not let this one see what volumes are attached to there: apply deploy/remote of this version in it, and move again", cluster)
	case err != nil:
		return fmt.Errorf("list attachments in cluster %s: %w", cluster, err)
	}
	return nil
}

// inspectSource judges where the data is.
func (c *Controller) inspectSource(ctx context.Context, claim *corev1.PersistentVolumeClaim, from backing.Ref) (*record.Copy, error) {
	at, why := c.reach(from.Cluster)
	if why != "" {
		return nil, refuse("%s: the data of claim %q is there; move again when it answers", why, claim.Name)
	}
	if !at.home && at.Remote == nil {
		return nil, refuse("cluster %s runs no remote agent, which makes the movers there: install deploy/remote in it, and move again", from.Cluster)
	}
	b, err := claimAt(ctx, at, from.Namespace, from.Name)
	if err != nil {
		return nil, err
	}
	if b == nil || b.UID != from.UID || b.DeletionTimestamp != nil || b.Status.Phase != corev1.ClaimBound {
		return nil, refuse("real claim %s behind claim %q is not bound to a real volume: see its events in %s", from.Key(), claim.Name, from.Cluster)
	}
	real, err := volumeAt(ctx, at, b.Spec.VolumeName)
	if err != nil {
		return nil, err
	}
	if real == nil {
		return nil, refuse("real volume %s of claim %q cannot be seen in %s: move again when it can", b.Spec.VolumeName, claim.Name, from.Cluster)
	}
	if err := seesAttachments(ctx, at, from.Cluster); err != nil {
		return nil, err
	}
	copied := &record.Copy{Ref: from, Real: real.Name, Class: ptr.Deref(b.Spec.StorageClassName, "")}
	if at.home {
		copied.Policy = real.Spec.PersistentVolumeReclaimPolicy
	}
	return copied, nil
}
