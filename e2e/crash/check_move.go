package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// movedWell says what is wrong with moves that must be over and forgotten, whether they
// were committed or went back: nil if each claim is bound to one whole copy in which the
// application goes on, no pod was ever where it could not have its volume, and nothing
// else is left.
func (w *World) movedWell(c *Case, v *View) error {
	claims := c.moving.trip.claims
	switch {
	case c.moving.torn != "":
		return errors.New(c.moving.torn)
	case !c.moving.over:
		return fmt.Errorf("the move is in phase %s: %s", c.moving.status, c.moving.why)
	case len(v.Claims) != len(claims) || len(v.Volumes) != len(claims):
		return fmt.Errorf("there are %d claims and %d volumes", len(v.Claims), len(v.Volumes))
	}
	copies := len(claims) * (len(c.moving.uids) + 1)
	if err := once(c, copies, copies); err != nil {
		return err
	}
	if len(v.Backings) != len(claims) || len(v.Reals) != len(claims) || len(w.data(c)) != len(claims) {
		return fmt.Errorf("there are %d backing claims, %d real volumes and the data of %v", len(v.Backings), len(v.Reals), w.data(c))
	}
	for _, name := range claims {
		if err := w.settled(v, name); err != nil {
			return err
		}
	}
	spaces := []string{c.Namespace}
	for _, b := range v.Backings {
		if v.clusterOf(b) != keys.Home {
			spaces = append(spaces, b.Namespace)
		}
	}
	violations := w.Bed.HomeNodes.Violations(c.Namespace)
	for _, remote := range w.remotes {
		violations = append(violations, remote.bed.WestNodes.Violations(spaces...)...)
	}
	if len(violations) > 0 {
		return errors.New(violations[0].String())
	}
	if err := all(w.nothingLeft(context.Background(), c), w.emptied(c)); err != nil {
		return err
	}
	for _, name := range claims {
		_, _, reals := v.of(v.Claim(name).UID)
		if err := w.goesOn(c.moving.volumes[name], reals[0]); err != nil {
			return fmt.Errorf("claim %s: %w", name, err)
		}
	}
	return nil
}

// settled says what is wrong with a claim after a move.
func (w *World) settled(v *View, name string) error {
	claim := v.Claim(name)
	if claim == nil {
		return fmt.Errorf("claim %s is gone", name)
	}
	backings, volumes, reals := v.of(claim.UID)
	if len(volumes) != 1 {
		return fmt.Errorf("claim %s has %d volumes", name, len(volumes))
	}
	if err := w.bound(v, name, volumes[0].Labels[keys.Cluster]); err != nil {
		return err
	}
	switch b := backings[0]; {
	case slices.Contains(claim.Finalizers, keys.MoveFinalizer), claim.Annotations[keys.Move] != "", claim.Annotations[keys.MoveTouched] != "", claim.Labels[keys.Moving] != "":
		return fmt.Errorf("the move has left traces on claim %s: %v %v %v", name, claim.Finalizers, claim.Annotations, claim.Labels)
	case b.Labels[keys.MoveOf] != "":
		return fmt.Errorf("backing claim %s is still the move's", b.Name)
	case reals[0].Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return fmt.Errorf("real volume %s has policy %s", reals[0].Name, reals[0].Spec.PersistentVolumeReclaimPolicy)
	}
	return nil
}

// movedTo is movedWell, and without a fault the volumes must be where they were to go; and
// if a class was asked for, there under another name than the claim's, which the source
// had. A fault may also end a move. All claims of a group are in one cluster.
func (w *World) movedTo(c *Case, v *View, t trip) error {
	if err := all(w.movedWell(c, v), together(v)); err != nil || c.Fault != "" {
		return err
	}
	cluster, b := v.Volumes[0].Labels[keys.Cluster], v.Backings[0]
	switch {
	case cluster != t.to:
		return fmt.Errorf("the volume is in cluster %s: %s", cluster, c.moving.why)
	case t.real != "" && (ptr.Deref(b.Spec.StorageClassName, "") != t.real || b.Name == data):
		return fmt.Errorf("the volume is in claim %s of class %s: %s", b.Name, ptr.Deref(b.Spec.StorageClassName, ""), c.moving.why)
	}
	return nil
}

// stayed is movedWell, and without a fault the move must have been aborted, and the volumes
// be where they were.
func (w *World) stayed(c *Case, v *View, t trip) error {
	if err := all(w.movedWell(c, v), together(v)); err != nil || c.Fault != "" {
		return err
	}
	if cluster := v.Volumes[0].Labels[keys.Cluster]; !c.moving.aborted || cluster != t.from {
		return fmt.Errorf("the user aborted: %v, and the volume is in cluster %s: %s", c.moving.aborted, cluster, c.moving.why)
	}
	return nil
}

// together says whether volumes are in different clusters.
func together(v *View) error {
	for _, volume := range v.Volumes {
		if volume.Labels[keys.Cluster] != v.Volumes[0].Labels[keys.Cluster] {
			return fmt.Errorf("the volumes of one pod are in clusters %s and %s", v.Volumes[0].Labels[keys.Cluster], volume.Labels[keys.Cluster])
		}
	}
	return nil
}

// goesOn says whether the application counts on in a volume that holds all it wrote, and
// the ballast.
func (w *World) goesOn(t *tracked, real *corev1.PersistentVolume) error {
	at, err := w.diskOf(real)
	if err != nil {
		return err
	}
	log, err := at.log()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	lines, err := continues(log, t.log)
	switch {
	case err != nil:
		return err
	case t.settled == 0:
		t.settled = lines
		fallthrough
	case lines < t.settled+5:
		return fmt.Errorf("the application does not count on: %d lines, of which %d are from before", lines, t.settled)
	}
	if sum, err := at.sum(); err != nil || sum != t.ballast {
		return errors.Join(errors.New("what lay in the volume beside the log is not what it was"), err)
	}
	return nil
}
