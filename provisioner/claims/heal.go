package claims

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// healBacking takes one step to replace a backing claim at home that somebody deleted. Each
// write fails if its object has changed since it was observed.
func (f *Controller) healBacking(ctx context.Context, o steps.Observation, a steps.HealBacking) error {
	real := a.Backing.Volume
	switch a.Cure {
	case steps.Begin:
		return f.annotateVolume(ctx, o.Volume, map[string]any{keys.Healing: string(real.Spec.PersistentVolumeReclaimPolicy)})
	case steps.Retain:
		return f.changeReal(ctx, real, map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain})
	case steps.LetGo:
		if err := f.retained(ctx, real, a.Ref); err != nil {
			return err
		}
		return f.deleteBacking(ctx, o.UID, a.Backing, "")
	case steps.Free:
		if err := f.free(ctx, a.Ref); err != nil {
			return err
		}
		return f.changeReal(ctx, real, map[string]any{"claimRef": map[string]any{"uid": nil, "resourceVersion": nil}})
	case steps.Rebuild:
		return f.rebuild(ctx, o, a)
	case steps.Adopt:
		ref := backing.RefTo(a.Ref.Cluster, a.Backing.Claim)
		return f.annotateVolume(ctx, o.Volume, map[string]any{keys.Backing: ref.String()})
	case steps.Restore:
		if err := f.holds(ctx, real, a.Ref); err != nil {
			return err
		}
		return f.changeReal(ctx, real, map[string]any{"persistentVolumeReclaimPolicy": o.Volume.Annotations[keys.Healing]})
	case steps.End:
		if err := f.annotateVolume(ctx, o.Volume, map[string]any{keys.Healing: nil}); err != nil {
			return err
		}
		f.event(o, &steps.Message{Reason: "BackingHealed", Text: fmt.Sprintf("real claim %s was made anew and has its volume %s with all data",
			a.Ref.Key(), real.Name)})
	}
	return nil
}

// retained asks the API server whether a real volume will outlive its claim: caches may
// lag, and deleting the claim cannot be undone.
func (f *Controller) retained(ctx context.Context, real *corev1.PersistentVolume, ref backing.Ref) error {
	live, err := f.Client.CoreV1().PersistentVolumes().Get(ctx, real.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at real volume %s: %w", real.Name, err)
	}
	if live.UID != real.UID || live.DeletionTimestamp != nil ||
		live.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain ||
		live.Spec.ClaimRef == nil || live.Spec.ClaimRef.UID != ref.UID {
		return fmt.Errorf("real volume %s would not outlive its claim: %w", real.Name, errChanged)
	}
	return nil
}

// holds asks the API server whether the claim is bound to its real volume: if not, the
// volume and its data would be deleted once the reclaim policy is Delete again.
func (f *Controller) holds(ctx context.Context, real *corev1.PersistentVolume, ref backing.Ref) error {
	twin, err := f.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at claim %s: %w", ref.Key(), err)
	}
	if twin.UID != ref.UID || twin.DeletionTimestamp != nil || !backing.Protected(twin) || twin.Spec.VolumeName != real.Name {
		return fmt.Errorf("claim %s does not hold real volume %s: %w", ref.Key(), real.Name, errChanged)
	}
	return nil
}

// free asks the API server whether the name of the claim is free.
func (f *Controller) free(ctx context.Context, ref backing.Ref) error {
	_, err := f.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for claim %s: %w", ref.Key(), err)
	}
	return fmt.Errorf("claim %s is there: %w", ref.Key(), errChanged)
}

// rebuild creates the new claim.
func (f *Controller) rebuild(ctx context.Context, o steps.Observation, a steps.HealBacking) error {
	twin := backing.Again(o.Volume, a.Backing.Volume, a.Ref.Key(), f.Place.HomeID)
	made, err := f.Client.CoreV1().PersistentVolumeClaims(twin.Namespace).Create(ctx, twin, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return f.examineExisting(ctx, f.Client, o, a.Ref.Key())
	}
	if err != nil {
		return fmt.Errorf("create claim %s anew: %w", a.Ref.Key(), err)
	}
	f.memory.setWritten(o.UID, keys.Home, nil, made)
	return nil
}

// annotateVolume changes annotations of a virtual volume if its resource version is
// unchanged.
func (f *Controller) annotateVolume(ctx context.Context, virtual *corev1.PersistentVolume, changes map[string]any) error {
	return f.patchVolume(ctx, virtual.Name, map[string]any{"metadata": map[string]any{
		"uid": virtual.UID, "resourceVersion": virtual.ResourceVersion, "annotations": changes}})
}

// changeReal changes the spec of a real volume if its resource version is unchanged.
func (f *Controller) changeReal(ctx context.Context, real *corev1.PersistentVolume, spec map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": real.UID, "resourceVersion": real.ResourceVersion},
		"spec": spec})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := f.Client.CoreV1().PersistentVolumes().Patch(ctx, real.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch real volume %s: %w", real.Name, err)
	}
	return nil
}
