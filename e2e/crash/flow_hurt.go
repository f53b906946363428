package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// hurtFlows are about data in west that is given up, or whose shadow somebody deletes.
func hurtFlows() []Flow {
	west := places[1]
	return []Flow{
		// Declared lost, and its claim deleted, although west answers: nothing there may
		// be touched.
		served(Flow{
			Name: "lost-remote",
			Act: func(ctx context.Context, w *World, c *Case) error {
				_, volumes, _ := c.before.of(c.uid(data))
				err := patchVolume(ctx, w.Bed.Home.Client().CoreV1().PersistentVolumes(), volumes[0], map[string]any{
					"metadata": map[string]any{"annotations": map[string]any{keys.Lost: "given up"}}})
				return errors.Join(err, w.delete(ctx, w.Bed.Home, c.Namespace, data))
			},
			Want: func(w *World, c *Case, v *View) error { return all(w.left(v), same(c, v), once(c, 1, 1)) },
		}, west),
		// The remote agent, which is played, makes the shadow anew.
		served(Flow{
			Name: "heal-remote",
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.delete(ctx, w.Bed.West, c.Namespace, c.before.Backings[0].Name)
			},
			Play: playHealing,
			Want: func(w *World, c *Case, v *View) error {
				return all(w.bound(v, data, west.cluster), same(c, v), once(c, 2, 1), healed(c, v), cured(v))
			},
		}, west),
	}
}

// left says what is wrong with data that home gave up: all of it is there, and
// nothing at home stands for it.
func (w *World) left(v *View) error {
	if len(v.Claims)+len(v.Volumes) > 0 {
		return fmt.Errorf("left over at home: %d claims, %d volumes", len(v.Claims), len(v.Volumes))
	}
	if len(v.Backings) != 1 || v.Backings[0].DeletionTimestamp != nil || !backing.Protected(v.Backings[0]) || v.Backings[0].Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("the backing claim is not as it was: %+v", v.Backings)
	}
	return w.exist(v)
}

// cured says whether the played agent is done.
func cured(v *View) error {
	for _, real := range v.Reals {
		if real.Labels[keys.Healing] != "" {
			return errors.New("the agent has not ended the healing")
		}
	}
	return nil
}

type volumePatcher interface {
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*corev1.PersistentVolume, error)
}

// patchVolume merges a change into a volume that is as it was seen.
func patchVolume(ctx context.Context, volumes volumePatcher, volume *corev1.PersistentVolume, change map[string]any) error {
	metadata, ok := change["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		change["metadata"] = metadata
	}
	metadata["resourceVersion"] = volume.ResourceVersion
	data, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := volumes.Patch(ctx, volume.Name, types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch volume %s: %w", volume.Name, err)
	}
	return nil
}

// playHealing plays the remote agent: it takes the next step towards a new shadow.
func playHealing(ctx context.Context, w *World, c *Case, v *View) error {
	if len(v.Reals) != 1 {
		return errIncomplete
	}
	real, marked := v.Reals[0], v.Reals[0].Labels[keys.Healing] != ""
	var shadow *corev1.PersistentVolumeClaim
	if len(v.Backings) > 0 {
		shadow = v.Backings[0]
	}
	volumes, claims := w.Bed.West.Client().CoreV1().PersistentVolumes(), w.Bed.West.Client().CoreV1().PersistentVolumeClaims(c.Namespace)
	old := c.before.Backings[0]
	switch {
	case shadow != nil && shadow.DeletionTimestamp != nil && !marked:
		return patchVolume(ctx, volumes, real, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{keys.Healing: old.Labels[keys.HomeID]}},
			"spec":     map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain}})
	case shadow != nil && shadow.DeletionTimestamp != nil && backing.Protected(shadow):
		_, err := claims.Patch(ctx, shadow.Name, types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, shadow.UID, keys.BackingFinalizer), metav1.PatchOptions{})
		return err
	case shadow == nil && real.Status.Phase == corev1.VolumeReleased && real.Spec.ClaimRef.UID != "":
		return patchVolume(ctx, volumes, real, map[string]any{"spec": map[string]any{"claimRef": map[string]any{"uid": nil, "resourceVersion": nil}}})
	case shadow == nil && marked && real.Spec.ClaimRef.UID == "":
		notes := maps.Clone(old.Annotations)
		// Kubernetes writes its own, and would take the claim for one that has lost its volume.
		maps.DeleteFunc(notes, func(key, _ string) bool { return strings.Contains(key, "kubernetes.io/") })
		anew := old.DeepCopy()
		anew.ObjectMeta = metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name, Labels: old.Labels, Annotations: notes, Finalizers: []string{keys.BackingFinalizer}}
		anew.Status = corev1.PersistentVolumeClaimStatus{}
		_, err := claims.Create(ctx, anew, metav1.CreateOptions{})
		return err
	case shadow != nil && shadow.UID != old.UID && marked && real.Status.Phase == corev1.VolumeBound && shadow.Status.Phase == corev1.ClaimBound:
		return patchVolume(ctx, volumes, real, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{keys.Healing: nil}},
			"spec":     map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimDelete}})
	}
	return nil
}
