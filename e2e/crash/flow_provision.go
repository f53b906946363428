package crash

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// provisionFlows give a new claim its volume.
func provisionFlows() []Flow {
	provision := func(name, class string, p place) Flow {
		return Flow{
			Name: name,
			Act:  func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, class, p.node) },
			Want: func(w *World, c *Case, v *View) error {
				return all(w.bound(v, data, p.cluster), once(c, 1, 1))
			},
		}
	}
	remoteWait := provision("provision-remote-wait", wait, places[1])
	remoteWait.Play = chooseInWest
	flows := []Flow{
		provision("provision-local", now, places[0]),
		provision("provision-remote", now, places[1]),
		remoteWait,
	}
	for _, p := range places {
		// A copy of a claim is in the cluster of its source.
		copied := served(Flow{
			Name: "copy-" + p.name,
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.create(ctx, c, "copy", now, p.node, func(claim *corev1.PersistentVolumeClaim) {
					claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: data}
				})
			},
			Want: func(w *World, c *Case, v *View) error {
				return all(w.bound(v, data, p.cluster), w.bound(v, "copy", p.cluster), w.copied(c, v), once(c, 2, 2))
			},
		}, p)
		// The claim is deleted while its real volume is not made yet.
		abandoned := Flow{
			Name: "abandon-" + p.name,
			Setup: func(ctx context.Context, w *World, c *Case) error {
				return w.create(ctx, c, data, stuck, p.node)
			},
			Ready: func(_ *World, _ *Case, v *View) error { return hasBacking(v) },
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.delete(ctx, w.Bed.Home, c.Namespace, data)
			},
			Want: func(w *World, c *Case, v *View) error { return all(w.gone(c, v), once(c, 1, 1)) },
		}
		flows = append(flows, copied, abandoned)
	}
	return flows
}

// chooseInWest chooses a node for shadows, as west's scheduler does once a pod
// there uses them: when their virtual claims are bound.
func chooseInWest(ctx context.Context, w *World, _ *Case, v *View) error {
	claim := v.Claim(data)
	if claim == nil || claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	for _, b := range v.Backings {
		if v.clusterOf(b) == "west" && b.Annotations[keys.SelectedNode] == "" && b.DeletionTimestamp == nil {
			return w.choose(ctx, w.Bed.West, b, "west-1")
		}
	}
	return nil
}

func hasBacking(v *View) error {
	if len(v.Backings) == 0 {
		return errors.New("there is no backing claim")
	}
	return nil
}

// copied says whether the copy's data came from its source.
func (w *World) copied(c *Case, v *View) error {
	sources := map[string]string{}
	for _, storage := range []*instant.Provisioner{w.Bed.HomeStorage, w.Bed.WestStorage} {
		for _, volume := range storage.Volumes() {
			sources[volume.Handle] = volume.Source
		}
	}
	_, _, source := v.of(c.uid(data))
	_, _, made := v.of(c.uid("copy"))
	if len(source) != 1 || len(made) != 1 || sources[made[0].Spec.CSI.VolumeHandle] != source[0].Spec.CSI.VolumeHandle {
		return errors.New("the copy's data is not that of its source")
	}
	return nil
}
