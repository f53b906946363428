package crash

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// rescheduleFlows send a claim elsewhere.
func rescheduleFlows() []Flow {
	home := places[0]
	endsAtHome := func(backings int) func(*World, *Case, *View) error {
		return func(w *World, c *Case, v *View) error {
			return all(w.bound(v, data, home.cluster), once(c, backings, 1))
		}
	}
	return []Flow{
		{
			// The quota of the namespace in west leaves no room.
			Name:  "reschedule-refused",
			Setup: func(ctx context.Context, w *World, c *Case) error { return w.limit(ctx, c) },
			Ready: func(w *World, c *Case, _ *View) error { return w.limited(c) },
			Act:   func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, now, "west") },
			Play:  chooseHome, Want: endsAtHome(1),
		},
		{
			// The real provisioner finds no room on the node.
			Name: "reschedule-full",
			Act:  func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, full, fullNode) },
			// What the place said may be lost between two steps: then it is asked again.
			Play: chooseHome, Want: endsAtHome(3),
		},
		{
			// The scheduler chooses another node while the volume is not made.
			Name:  "reschedule-moved",
			Setup: func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, moved, "west") },
			Ready: func(_ *World, _ *Case, v *View) error { return hasBacking(v) },
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.choose(ctx, w.Bed.Home, w.view(c).Claim(data), home.node)
			},
			Play: chooseHome, Want: endsAtHome(2),
		},
	}
}

// chooseHome chooses a node at home for a claim that has none, as the scheduler
// does once the first choice was refused.
func chooseHome(ctx context.Context, w *World, _ *Case, v *View) error {
	return w.schedule(ctx, v, "home-1")
}

// schedule chooses a node for a claim that has none.
func (w *World) schedule(ctx context.Context, v *View, node string) error {
	claim := v.Claim(data)
	if claim == nil || claim.Spec.VolumeName != "" {
		return nil
	}
	if _, chosen := claim.Annotations[keys.SelectedNode]; chosen {
		return nil
	}
	return w.choose(ctx, w.Bed.Home, claim, node)
}

const quota = "none"

// limit leaves no room for claims in a case's namespace in west.
func (w *World) limit(ctx context.Context, c *Case) error {
	_, err := w.Bed.West.Client().CoreV1().ResourceQuotas(c.Namespace).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: quota},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the quota of %s: %w", c.Namespace, err)
	}
	return nil
}

func (w *World) limited(c *Case) error {
	limit, err := w.Bed.West.Client().CoreV1().ResourceQuotas(c.Namespace).Get(context.Background(), quota, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at the quota of %s: %w", c.Namespace, err)
	}
	if len(limit.Status.Hard) == 0 {
		return errors.New("the quota is not in force yet")
	}
	return nil
}
