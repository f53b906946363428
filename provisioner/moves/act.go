package moves

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/copying"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/swap"
	"github.com/lodestone-storage/lodestone/provisioner/swap/plan"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// act takes all actions of a step, and returns the verb of the first that failed.
func (c *Controller) act(ctx context.Context, w *activeMove, o steps.Observation, step steps.Step) (failed string, err error) {
	for _, one := range step.Each() {
		if one.Action != nil {
			on := one.Subject()
			klog.FromContext(ctx).V(3).Info("Taking step", "step", one.Verb(), "claim", on.Claim, "end", on.End, "say", one.Say)
		}
		if this := c.take(ctx, w, o, one.Action); this != nil && err == nil {
			failed, err = one.Verb(), this
		}
	}
	return failed, err
}

// take takes an action. It need not know whether a failed request took effect: the next
// observation shows it.
func (c *Controller) take(ctx context.Context, w *activeMove, o steps.Observation, action steps.Action) error {
	r := o.Record
	switch a := action.(type) {
	case nil:
		return nil
	case steps.Adopt:
		return c.patchMove(ctx, o.Move, map[string]any{"finalizers": append(slices.Clone(o.Move.Finalizers), keys.MoveFinalizer),
			"resourceVersion": o.Move.ResourceVersion})
	case steps.Leave:
		return c.patchMove(ctx, o.Move, map[string]any{"finalizers": withoutMoveFinalizer(o.Move.Finalizers),
			"resourceVersion": o.Move.ResourceVersion})
	case steps.Inspect:
		first, err := c.inspect(ctx, o.Move)
		if err != nil {
			return err
		}
		return c.saveRecord(ctx, w, first)
	case steps.Save:
		return c.saveRecord(ctx, w, a.Record)
	case steps.DeleteMove:
		err := c.Moves.In(w.Namespace).Delete(ctx, w.Name, only(w.uid))
		return site.IgnoreGone(err, "delete VolumeMove")
	case steps.Forget:
		w.record = nil
		return c.forget(ctx, w.uid)
	case steps.HoldClaim:
		claim := o.Claims[a.Claim].Claim
		return c.patchClaim(ctx, claim, map[string]any{"finalizers": append(slices.Clone(claim.Finalizers), keys.MoveFinalizer)})
	case steps.Lock:
		return c.patchClaim(ctx, o.Claims[a.Claim].Claim, map[string]any{"annotations": map[string]any{keys.Move: r.UID},
			"labels": map[string]any{keys.Moving: keys.MovingNow}})
	case steps.Unlock:
		claim := o.Claims[a.Claim].Claim
		if a.StaysLocked {
			return c.patchClaim(ctx, claim, map[string]any{"finalizers": withoutMoveFinalizer(claim.Finalizers),
				"annotations": map[string]any{keys.MoveTouched: nil}})
		}
		return c.patchClaim(ctx, claim, unlocked(claim))
	case steps.Touch:
		return c.patchClaim(ctx, o.Claims[a.Claim].Claim, map[string]any{"annotations": swap.TouchOf(a.Text, a.Unbind)})
	case steps.Keep:
		return c.setReclaimPolicy(ctx, o.Claims[a.Claim].Source.Real, corev1.PersistentVolumeReclaimRetain)
	case steps.Restore:
		return c.setReclaimPolicy(ctx, o.Claims[a.Claim].At(a.End).Real, r.Claims[a.Claim].At(a.End).Policy)
	case steps.MakeTarget:
		return w.noteNoBasis(r, a.Claim, c.makeTarget(ctx, r, a.Claim, o.Claims[a.Claim]))
	case steps.TakeKept:
		return c.takeKept(ctx, o, a)
	case steps.TakeSlot:
		return c.takeSlot(ctx, o, a)
	case steps.ReturnSlot:
		return c.returnSlot(ctx, o, a)
	case steps.Publish:
		return c.publishBacking(ctx, o, a)
	case steps.Shelve:
		return c.shelveBacking(ctx, o, a)
	case steps.DropBacking:
		return c.dropBacking(ctx, o, a)
	case steps.MakeSnapshot:
		return w.noteRefusal(a.Claim, c.makeSnapshot(ctx, r, a.Claim))
	case steps.MakeClone:
		return w.noteRefusal(a.Claim, c.makeClone(ctx, r, a.Claim, o.Claims[a.Claim]))
	case steps.DropClone:
		return c.dropClone(ctx, r, a.Claim, o.Claims[a.Claim].Snapshot)
	case steps.DropSnapshot:
		return c.dropSnapshot(ctx, r, a.Claim, o.Claims[a.Claim].Snapshot)
	case steps.MakeGroup:
		why, err := frozen.RefusalOf(c.makeGroup(ctx, r))
		w.refusedGroup = why
		return err
	case steps.DropGroup:
		return c.dropGroup(ctx, r, o.Group)
	case steps.Unlabel:
		return c.unlabelSource(ctx, r, a.Claim)
	case steps.EnsureMover:
		return c.ensureMover(ctx, r, a)
	case steps.StartMover:
		return c.copier.Start(ctx, c.moverOf(r, a.Claim, a.End))
	case steps.GiveKeys:
		return c.copier.GiveKeys(ctx, c.moverOf(r, a.Claim, a.End))
	case steps.DropMover:
		c.reportMoverEnded(o, a.Claim, a.End)
		return c.copier.Drop(ctx, c.moverOf(r, a.Claim, a.End))
	case steps.Start:
		client, err := c.copier.Client(w.claim(a.Claim).link, c.moverOf(r, a.Claim, decide.ReadEnd(o, a.Claim)),
			r.Claims[a.Claim].Keys[moverapi.Controller])
		if err == nil {
			_, err = client.Start(ctx, a.Task, waitForTask(r))
		}
		return err
	case steps.DeletePod:
		options := only(a.Pod.UID)
		if a.Pod.Hasty {
			// With a grace period of zero the pod would be gone before its node has ended
			// it.
			options.GracePeriodSeconds = ptr.To(int64(1))
		}
		err := c.Client.CoreV1().Pods(r.Namespace).Delete(ctx, a.Pod.Name, options)
		return site.IgnoreGone(err, "delete pod "+a.Pod.Name)
	case steps.ReleasePod:
		return c.releasePod(ctx, r.Namespace, a.Pod)
	case steps.Ungate:
		return copying.OpenGate(ctx, c.Client, r.Namespace, a.Pod.Name, a.Pod.UID)
	case steps.DeleteVolume:
		if r.Phase != v1alpha1.MoveFence {
			return fmt.Errorf("a volume is deleted in phase %s only", v1alpha1.MoveFence)
		}
		return swap.Delete(ctx, c.Client, o.Claims[a.Claim].Volume, record.SecretName(r.UID))
	case steps.FreeVolume:
		return swap.Free(ctx, c.Client, o.Claims[a.Claim].Volume)
	case steps.MakeVolume:
		return swap.Make(ctx, c.Client, a.Volume)
	}
	return fmt.Errorf("nobody takes action %T", action)
}

// releasePod gives up a pod that is being deleted: nobody waits any more for its end to be seen.
func (c *Controller) releasePod(ctx context.Context, namespace string, pod steps.Pod) error {
	pods := c.Client.CoreV1().Pods(namespace)
	_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, pod.UID, keys.RemotePodFinalizer), metav1.PatchOptions{})
	if err := site.IgnoreGone(err, "give up pod "+pod.Name); err != nil {
		return err
	}
	options := only(pod.UID)
	options.GracePeriodSeconds = ptr.To(int64(0))
	return site.IgnoreGone(pods.Delete(ctx, pod.Name, options), "give up pod "+pod.Name)
}

// taskSoon is for how long a step that has started a task waits for its end while pods stand still, for all claims together: what
// changed last is mostly little, and copied sooner than it would be looked at again.
const taskSoon = 500 * time.Millisecond

func waitForTask(r *record.Record) time.Duration {
	if !isStopped(r) {
		return 0
	}
	return taskSoon / time.Duration(len(r.Claims))
}

// saveRecord writes the record: the first one after an inspection, or one changed by a
// decision.
func (c *Controller) saveRecord(ctx context.Context, w *activeMove, next *record.Record) error {
	written, err := c.write(ctx, w.record, next)
	if err != nil {
		w.record = nil
		return err
	}
	var before *record.Record
	if w.record != nil {
		before = w.record.record
		gone := proof.Forgotten(before.Known, next.Known)
		c.witness.Memory.Forget(gone)
		w.watchers.Forget(gone)
	}
	c.Metrics.recordWritten(before, next)
	w.record = written
	return nil
}

// only returns the options to delete the object with this UID; another one of the same name
// stays.
func only(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
}

func withoutMoveFinalizer(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == keys.MoveFinalizer })
}

// patchMove changes metadata of the VolumeMove with this UID.
func (c *Controller) patchMove(ctx context.Context, move *v1alpha1.VolumeMove, metadata map[string]any) error {
	metadata["uid"] = move.UID
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := c.Moves.In(move.Namespace).Patch(ctx, move.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("patch VolumeMove %s/%s: %w", move.Namespace, move.Name, err)
	}
	return nil
}

// patchClaim changes metadata of a virtual claim, if its resource version is unchanged.
func (c *Controller) patchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, metadata map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = claim.UID, claim.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	return site.IgnoreGone(err, "write claim "+claim.Name)
}

// setReclaimPolicy sets the reclaim policy of a real volume at home, if its resource
// version is unchanged.
func (c *Controller) setReclaimPolicy(ctx context.Context, real *corev1.PersistentVolume,
	policy corev1.PersistentVolumeReclaimPolicy) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": real.UID, "resourceVersion": real.ResourceVersion},
		"spec":     map[string]any{"persistentVolumeReclaimPolicy": policy},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := c.Client.CoreV1().PersistentVolumes().Patch(ctx, real.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("give volume %s the reclaim policy %s: %w", real.Name, policy, err)
	}
	return nil
}

// makeTarget creates the backing claim at the target. Its marks reserve it for this move
// until it is published.
func (c *Controller) makeTarget(ctx context.Context, r *record.Record, i int, seen steps.Claim) error {
	ref := r.Claims[i].Target.Ref
	at, err := c.sites.At(ref.Cluster)
	if err != nil {
		return err
	}
	b, err := c.targetClaim(ctx, at, r, i, seen.Claim)
	if err != nil {
		return err
	}
	if !at.Home {
		if err := c.Clusters.Get(ref.Cluster).RecordNamespace(ctx, ref.Namespace); err != nil {
			return err
		}
	}
	if _, err := at.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Create(ctx, b, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make real claim %s at the target: %w", ref.Key(), err)
	}
	return nil
}

// targetClaim builds the backing claim of a virtual claim at the target.
func (c *Controller) targetClaim(ctx context.Context, at site.Site, r *record.Record, i int,
	virtual *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	ref := r.Claims[i].Target.Ref
	to := route.Route{Cluster: ref.Cluster, Node: r.Claims[i].Target.Node}
	for _, class := range c.View(ref.Cluster, r.Namespace).Offered {
		if class.Name == r.Claims[i].Target.Class {
			to.Class = class
		}
	}
	if to.Class.Name == "" {
		return nil, fmt.Errorf("storage class %s is gone at the target: create it again, or abort the move", r.Claims[i].Target.Class)
	}
	claim := virtual.DeepCopy()
	claim.Spec.DataSource, claim.Spec.DataSourceRef = nil, nil
	b := route.BackingClaim(claim, to, ref.Key(), c.Place.HomeID)
	b.Labels[keys.MoveOf] = string(r.UID)
	if n := r.Claims[i].Generation; n > 0 {
		b.Annotations[keys.Generation] = strconv.FormatInt(n, 10)
	}
	atLeast := func(size resource.Quantity) {
		if size.Cmp(b.Spec.Resources.Requests[corev1.ResourceStorage]) > 0 {
			b.Spec.Resources.Requests[corev1.ResourceStorage] = size
		}
	}
	// The source may be larger than its request, and use that.
	atLeast(r.Claims[i].Volume.Spec.Capacity[corev1.ResourceStorage])
	if r.Failover != nil {
		version, err := c.readVersion(ctx, at, r.Failover.At(i), ref.Namespace)
		if err != nil {
			return nil, err
		}
		b.Spec.DataSource = frozen.From(version.Name)
		atLeast(ptr.Deref(version.Status.RestoreSize, resource.Quantity{}))
	}
	if basis := r.Claims[i].Basis; basis.InUse() {
		version, why, err := c.seenBasis(ctx, at, basis, ref.Namespace)
		if err != nil || why != "" {
			return nil, cmp.Or(err, errors.New(why))
		}
		b.Spec.DataSource = frozen.From(version.Name)
		atLeast(ptr.Deref(version.Status.RestoreSize, resource.Quantity{}))
	}
	if to.Deferred() && to.Node == "" {
		// The node is chosen for the mover instead.
		for _, key := range []string{keys.SelectedNode, keys.StorageProvisioner, keys.BetaStorageProvisioner} {
			delete(b.Annotations, key)
		}
	}
	return b, nil
}

// takeKept marks the copy that an earlier move keeps as the target of this one, as if it had been made for it, if its resource
// version is unchanged.
func (c *Controller) takeKept(ctx context.Context, o steps.Observation, a steps.TakeKept) error {
	b, known := o.Claims[a.Claim].Target.Backing, &o.Record.Claims[a.Claim]
	return c.patchBacking(ctx, &known.Target, b, types.MergePatchType,
		fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"labels":{%q:%q},"annotations":{%q:"true",%q:"%d"}}}`, b.UID, b.ResourceVersion,
			keys.MoveOf, o.Record.UID, keys.Unpublished, keys.Generation, known.Generation))
}

// publishBacking turns a backing claim into an ordinary one. A slot is the replica's no more.
func (c *Controller) publishBacking(ctx context.Context, o steps.Observation, a steps.Publish) error {
	b := o.Claims[a.Claim].At(a.End).Backing
	return c.patchBacking(ctx, o.Record.Claims[a.Claim].At(a.End), b, types.MergePatchType,
		fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:null,%q:null},"annotations":{%q:null,%q:null,%q:null}}}`, b.UID, keys.MoveOf,
			keys.ReplicaOf, keys.Unpublished, keys.ReplacedBy, keys.Seal))
}

// shelveBacking marks the backing claim of the source as the move's, if its resource version is unchanged: a request that is
// late must not take it from a later move.
func (c *Controller) shelveBacking(ctx context.Context, o steps.Observation, a steps.Shelve) error {
	b, known := o.Claims[a.Claim].Source.Backing, &o.Record.Claims[a.Claim]
	by := ""
	if known.Generation > 0 {
		by = fmt.Sprintf(`,"annotations":{%q:"%d"}`, keys.ReplacedBy, known.Generation)
	}
	return c.patchBacking(ctx, &known.Source, b, types.MergePatchType,
		fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"labels":{%q:%q}%s}}`, b.UID, b.ResourceVersion, keys.MoveOf, o.Record.UID, by))
}

// dropBacking deletes a backing claim that no virtual volume refers to.
func (c *Controller) dropBacking(ctx context.Context, o steps.Observation, a steps.DropBacking) error {
	copied, b := o.Record.Claims[a.Claim].At(a.End), o.Claims[a.Claim].At(a.End).Backing
	at, err := c.sites.At(copied.Ref.Cluster)
	if err != nil {
		return err
	}
	if err := c.requireUnused(ctx, o, b); err != nil {
		return err
	}
	// Our finalizer goes first: a claim that is being deleted and has it is recreated by
	// the remote agent.
	if backing.Protected(b) {
		if err := c.patchBacking(ctx, copied, b, types.StrategicMergePatchType,
			fmt.Sprintf(`{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, b.UID, keys.BackingFinalizer)); err != nil {
			return err
		}
	}
	return site.IgnoreGone(at.Client.CoreV1().PersistentVolumeClaims(b.Namespace).Delete(ctx, b.Name, only(b.UID)),
		"delete real claim "+b.Name)
}

// patchBacking changes a backing claim, if it still exists.
func (c *Controller) patchBacking(ctx context.Context, copied *record.Copy, b *corev1.PersistentVolumeClaim, kind types.PatchType,
	patch string) error {
	at, err := c.sites.At(copied.Ref.Cluster)
	if err != nil {
		return err
	}
	_, err = at.Client.CoreV1().PersistentVolumeClaims(b.Namespace).Patch(ctx, b.Name, kind, []byte(patch), metav1.PatchOptions{})
	return site.IgnoreGone(err, fmt.Sprintf("change real claim %s/%s", b.Namespace, b.Name))
}

// requireUnused checks a last time, before a copy is deleted, whether a virtual volume
// refers to it.
func (c *Controller) requireUnused(ctx context.Context, o steps.Observation, b *corev1.PersistentVolumeClaim) error {
	for i := range o.Record.Claims {
		live, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, o.Record.Claims[i].Volume.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at volume %s: %w", o.Record.Claims[i].Volume.Name, err)
		}
		if ref, err := backing.RefOf(live); err != nil || ref.UID == b.UID {
			return fmt.Errorf("volume %s may stand for real claim %s/%s, which is not removed", live.Name, b.Namespace, b.Name)
		}
	}
	return nil
}

// fillAdoption completes the record of a move that copies nothing: the claim gets a real claim that is at the target already, and that a
// later move has made than the one that its volume stands for.
func (c *Controller) fillAdoption(ctx context.Context, r *record.Record, move *v1alpha1.VolumeMove) error {
	if len(move.Spec.Claims) != 1 {
		return refuse("spec.adopt is for one claim: name one")
	}
	name := move.Spec.Claims[0]
	claim, err := c.sites.Home().Claim(ctx, r.Namespace, name)
	if err != nil {
		return err
	}
	if claim == nil {
		return refuse("there is no claim %q in namespace %s: name one that exists", name, r.Namespace)
	}
	volume, err := c.virtualVolume(ctx, claim)
	if err != nil {
		return err
	}
	if err := requireMovable(claim, volume); err != nil {
		return err
	}
	if other := c.Records.blocking(r.UID, claim.UID); other != nil {
		return busyWith(claim, other)
	}
	copies, unread, err := c.copiesOf(ctx, claim, volume)
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	standing := c.Place.Compare(volume, key, claim.UID, copies)
	i := slices.IndexFunc(standing.Newer, func(b backing.Copy) bool {
		return string(b.Claim.UID) == move.Spec.Adopt && b.Cluster == move.Spec.Target.Cluster
	})
	switch {
	case i < 0 && unread != "":
		return refuse("%s: move again when it answers", unread)
	case i < 0:
		return refuse("cluster %s has no real claim with the UID %s that has newer data of claim %q than its volume stands for: name one that "+
			"the events of the claim name", move.Spec.Target.Cluster, move.Spec.Adopt, name)
	case i > 0:
		newest := standing.Newer[0].Ref()
		return refuse("real claim %s in cluster %s (UID %s) is newer than that: choose it, or delete it there first", newest.Key(),
			newest.Cluster, newest.UID)
	}
	return c.adopt(ctx, r, claim, volume, standing)
}

// adopt completes the record with the claim, whose newest copy is the first of standing.Newer.
func (c *Controller) adopt(ctx context.Context, r *record.Record, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume,
	standing backing.Standing) error {
	newest, from := standing.Newer[0], standing.Current
	if newest.Claim.Status.Phase != corev1.ClaimBound || newest.Claim.DeletionTimestamp != nil {
		return refuse("real claim %s in cluster %s is not bound to a real volume, or is being deleted: see its events there",
			newest.Ref().Key(), newest.Cluster)
	}
	if standing.Current == (backing.Ref{}) {
		return refuse("volume %s of claim %q is not one that Lodestone made", volume.Name, claim.Name)
	}
	// Who uses the older copy must be known, even if that itself is gone.
	at, why := c.sites.Reach(from.Cluster)
	if why != "" {
		return refuse("%s: pods there may use the claim; move again when it answers", why)
	}
	if err := requireAttachmentsReadable(ctx, at, from.Cluster); err != nil {
		return err
	}
	r.Adopts, r.Passes = true, 0
	r.Target = v1alpha1.MovePlace{Cluster: newest.Cluster, Class: ptr.Deref(newest.Claim.Spec.StorageClassName, "")}
	r.Claims = []record.Claim{{
		Name: claim.Name, UID: claim.UID, Volume: plan.Remembered(volume), Source: record.Copy{Ref: from},
		Target:     record.Copy{Ref: newest.Ref(), Real: newest.Claim.Spec.VolumeName, Class: r.Target.Class},
		Generation: max(backing.GenerationOf(newest.Claim), standing.ReplacedBy),
	}}
	return c.requireOwnedPods(ctx, r)
}

// requireOwnedPods refuses pods that nobody would make anew once they are stopped, and those of Jobs.
func (c *Controller) requireOwnedPods(ctx context.Context, r *record.Record) error {
	pods, err := c.Client.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if finished(pod) || pod.DeletionTimestamp != nil || len(usedBy(pod, r)) == 0 {
			continue
		}
		if err := requireStoppable(r, pod); err != nil {
			return err
		}
	}
	return nil
}
