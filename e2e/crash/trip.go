package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	moveName = "move"
	// limit is that of the moves in bytes a second: a pass takes seconds.
	limit = "3Mi"
	// more is the name of the second claim of a group.
	more = "more"
)

// trip is what a case moves.
type trip struct {
	// class is the virtual class of the claims, whose volumes are first where node is, which
	// is in the cluster from.
	class, node, from string
	// to is the cluster of the target, real the real class that is asked for there; empty:
	// none.
	to, real string
	claims   []string
	// block has the volumes be block devices.
	block bool
	// single has the claims be for one pod.
	single bool
	// keep is for how long the copy at the source is kept.
	keep time.Duration
}

// flow is a flow of moves of its kind, which must end at the target.
func (t trip) flow(name string) Flow {
	return Flow{
		Name: name, Reads: 1, Moves: true,
		Setup: t.deploy,
		Ready: func(w *World, c *Case, v *View) error { return w.counts(c, v, t.from) },
		Act:   func(ctx context.Context, w *World, c *Case) error { return w.begin(ctx, c, moveName, t) },
		Play:  func(ctx context.Context, w *World, c *Case, v *View) error { return w.watchMove(ctx, c, v) },
		Want:  func(w *World, c *Case, v *View) error { return w.movedTo(c, v, t) },
	}
}

// deploy makes the claims, and once they have their volumes a Deployment that counts in
// them and may run anywhere.
func (t trip) deploy(ctx context.Context, w *World, c *Case) error {
	for _, name := range t.claims {
		if err := w.create(ctx, c, name, t.class, t.node, t.shape); err != nil {
			return err
		}
	}
	c.moving.trip = t
	if t.class == either {
		// Else the scheduler might choose another node with the pod.
		if err := w.awaitClaims(ctx, c); err != nil {
			return err
		}
	}
	return w.deploy(ctx, c, t)
}

// awaitClaims waits until the claims of a case have their volumes.
func (w *World) awaitClaims(ctx context.Context, c *Case) error {
	return w.awaitCase(ctx, c, func(v *View) (missing error) {
		for _, name := range c.moving.trip.claims {
			missing = errors.Join(missing, w.bound(v, name, c.moving.trip.from))
		}
		return missing
	})
}

// awaitCase waits during the set-up of a case until nothing is missing.
func (w *World) awaitCase(ctx context.Context, c *Case, missing func(*View) error) error {
	for deadline := time.Now().Add(w.limits.setUp); ; time.Sleep(w.limits.often) {
		switch err := missing(w.view(c)); {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("set-up of %s: %w", c.Namespace, err)
		}
	}
}

// shape makes a claim one of the trip.
func (t trip) shape(claim *corev1.PersistentVolumeClaim) {
	if t.single {
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}
	if t.block {
		claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = *resource.NewQuantity(deviceSize, resource.BinarySI)
	}
}

// begin makes a VolumeMove that takes a trip from where the claims are, and has nothing
// kept of it.
func (w *World) begin(ctx context.Context, c *Case, name string, t trip) error {
	for _, claim := range t.claims {
		if err := c.moving.volumes[claim].fill(); err != nil {
			return err
		}
	}
	made, err := w.moves.In(c.Namespace).Create(ctx, &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.VolumeMoveSpec{
			Claims: t.claims, Target: v1alpha1.MoveTarget{Cluster: t.to}, ClassName: t.real,
			KeepSourceFor: &metav1.Duration{Duration: max(t.keep, time.Second)}, TTLSecondsAfterFinished: ptr.To(int32(1)),
			BandwidthLimit: ptr.To(resource.MustParse(limit)),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a VolumeMove in %s: %w", c.Namespace, err)
	}
	w.ledger.owns(c.Namespace, made.UID, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving.name, c.moving.trip, c.moving.uids = name, t, append(c.moving.uids, made.UID)
	c.hurt = func(fault Fault) bool { return w.hurt(context.WithoutCancel(ctx), c, fault) }
	return nil
}

// counts says whether the application counts in all volumes of a case, in a cluster where
// alone they are, and remembers them.
func (w *World) counts(c *Case, v *View, cluster string) error {
	for _, name := range c.moving.trip.claims {
		if err := w.bound(v, name, cluster); err != nil {
			return err
		}
	}
	return w.countsAmong(c, v, cluster)
}

// countsAmong is counts where there may be other copies of the volumes.
func (w *World) countsAmong(c *Case, v *View, cluster string) error {
	for _, name := range c.moving.trip.claims {
		i := slices.IndexFunc(v.Backings, func(b *corev1.PersistentVolumeClaim) bool {
			claim := v.Claim(name)
			return claim != nil && b.Labels[keys.ClaimUID] == string(claim.UID) && v.clusterOf(b) == cluster
		})
		if i < 0 {
			return fmt.Errorf("claim %s has no backing claim in %s", name, cluster)
		}
		j := slices.IndexFunc(v.Reals, func(real *corev1.PersistentVolume) bool { return real.Spec.ClaimRef.UID == v.Backings[i].UID })
		if j < 0 {
			return fmt.Errorf("claim %s has no real volume in %s", name, cluster)
		}
		at, err := w.diskOf(v.Reals[j])
		if err != nil {
			return err
		}
		log, err := at.log()
		if err != nil {
			return fmt.Errorf("the application has written nothing: %w", err)
		}
		before := 0
		if known := c.moving.volumes[name]; known != nil {
			before, _ = continues(known.log, "")
		}
		if lines, err := continues(log, ""); err != nil || lines < before+3 {
			return errors.Join(errors.New("the application has hardly counted"), err)
		}
		c.moving.track(name, at)
	}
	return nil
}
