package crash

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// changeFlows change what is about a claim that has its volume.
func changeFlows() []Flow {
	var flows []Flow
	for _, p := range places {
		stays := func(w *World, c *Case, v *View) error {
			return all(w.bound(v, data, p.cluster), same(c, v), once(c, 1, 1))
		}
		flows = append(flows,
			served(Flow{
				Name: "expand-" + p.name,
				Act: func(ctx context.Context, w *World, c *Case) error {
					return w.patch(ctx, w.Bed.Home, c.before.Claim(data), map[string]any{
						"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": larger}}}})
				},
				Want: func(w *World, c *Case, v *View) error { return all(stays(w, c, v), expanded(c, v)) },
			}, p),
			served(Flow{
				Name: "carry-" + p.name,
				Act: func(ctx context.Context, w *World, c *Case) error {
					return w.patch(ctx, w.Bed.Home, c.before.Claim(data), map[string]any{
						"metadata": map[string]any{"labels": map[string]any{"team": "b"}, "annotations": map[string]any{"note": "new"}}})
				},
				Want: func(w *World, c *Case, v *View) error { return all(stays(w, c, v), carried(v)) },
			}, p))
	}
	// Somebody deletes a twin. Shadows are healed by the agent of their cluster.
	return append(flows, served(Flow{
		Name: "heal-local",
		Act: func(ctx context.Context, w *World, c *Case) error {
			return w.delete(ctx, w.Bed.Home, fabric.Storage, c.before.Backings[0].Name)
		},
		Want: func(w *World, c *Case, v *View) error {
			return all(w.bound(v, data, keys.Home), same(c, v), once(c, 2, 1), healed(c, v))
		},
	}, places[0]))
}

var errIncomplete = errors.New("something of the claim is missing")

// larger is the size that a claim is expanded to.
const larger = "2Gi"

// expanded says what is not as large as it must be.
func expanded(c *Case, v *View) error {
	claim := v.Claim(data)
	backings, volumes, reals := v.of(c.uid(data))
	if claim == nil || len(backings) != 1 || len(volumes) != 1 || len(reals) != 1 {
		return errIncomplete
	}
	for what, size := range map[string]string{
		"the claim":          claim.Status.Capacity.Storage().String(),
		"the volume":         volumes[0].Spec.Capacity.Storage().String(),
		"the backing claim":  backings[0].Status.Capacity.Storage().String(),
		"the real volume":    reals[0].Spec.Capacity.Storage().String(),
		"the backing's wish": backings[0].Spec.Resources.Requests.Storage().String(),
	} {
		if size != larger {
			return fmt.Errorf("%s has %s", what, size)
		}
	}
	if len(claim.Status.Conditions) > 0 {
		return fmt.Errorf("the claim has conditions left: %v", claim.Status.Conditions)
	}
	return nil
}

// carried says whether the backing claim has what the user wrote on the claim.
func carried(v *View) error {
	for _, b := range v.Backings {
		if b.Labels["team"] != "b" || b.Annotations["note"] != "new" {
			return errors.New("labels and annotations are not carried")
		}
	}
	return nil
}

// healed says whether a new twin holds the real volume as the old one did.
func healed(c *Case, v *View) error {
	if len(v.Backings) != 1 || len(v.Volumes) != 1 || len(v.Reals) != 1 {
		return errIncomplete
	}
	switch {
	case v.Backings[0].UID == c.before.Backings[0].UID:
		return errors.New("the twin is the old one")
	case v.Reals[0].Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return fmt.Errorf("the real volume has policy %s", v.Reals[0].Spec.PersistentVolumeReclaimPolicy)
	case v.Volumes[0].Annotations[keys.Healing] != "":
		return errors.New("the healing has not ended")
	}
	return nil
}
