package crash

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// The attributes classes, of these names in both clusters.
const slow, fast = "slow", "fast"

// attributesFlows change the attributes class of a claim that has its volume.
func attributesFlows() []Flow {
	var flows []Flow
	for _, p := range places {
		f := served(Flow{
			Name: "attributes-" + p.name,
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.patch(ctx, w.Bed.Home, c.before.Claim(data), map[string]any{"spec": map[string]any{"volumeAttributesClassName": fast}})
			},
			Play: playModifier,
			Want: func(w *World, c *Case, v *View) error {
				return all(w.bound(v, data, p.cluster), same(c, v), once(c, 1, 1), attributed(c, v))
			},
		}, p)
		f.Setup = func(ctx context.Context, w *World, c *Case) error {
			return w.create(ctx, c, data, now, p.node, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeAttributesClassName = ptr.To(slow) })
		}
		flows = append(flows, f)
	}
	return flows
}

func (w *World) makeAttributes(ctx context.Context) error {
	for cluster, storage := range map[*testbed.Cluster]*instant.Provisioner{w.Bed.Home: w.Bed.HomeStorage, w.Bed.West: w.Bed.WestStorage} {
		for _, name := range []string{slow, fast} {
			class := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: storage.Name(), Parameters: map[string]string{"speed": name}}
			if _, err := cluster.Client().StorageV1().VolumeAttributesClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("make attributes class %s in %s: %w", name, cluster.Name(), err)
			}
		}
	}
	return nil
}

// playModifier changes the attributes of volumes of real drivers, as the resizer of a
// CSI driver does: those of virtual volumes at home, too, for they name that driver.
func playModifier(ctx context.Context, w *World, _ *Case, v *View) error {
	var errs []error
	for _, claim := range v.Claims {
		errs = append(errs, w.modify(ctx, w.Bed.Home, w.Bed.HomeStorage.Name(), claim))
	}
	for _, b := range v.Backings {
		if v.clusterOf(b) == "west" {
			errs = append(errs, w.modify(ctx, w.Bed.West, w.Bed.WestStorage.Name(), b))
		} else {
			errs = append(errs, w.modify(ctx, w.Bed.Home, w.Bed.HomeStorage.Name(), b))
		}
	}
	return errors.Join(errs...)
}

func (w *World) modify(ctx context.Context, cluster *testbed.Cluster, driver string, claim *corev1.PersistentVolumeClaim) error {
	want := ptr.Deref(claim.Spec.VolumeAttributesClassName, "")
	if want == "" || claim.Status.Phase != corev1.ClaimBound || ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, "") == want {
		return nil
	}
	volumes, claims := cluster.Client().CoreV1().PersistentVolumes(), cluster.Client().CoreV1().PersistentVolumeClaims(claim.Namespace)
	volume, err := volumes.Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get volume %s: %w", claim.Spec.VolumeName, err)
	}
	if volume.Spec.CSI.Driver != driver {
		return nil
	}
	if _, err := volumes.Patch(ctx, volume.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"volumeAttributesClassName":%q}}`, want), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change volume %s: %w", volume.Name, err)
	}
	change := fmt.Appendf(nil, `{"status":{"currentVolumeAttributesClassName":%q}}`, want)
	if _, err := claims.Patch(ctx, claim.Name, types.MergePatchType, change, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write status of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// attributed says what does not have the new attributes class.
func attributed(c *Case, v *View) error {
	claim := v.Claim(data)
	backings, volumes, reals := v.of(c.uid(data))
	if claim == nil || len(backings) != 1 || len(volumes) != 1 || len(reals) != 1 {
		return errIncomplete
	}
	for what, class := range map[string]*string{
		"the claim":          claim.Status.CurrentVolumeAttributesClassName,
		"the volume":         volumes[0].Spec.VolumeAttributesClassName,
		"the backing claim":  backings[0].Status.CurrentVolumeAttributesClassName,
		"the backing's wish": backings[0].Spec.VolumeAttributesClassName,
		"the real volume":    reals[0].Spec.VolumeAttributesClassName,
	} {
		if got := ptr.Deref(class, ""); got != fast {
			return fmt.Errorf("%s has attributes class %q", what, got)
		}
	}
	return nil
}
