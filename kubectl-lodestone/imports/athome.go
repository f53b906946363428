package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualvolume"
)

func attachedTo(attachments []storagev1.VolumeAttachment, volumes []string) string {
	for _, a := range attachments {
		if name := a.Spec.Source.PersistentVolumeName; name != nil && slices.Contains(volumes, *name) {
			return a.Spec.NodeName
		}
	}
	return ""
}

// atHome takes the steps of an import at home until there is none left.
func (i *importing) atHome(ctx context.Context, volume string) error {
	return i.Await(ctx, "volume "+volume+" to be imported", func(ctx context.Context) (string, bool, error) {
		for {
			h, err := i.observe(ctx, volume, types.NamespacedName{})
			if err != nil {
				return "", false, err
			}
			if h.Record == nil {
				return "", true, nil
			}
			step, what, err := h.Next()
			if err != nil || step == Wait {
				return what, false, err
			}
			if err := i.act(ctx, h, step); err != nil {
				if changed(err) {
					return err.Error(), false, nil
				}
				return "", false, err
			}
		}
	})
}

// changed says whether a write failed because what it was to change is no longer
// as it was seen: it is looked at again. A quota may have counted what is gone:
// that is tried again, too.
func changed(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (full(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err))
}

// act takes one step: one write.
func (i *importing) act(ctx context.Context, h Home, step Step) error {
	switch step {
	case Keep:
		return i.patchVolume(ctx, h.Real, nil, map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain})
	case DropOld:
		i.Say("deleting volume %s, which stood for the data before", h.Old.Name)
		return dropOld(ctx, i.home, h.Old)
	case Delete:
		i.Say("deleting claim %s/%s; volume %s keeps the data", h.Holder.Namespace, h.Holder.Name, h.Real.Name)
		err := i.home.Client.CoreV1().PersistentVolumeClaims(h.Holder.Namespace).Delete(ctx, h.Holder.Name, just(h.Holder))
		return i.home.Explain("delete claim "+h.Holder.Namespace+"/"+h.Holder.Name, err)
	case LetGo:
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, h.Holder.UID, keys.BackingFinalizer)
		_, err := i.home.Client.CoreV1().PersistentVolumeClaims(h.Holder.Namespace).Patch(ctx, h.Holder.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return i.home.Explain("take the finalizer off claim "+h.Holder.Name, err)
	case Make:
		return i.make(ctx, h.Record.Claim)
	case Free:
		at := h.twinName()
		return i.patchVolume(ctx, h.Real, nil, map[string]any{"claimRef": map[string]any{
			"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": at.Namespace, "name": at.Name, "uid": nil, "resourceVersion": nil}})
	case Twin:
		twin := backings.Twin(reference(h.Claim), h.Real, h.twinName(), h.HomeID)
		_, err := i.home.Client.CoreV1().PersistentVolumeClaims(twin.Namespace).Create(ctx, twin, metav1.CreateOptions{})
		return i.refused(twin, err)
	case Restore:
		return i.patchVolume(ctx, h.Real, nil, map[string]any{"persistentVolumeReclaimPolicy": h.Record.Policy})
	case Publish:
		return i.publish(ctx, virtualvolume.Input{Claim: h.Claim, Cluster: keys.Home, Backing: h.Twin, Real: h.Real})
	case Clear:
		return i.clear(ctx, h.Claim)
	case End:
		i.Say("volume %s is the data of claim %s/%s", h.Real.Name, h.Claim.Namespace, h.Claim.Name)
		return i.patchVolume(ctx, h.Real, map[string]any{keys.Import: nil}, nil)
	default:
		return fmt.Errorf("take step %q: there is none of that name", step)
	}
}

// just makes a deletion that of the object as it was looked at.
func just(object metav1.Object) metav1.DeleteOptions {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}

// dropOld deletes a released virtual volume of policy Retain, which deletes
// nothing behind it.
func dropOld(ctx context.Context, home *access.Cluster, old *corev1.PersistentVolume) error {
	return home.Explain("delete volume "+old.Name, home.Client.CoreV1().PersistentVolumes().Delete(ctx, old.Name, just(old)))
}

// reference is how a volume refers to its claim.
func reference(claim *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
}

// make creates a virtual claim.
func (i *importing) make(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	_, err := i.home.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{FieldManager: fieldManager})
	return i.refused(claim, err)
}

// refused explains that a claim could not be made.
func (i *importing) refused(claim *corev1.PersistentVolumeClaim, err error) error {
	if denied(err) {
		return fmt.Errorf("claim %s/%s may not be made: %w; see that it may be, then run the same command again", claim.Namespace, claim.Name, err)
	}
	return i.home.Explain("create claim "+claim.Namespace+"/"+claim.Name, err)
}

// clear takes the record off a virtual claim that has its volume.
func (i *importing) clear(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID, "annotations": map[string]any{keys.Import: nil}}})
	if err != nil {
		return fmt.Errorf("write the change of claim %s: %w", claim.Name, err)
	}
	_, err = i.home.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return i.home.Explain("change claim "+claim.Namespace+"/"+claim.Name, err)
}

// patchVolume changes a real volume of home if it is still as it was seen.
func (i *importing) patchVolume(ctx context.Context, real *corev1.PersistentVolume, annotations, spec map[string]any) error {
	metadata := map[string]any{"uid": real.UID, "resourceVersion": real.ResourceVersion}
	change := map[string]any{"metadata": metadata}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	if spec != nil {
		change["spec"] = spec
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("write the change of volume %s: %w", real.Name, err)
	}
	_, err = i.home.Client.CoreV1().PersistentVolumes().Patch(ctx, real.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return i.home.Explain("change volume "+real.Name, err)
}

// What the provisioner's library writes on a volume that it makes, so that it
// deletes it, once told to, and nobody else does before.
const (
	provisionedBy        = "pv.kubernetes.io/provisioned-by"
	provisionerFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	fieldManager         = "kubectl-lodestone"
)

// publish creates the virtual volume of a claim, as the provisioner would.
func (i *importing) publish(ctx context.Context, in virtualvolume.Input) error {
	in.Name, in.Class = "pvc-"+string(in.Claim.UID), i.class
	volume, err := virtualvolume.New(in)
	if err != nil {
		return err
	}
	volume.Annotations[provisionedBy] = keys.Driver
	volume.Finalizers = append(volume.Finalizers, provisionerFinalizer)
	volume.Spec.ClaimRef = reference(in.Claim)
	_, err = i.home.Client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{FieldManager: fieldManager})
	return i.home.Explain("create volume "+volume.Name, err)
}
