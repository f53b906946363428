package crash

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// endFlows end a claim that has its volume.
func endFlows() []Flow {
	var flows []Flow
	for _, p := range places {
		deleted := func(ctx context.Context, w *World, c *Case) error {
			return w.delete(ctx, w.Bed.Home, c.Namespace, data)
		}
		flows = append(flows,
			served(Flow{
				Name: "delete-" + p.name, Act: deleted,
				Want: func(w *World, c *Case, v *View) error { return all(w.gone(c, v), once(c, 1, 1)) },
			}, p),
			// Once the volume is bound, nothing may be done about it any more: what counts
			// is what comes before.
			Flow{
				Name: "retain-" + p.name,
				Act:  func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, retain, p.node) },
				Play: deleteBound,
				Want: func(w *World, c *Case, v *View) error { return all(w.retained(c, v), once(c, 1, 1)) },
			})
	}
	return flows
}

// deleteBound deletes the claim as soon as it is bound.
func deleteBound(ctx context.Context, w *World, c *Case, v *View) error {
	claim := v.Claim(data)
	if claim == nil || claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil {
		return nil
	}
	return w.delete(ctx, w.Bed.Home, c.Namespace, data)
}

// retained says what is wrong with a volume that must outlive its claim.
func (w *World) retained(c *Case, v *View) error {
	if v.Claim(data) != nil {
		return fmt.Errorf("claim %s is still there", data)
	}
	backings, volumes, reals := v.of(c.uid(data))
	if len(volumes) != 1 || volumes[0].Status.Phase != corev1.VolumeReleased || volumes[0].DeletionTimestamp != nil {
		return fmt.Errorf("there is not just one volume that is released: %s", brief(volumes))
	}
	if len(backings) != 1 || len(reals) != 1 || backings[0].DeletionTimestamp != nil || reals[0].Status.Phase != corev1.VolumeBound {
		return fmt.Errorf("the backing claim is not kept: %d backing claims, %d real volumes", len(backings), len(reals))
	}
	return w.exist(v)
}
