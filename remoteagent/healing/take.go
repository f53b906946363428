package healing

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

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// take takes one step.
func (c *Controller) take(ctx context.Context, h policy.Healing, cure policy.Cure) error {
	switch cure {
	case policy.Begin:
		return c.begin(ctx, h)
	case policy.Insist:
		return c.changeVolume(ctx, h.Volume, nil, map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain})
	case policy.LetGo:
		left := slices.DeleteFunc(slices.Clone(h.Claim.Finalizers), func(f string) bool { return f == keys.BackingFinalizer })
		return c.changeClaim(ctx, h.Claim, map[string]any{"finalizers": left})
	case policy.Rebuild:
		shadow := h.Record.Shadow(h.Volume)
		_, err := c.Client.CoreV1().PersistentVolumeClaims(shadow.Namespace).Create(ctx, shadow, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make claim %s/%s anew: %w", shadow.Namespace, shadow.Name, err)
		}
		return nil
	case policy.Give:
		return c.changeVolume(ctx, h.Volume, nil, map[string]any{"claimRef": map[string]any{"uid": h.Claim.UID, "resourceVersion": nil}})
	case policy.Protect:
		return c.changeClaim(ctx, h.Claim, map[string]any{"finalizers": append(slices.Clone(h.Claim.Finalizers), keys.BackingFinalizer)})
	case policy.Touch:
		return c.changeClaim(ctx, h.Claim, map[string]any{"annotations": map[string]any{keys.Healing: nil}})
	case policy.End, policy.Undo:
		err := c.changeVolume(ctx, h.Volume, map[string]any{
			"labels": map[string]any{keys.Healing: nil}, "annotations": map[string]any{keys.HealingRecord: nil},
		}, map[string]any{"persistentVolumeReclaimPolicy": h.Record.ReclaimPolicy})
		if err == nil && cure == policy.End {
			c.Metrics.healed.Inc()
			c.Recorder.Eventf(h.Claim, corev1.EventTypeNormal, "Healed", "Somebody deleted this claim; it was made anew and has its volume %s with all data.", h.Volume.Name)
		}
		return err
	default:
		return fmt.Errorf("no such step: %s", cure)
	}
}

func (c *Controller) begin(ctx context.Context, h policy.Healing) error {
	record, err := policy.RecordOf(h.Volume, h.Claim).Encode()
	if err != nil {
		return err
	}
	err = c.changeVolume(ctx, h.Volume, map[string]any{
		"labels": map[string]any{keys.Healing: h.Claim.Labels[keys.HomeID]}, "annotations": map[string]any{keys.HealingRecord: record},
	}, map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain})
	if err == nil {
		c.Recorder.Event(h.Claim, corev1.EventTypeNormal, "Healing", "Somebody deleted this claim, whose volume is in use: the claim is made anew once nothing uses it. To delete it with its data, delete the claim at home.")
	}
	return err
}

// changeVolume changes a volume if it is still as it was seen.
func (c *Controller) changeVolume(ctx context.Context, volume *corev1.PersistentVolume, metadata, spec map[string]any) error {
	patch, err := patchOf(volume, metadata, spec)
	if err != nil {
		return err
	}
	if _, err := c.Client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch volume %s: %w", volume.Name, err)
	}
	return nil
}

// changeClaim changes a claim if it is still as it was seen.
func (c *Controller) changeClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, metadata map[string]any) error {
	patch, err := patchOf(claim, metadata, nil)
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

func patchOf(object metav1.Object, metadata, spec map[string]any) ([]byte, error) {
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = object.GetUID(), object.GetResourceVersion()
	change := map[string]any{"metadata": metadata}
	if spec != nil {
		change["spec"] = spec
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}

// refused tells of a step that the API server does not allow, as for a quota.
func (c *Controller) refused(h policy.Healing, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		c.tell(h, &policy.Refusal{Reason: "NotHealed", Message: fmt.Sprintf("The claim of this volume cannot be made anew, which is tried again: %v.", err)})
	}
	return err
}

// tell makes an event of what the owner of this cluster may want to know, and
// counts it: of the claim, or of the volume where the claim is gone or its
// namespace takes no events any more.
func (c *Controller) tell(h policy.Healing, what *policy.Refusal) {
	if what == nil {
		c.told.forget(h.Volume.Name)
		return
	}
	if !c.told.news(h.Volume.Name, *what, time.Now()) {
		return
	}
	going := h.Namespace == nil || h.Namespace.DeletionTimestamp != nil
	if h.Claim != nil && !going && h.Volume.Spec.ClaimRef != nil && h.Claim.UID == h.Volume.Spec.ClaimRef.UID {
		c.Recorder.Event(h.Claim, corev1.EventTypeWarning, what.Reason, what.Message)
		return
	}
	c.Recorder.Event(h.Volume, corev1.EventTypeWarning, what.Reason, what.Message)
}

// Waits reports whether a claim of a namespace is to be made anew there.
func Waits(from *sources.Sources, namespace string) bool {
	return slices.ContainsFunc(sources.All[corev1.PersistentVolume](from.Healing), func(volume *corev1.PersistentVolume) bool {
		return volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Namespace == namespace
	})
}
