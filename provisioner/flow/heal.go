package flow

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// heal takes one step towards a twin in the place of one that somebody deleted.
// Each write fails where the object has changed since it was seen.
func (f *Flow) heal(ctx context.Context, o decide.Observation, step decide.Step) error {
	real := step.Backing.Volume
	switch step.Cure {
	case decide.Begin:
		return f.annotateVolume(ctx, o.Volume, map[string]any{keys.Healing: string(real.Spec.PersistentVolumeReclaimPolicy)})
	case decide.Retain:
		return f.changeReal(ctx, real, map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain})
	case decide.LetGo:
		if err := f.retained(ctx, real, step.Ref); err != nil {
			return err
		}
		return f.deleteBacking(ctx, o.UID, step, "")
	case decide.Free:
		if err := f.free(ctx, step.Ref); err != nil {
			return err
		}
		return f.changeReal(ctx, real, map[string]any{"claimRef": map[string]any{"uid": nil, "resourceVersion": nil}})
	case decide.Rebuild:
		return f.rebuild(ctx, o, step)
	case decide.Adopt:
		ref := backing.RefTo(step.Ref.Cluster, step.Backing.Claim)
		return f.annotateVolume(ctx, o.Volume, map[string]any{keys.Backing: ref.String()})
	case decide.Restore:
		if err := f.holds(ctx, real, step.Ref); err != nil {
			return err
		}
		return f.changeReal(ctx, real, map[string]any{"persistentVolumeReclaimPolicy": o.Volume.Annotations[keys.Healing]})
	case decide.End:
		if err := f.annotateVolume(ctx, o.Volume, map[string]any{keys.Healing: nil}); err != nil {
			return err
		}
		f.tell(o, &decide.Message{Reason: "BackingHealed", Text: fmt.Sprintf("real claim %s was made anew and has its volume %s with all data", step.Ref.Key(), real.Name)})
	}
	return nil
}

// retained asks the API server itself whether a real volume will outlive its
// twin: caches may lag, and without the twin there is no way back.
func (f *Flow) retained(ctx context.Context, real *corev1.PersistentVolume, ref backing.Ref) error {
	live, err := f.Client.CoreV1().PersistentVolumes().Get(ctx, real.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at real volume %s: %w", real.Name, err)
	}
	if live.UID != real.UID || live.DeletionTimestamp != nil || live.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain ||
		live.Spec.ClaimRef == nil || live.Spec.ClaimRef.UID != ref.UID {
		return fmt.Errorf("real volume %s would not outlive its claim: %w", real.Name, errChanged)
	}
	return nil
}

// holds asks the API server itself whether the twin holds its real volume:
// without it the volume would go with its data once the policy says so.
func (f *Flow) holds(ctx context.Context, real *corev1.PersistentVolume, ref backing.Ref) error {
	twin, err := f.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at claim %s: %w", ref.Key(), err)
	}
	if twin.UID != ref.UID || twin.DeletionTimestamp != nil || !backing.Protected(twin) || twin.Spec.VolumeName != real.Name {
		return fmt.Errorf("claim %s does not hold real volume %s: %w", ref.Key(), real.Name, errChanged)
	}
	return nil
}

// free asks the API server itself whether nothing has the twin's name.
func (f *Flow) free(ctx context.Context, ref backing.Ref) error {
	_, err := f.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for claim %s: %w", ref.Key(), err)
	}
	return fmt.Errorf("claim %s is there: %w", ref.Key(), errChanged)
}

// rebuild creates the new twin.
func (f *Flow) rebuild(ctx context.Context, o decide.Observation, step decide.Step) error {
	twin := backing.Again(o.Volume, step.Backing.Volume, step.Ref.Key(), f.Place.HomeID)
	made, err := f.Client.CoreV1().PersistentVolumeClaims(twin.Namespace).Create(ctx, twin, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return f.examine(ctx, f.Client, o, step.Ref.Key())
	}
	if err != nil {
		return fmt.Errorf("create claim %s anew: %w", step.Ref.Key(), err)
	}
	f.written.set(o.UID, keys.Home, nil, made)
	return nil
}

// annotateVolume changes annotations of a virtual volume if it is still as it was
// seen.
func (f *Flow) annotateVolume(ctx context.Context, virtual *corev1.PersistentVolume, changes map[string]any) error {
	return f.patchVolume(ctx, virtual.Name, map[string]any{"metadata": map[string]any{
		"uid": virtual.UID, "resourceVersion": virtual.ResourceVersion, "annotations": changes}})
}

// changeReal changes the spec of a real volume if it is still as it was seen.
func (f *Flow) changeReal(ctx context.Context, real *corev1.PersistentVolume, spec map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": real.UID, "resourceVersion": real.ResourceVersion}, "spec": spec})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := f.Client.CoreV1().PersistentVolumes().Patch(ctx, real.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch real volume %s: %w", real.Name, err)
	}
	return nil
}

// observeReal adds what matters only once there is a virtual volume.
func (f *Flow) observeReal(o *decide.Observation) {
	ref, err := backing.RefOf(o.Volume)
	name := o.Volume.Annotations[keys.BackingVolume]
	switch {
	case err != nil:
	case ref.Cluster != keys.Home:
		if cluster := f.Clusters.Get(ref.Cluster); cluster != nil {
			o.Real = cluster.Volume(name)
		}
	default:
		o.Real = one[corev1.PersistentVolume](f.Sources.Volumes, name)
		storage := one[corev1.Namespace](f.Sources.Namespaces, f.Place.StorageNamespace)
		o.StorageLeaving = storage == nil || storage.DeletionTimestamp != nil
	}
}
