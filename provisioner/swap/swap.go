// Package swap writes what package plan says: it takes a virtual volume from its claim, and makes one anew.
package swap

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/swap/plan"
)

// bindCompleted is the annotation by which kube-controller-manager knows a claim that was bound. Without a volume such a
// claim is Lost for it, and its data, too; one without the annotation that names a volume waits for that.
const bindCompleted = "pv.kubernetes.io/bind-completed"

// Delete deletes a virtual volume, and has it name a claim that does not exist, the placeholder: see package plan. Who holds
// the volume goes by the UID of its claim, which stays. Whoever sees a volume without its claim leaves the data as it is,
// because of the policy.
func Delete(ctx context.Context, client kubernetes.Interface, volume *corev1.PersistentVolume, placeholder string) error {
	volumes := client.CoreV1().PersistentVolumes()
	err := volumes.Delete(ctx, volume.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &volume.UID}})
	if err := site.IgnoreGone(err, "delete volume "+volume.Name); err != nil {
		return err
	}
	// Only then: a claim that asks for a volume by name does not get one of another claim, but others would get one of none.
	_, err = volumes.Patch(ctx, volume.Name, types.MergePatchType, fmt.Appendf(nil,
		`{"metadata":{"uid":%q},"spec":{"claimRef":{"name":%q},"persistentVolumeReclaimPolicy":%q}}`, volume.UID, placeholder,
		corev1.PersistentVolumeReclaimRetain), metav1.PatchOptions{})
	return site.IgnoreGone(err, "take volume "+volume.Name+" from its claim")
}

// Free removes those finalizers of a virtual volume that nobody else needs. Kubernetes may remove one at the same time, and an
// attacher put one on.
func Free(ctx context.Context, client kubernetes.Interface, volume *corev1.PersistentVolume) error {
	own, err := json.Marshal(plan.OwnFinalizers)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":%s}}`, volume.UID, own), metav1.PatchOptions{})
	return site.IgnoreGone(err, "free volume "+volume.Name)
}

// Make creates a virtual volume, if there is none of its name.
func Make(ctx context.Context, client kubernetes.Interface, volume *corev1.PersistentVolume) error {
	made := volume.DeepCopy()
	made.UID, made.ResourceVersion = "", ""
	_, err := client.CoreV1().PersistentVolumes().Create(ctx, made, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make volume %s: %w", made.Name, err)
	}
	return nil
}

// TouchOf returns the annotations that touch a claim with a text; nil ones are to be removed. With unbind the claim is no
// longer one that was bound.
func TouchOf(text string, unbind bool) map[string]any {
	annotations := map[string]any{keys.MoveTouched: text}
	if unbind {
		annotations[bindCompleted] = nil
	}
	return annotations
}
