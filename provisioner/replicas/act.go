package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// act takes an action. It need not know whether a failed request took effect: the next observation shows it. What an API server
// would refuse again is remembered, and judged by the next decision.
func (c *Controller) act(ctx context.Context, w *activeReplica, o decide.Observation, action decide.Action) error {
	err := c.take(ctx, w, o, action)
	if drop, ok := action.(decide.DropVersion); ok {
		if why := whyKept(o.Record.Head.Cluster, err); why != "" {
			w.keep(drop.Name, why)
			return nil
		}
	}
	refused, err := refusalOf(err)
	if refused.Text == "" && isMade(action) {
		var why string
		if why, err = frozen.RefusalOf(err); why != "" {
			refused = decide.Refusal{Reason: decide.Refused, Text: why}
		}
	}
	if refused.Text != "" {
		w.refused, w.refusedAt = refused, time.Now()
		// It may have been its turn to begin a point.
		c.wakeNext()
	}
	return err
}

// isMade says whether an action makes an object that a quota, a policy or a missing right may forbid.
func isMade(action decide.Action) bool {
	switch action.(type) {
	case decide.MakeHead, decide.TakeBasis, decide.TakeSnapshot, decide.MakeClone, decide.MakeMover, decide.TakeSeal:
		return true
	}
	return false
}

func (c *Controller) take(ctx context.Context, w *activeReplica, o decide.Observation, action decide.Action) error {
	r := o.Record
	switch a := action.(type) {
	case decide.Adopt:
		return c.setFinalizers(ctx, o, append(slices.Clone(o.Replica.Finalizers), keys.ReplicaFinalizer))
	case decide.Leave:
		return c.setFinalizers(ctx, o, slices.DeleteFunc(slices.Clone(o.Replica.Finalizers), func(f string) bool {
			return f == keys.ReplicaFinalizer
		}))
	case decide.Begin:
		first, err := c.begin(ctx, o.Replica)
		if err != nil {
			return err
		}
		return c.save(ctx, w, first)
	case decide.BeginPoint:
		next, err := c.beginPoint(ctx, o.Replica, r)
		if err != nil {
			return err
		}
		next.Point.FailedOver = o.FailedOver
		if err := c.save(ctx, w, next); err != nil {
			return err
		}
		if next.Point.Freeze != nil {
			w.hold, w.holding = decide.Fresh, true
		}
		return nil
	case decide.Freeze:
		return c.freeze(ctx, w, o)
	case decide.Thaw:
		return c.thaw(ctx, w, o)
	case decide.Save:
		err := c.save(ctx, w, a.Record)
		if err != nil && a.Record.Point != nil && a.Record.Point.Stage == record.Thaw && r.Point.Stage != record.Thaw {
			c.thawUnsaved(ctx, w, r)
		}
		return err
	case decide.CleanLeft:
		return c.take(ctx, w, *a.Of, a.Action)
	case decide.Forget:
		w.record = nil
		return c.forget(ctx, w.uid)
	case decide.MakeHead:
		return c.makeHead(ctx, r, a.Claim)
	case decide.TakeBasis:
		at, err := c.sites.At(r.Head.Cluster)
		if err != nil {
			return err
		}
		basis := r.Point.At(a.Claim).Basis
		return frozen.Take(ctx, at, basis.Of, basis.Name, basis.By, c.labels(r), nil)
	case decide.DropBasis:
		return c.dropSnapshot(ctx, r.Head.Cluster, r.Head.Namespace, r.Point.At(a.Claim).Basis.Name, o.Claims[a.Claim].Basis.UID)
	case decide.DropHead:
		return c.dropClaim(ctx, r.At(a.Claim).Head, o.Claims[a.Claim].Head.UID)
	case decide.DropSlot:
		return c.dropClaim(ctx, r.At(a.Claim).Slot, o.Claims[a.Claim].Slot.UID)
	case decide.Unseal:
		return c.markHead(ctx, o, a.Claim, nil)
	case decide.TakeSnapshot:
		at, err := c.sites.At(r.Point.Source.Cluster)
		if err != nil {
			return err
		}
		if f := r.Point.Freeze; r.Point.Held() {
			// An API server that does not answer keeps no application frozen for longer than it may be.
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, f.Since.Add(f.Limit))
			defer cancel()
		}
		if r.Point.Group != nil {
			return c.groupOf(r).Take(ctx, at)
		}
		return frozen.Take(ctx, at, r.Point.Source, r.PointName(0), r.Point.By, c.labels(r), nil)
	case decide.Unlabel:
		ref := r.Point.At(a.Claim).Source
		at, err := c.sites.At(ref.Cluster)
		if err != nil {
			return err
		}
		return frozen.Unlabel(ctx, at, ref, r.GroupLabel())
	case decide.MakeClone:
		return c.makeClone(ctx, o, a.Claim)
	case decide.DropClone:
		ref := r.Point.At(a.Claim).Source
		ref.Name = r.PointName(a.Claim)
		return c.dropClaim(ctx, ref, o.Claims[a.Claim].Clone.UID)
	case decide.DropSnapshot:
		return c.dropSource(ctx, o)
	case decide.DropVersion:
		return c.dropSnapshot(ctx, r.Head.Cluster, r.Head.Namespace, a.Name, a.UID)
	case decide.TakeSeal:
		at, err := c.sites.At(r.Head.Cluster)
		if err != nil {
			return err
		}
		seal, err := sealOf(o, a.Claim).Encode()
		if err != nil {
			return err
		}
		if r.Slots {
			return c.markHead(ctx, o, a.Claim, seal)
		}
		return frozen.Take(ctx, at, r.At(a.Claim).Head, r.SealName(a.Claim), r.Point.At(a.Claim).SealBy, c.labels(r),
			map[string]string{keys.Seal: seal})
	case decide.MakeMover:
		node := ""
		if a.Role == moverapi.Sender {
			node = r.Point.At(a.Claim).Node
		}
		return c.copier.Make(ctx, c.moverOf(r, a.Claim, a.Role), node, "")
	case decide.StartMover:
		return c.copier.Start(ctx, c.moverOf(r, a.Claim, a.Role))
	case decide.GiveKeys:
		return c.copier.GiveKeys(ctx, c.moverOf(r, a.Claim, a.Role))
	case decide.DropMover:
		return c.copier.Drop(ctx, c.moverOf(r, a.Claim, a.Role))
	case decide.DropStray:
		return c.copier.Drop(ctx, movers.Mover{Ref: r.Head, Name: a.Name, Role: moverapi.Receiver})
	case decide.Start:
		client, err := c.copier.Client(&w.copies[a.Claim].link, c.moverOf(r, a.Claim, moverapi.Sender),
			r.Point.At(a.Claim).Keys[moverapi.Controller])
		if err == nil {
			_, err = client.Start(ctx, a.Task, 0)
		}
		return err
	}
	return fmt.Errorf("nobody takes action %T", action)
}

// dropSource deletes the snapshot of the source, or of all sources.
func (c *Controller) dropSource(ctx context.Context, o decide.Observation) error {
	r := o.Record
	if r.Point.Group == nil {
		return c.dropSnapshot(ctx, r.Point.Source.Cluster, r.Point.Source.Namespace, r.PointName(0), o.Claims[0].Snapshot.UID)
	}
	at, err := c.sites.At(r.Point.Source.Cluster)
	if err != nil {
		return err
	}
	return c.groupOf(r).Drop(ctx, at, o.Group.UID)
}

// sealOf is what the version that is being sealed says of itself, of one claim.
func sealOf(o decide.Observation, i int) *volumesnapshot.Seal {
	r, known, head := o.Record, o.Record.At(i), o.Claims[i].Head
	spec := head.Spec
	size := spec.Resources.Requests[corev1.ResourceStorage]
	if has := head.Status.Capacity[corev1.ResourceStorage]; has.Cmp(size) > 0 {
		size = has
	}
	seal := &volumesnapshot.Seal{
		Namespace: r.Namespace, Name: known.Claim, UID: known.ClaimUID, Primary: r.Point.Source.Cluster, Number: r.Point.Number,
		Cut: r.Point.Moment(), Root: r.Point.At(i).Root, Class: known.Class, Size: size, AccessModes: spec.AccessModes,
		VolumeMode: spec.VolumeMode,
	}
	if r.Len() > 1 {
		seal.Group = r.Claims()
	}
	return seal
}

func (c *Controller) save(ctx context.Context, w *activeReplica, next *record.Record) error {
	written, err := c.write(ctx, w.record, next)
	if err != nil {
		w.record = nil
		return err
	}
	if w.record != nil {
		c.Metrics.saved(w.record.record, next)
		if was := w.record.record.Point; was != nil && was.Stage != record.Clean && (next.Point == nil || next.Point.Stage == record.Clean) {
			c.wakeNext()
		}
		if before := w.record.record; before.Point != nil && next.Point == nil && !w.cleared {
			c.clearSource(ctx, w, before)
		}
	}
	w.record, w.refused = written, decide.Refusal{}
	return nil
}

// setFinalizers changes the finalizers of the VolumeReplica, if its resource version is unchanged.
func (c *Controller) setFinalizers(ctx context.Context, o decide.Observation, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.Replica.UID, "resourceVersion": o.Replica.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = c.Replicas.Replicas(o.Replica.Namespace).Patch(ctx, o.Replica.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return site.IgnoreGone(err, "patch VolumeReplica "+o.Replica.Name)
}

// makeHead creates the real claim of a claim at the standby.
func (c *Controller) makeHead(ctx context.Context, r *record.Record, i int) error {
	head, at, err := c.headClaim(ctx, r, r.At(i))
	if err != nil {
		return err
	}
	if r.Point.At(i).Basis != nil {
		if err := c.fromBasis(ctx, at, r, i, head); err != nil {
			return err
		}
	}
	if !at.Home {
		if err := c.Clusters.Get(r.Head.Cluster).RecordNamespace(ctx, r.Head.Namespace); err != nil {
			return err
		}
	}
	_, err = at.Client.CoreV1().PersistentVolumeClaims(head.Namespace).Create(ctx, head, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make real claim %s at the standby: %w", r.At(i).Head.Key(), err)
	}
	return nil
}

// markHead has the head of a claim say of which version it is, or with nil that it is of none, if its resource version is unchanged: a
// request that is late must not say so of what is being written to.
func (c *Controller) markHead(ctx context.Context, o decide.Observation, i int, seal any) error {
	head, ref := o.Claims[i].Head, o.Record.At(i).Head
	at, err := c.sites.At(ref.Cluster)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": head.UID, "resourceVersion": head.ResourceVersion, "annotations": map[string]any{keys.Seal: seal},
	}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = at.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return site.IgnoreGone(err, "annotate real claim "+ref.Key().String()+" at the standby")
}

// makeClone creates a claim of the snapshot of a source.
func (c *Controller) makeClone(ctx context.Context, o decide.Observation, i int) error {
	r, known := o.Record, o.Record.Point.At(i)
	at, err := c.sites.At(known.Source.Cluster)
	if err != nil {
		return err
	}
	taken, seen, err := c.snapshotAt(ctx, at, r, c.wantedOf(r, i))
	if err != nil {
		return err
	}
	if !seen.Ready {
		return fmt.Errorf("snapshot %s is not ready any more: %s", r.PointName(i), seen.Problem)
	}
	return frozen.Clone(ctx, at, taken, o.Claims[i].Origin, r.PointName(i), known.SourceClass, c.labels(r))
}

// dropClaim deletes a real claim that no virtual volume has ever stood for.
func (c *Controller) dropClaim(ctx context.Context, ref backing.Ref, uid types.UID) error {
	at, err := c.sites.At(ref.Cluster)
	if err != nil {
		return err
	}
	err = at.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Delete(ctx, ref.Name, only(uid))
	return site.IgnoreGone(err, "delete real claim "+ref.Key().String())
}

func (c *Controller) dropSnapshot(ctx context.Context, cluster, namespace, name string, uid types.UID) error {
	at, err := c.sites.At(cluster)
	if err != nil {
		return err
	}
	err = at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(namespace).Delete(ctx, name, only(uid))
	return site.IgnoreGone(err, "delete snapshot "+namespace+"/"+name)
}

// only returns the options to delete the object with this UID; another one of the same name stays.
func only(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(uid)}}
}
