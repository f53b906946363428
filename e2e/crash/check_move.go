package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// movedWell says what is wrong with a move that must be over and forgotten, whether it
// was committed or went back: nil if its claim is bound to one whole copy in which the
// application goes on, no pod was ever where it could not have its volume, and nothing
// else is left.
func (w *World) movedWell(c *Case, v *View) error {
	claim := v.Claim(data)
	if !c.moving.over {
		return fmt.Errorf("the move is in phase %s: %s", c.moving.status, c.moving.why)
	}
	if claim == nil || len(v.Volumes) != 1 {
		return fmt.Errorf("there are %d claims and %d volumes", len(v.Claims), len(v.Volumes))
	}
	if err := all(w.bound(v, data, v.Volumes[0].Labels[keys.Cluster]), once(c, 2, 2)); err != nil {
		return err
	}
	if len(v.Backings) != 1 || len(v.Reals) != 1 || len(w.data(c)) != 1 {
		return fmt.Errorf("there are %d backing claims, %d real volumes and the data of %v", len(v.Backings), len(v.Reals), w.data(c))
	}
	b := v.Backings[0]
	switch {
	case slices.Contains(claim.Finalizers, keys.MoveFinalizer), claim.Annotations[keys.Move] != "", claim.Annotations[keys.MoveTouched] != "", claim.Labels[keys.Moving] != "":
		return fmt.Errorf("the move has left traces on the claim: %v %v %v", claim.Finalizers, claim.Annotations, claim.Labels)
	case b.Labels[keys.MoveOf] != "":
		return fmt.Errorf("backing claim %s is still the move's", b.Name)
	case v.Reals[0].Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return fmt.Errorf("real volume %s has policy %s", v.Reals[0].Name, v.Reals[0].Spec.PersistentVolumeReclaimPolicy)
	}
	for _, violation := range slices.Concat(w.Bed.HomeNodes.Violations(c.Namespace), w.Bed.WestNodes.Violations(b.Namespace)) {
		return errors.New(violation.String())
	}
	if err := w.nothingLeft(context.Background(), c); err != nil {
		return err
	}
	return w.goesOn(c, v.Reals[0])
}

// moved is movedWell, and without a fault the volume must be where it was to go: in west,
// and if a class was asked for, there under another name than the claim's, which the
// source had. A fault may also end a move.
func (w *World) moved(c *Case, v *View, class string) error {
	if err := w.movedWell(c, v); err != nil || c.Fault != "" {
		return err
	}
	cluster, backing := v.Volumes[0].Labels[keys.Cluster], v.Backings[0]
	switch {
	case cluster != "west":
		return fmt.Errorf("the volume is in cluster %s: %s", cluster, c.moving.why)
	case class != "" && (ptr.Deref(backing.Spec.StorageClassName, "") != class || backing.Name == data):
		return fmt.Errorf("the volume is in claim %s of class %s: %s", backing.Name, ptr.Deref(backing.Spec.StorageClassName, ""), c.moving.why)
	}
	return nil
}

// goesOn says whether the application counts on in a volume that holds all it wrote.
func (w *World) goesOn(c *Case, real *corev1.PersistentVolume) error {
	folder, err := w.Bed.Disks.Of(real)
	if err != nil {
		return err
	}
	log, err := logOf(folder)
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	lines, err := continues(log, c.moving.log)
	switch {
	case err != nil:
		return err
	case c.moving.settled == 0:
		c.moving.settled = lines
		fallthrough
	case lines < c.moving.settled+5:
		return fmt.Errorf("the application does not count on: %d lines, of which %d are from before", lines, c.moving.settled)
	}
	return nil
}

// nothingLeft says what there still is for the sake of a move.
func (w *World) nothingLeft(ctx context.Context, c *Case) error {
	ofIt := metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(c.moving.uid)}
	core, there := w.Bed.Home.Client().CoreV1(), w.Bed.West.Client().CoreV1()
	for where, namespace := range map[string]string{"the records": fabric.System, "the movers' keys at home": fabric.Storage} {
		secrets, err := core.Secrets(namespace).List(ctx, ofIt)
		if err != nil || len(secrets.Items) > 0 {
			return errors.Join(fmt.Errorf("%s are not gone", where), err)
		}
	}
	secrets, err := there.Secrets("").List(ctx, ofIt)
	if err != nil || len(secrets.Items) > 0 {
		return errors.Join(errors.New("the movers' keys in west are not gone"), err)
	}
	shadows, err := w.Bed.Agents.ShadowPods("").List(ctx, ofIt)
	if err != nil || len(shadows.Items) > 0 {
		return errors.Join(errors.New("ShadowPods of movers are not gone"), err)
	}
	for where, pods := range map[string]interface {
		List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error)
	}{"home": core.Pods(fabric.Storage), "west": there.Pods("")} {
		movers, err := pods.List(ctx, ofIt)
		if err != nil || len(movers.Items) > 0 {
			return errors.Join(fmt.Errorf("movers in %s are not gone", where), err)
		}
	}
	apps, err := core.Pods(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the pods of %s: %w", c.Namespace, err)
	}
	running := 0
	for i := range apps.Items {
		if slices.Contains(apps.Items[i].Spec.SchedulingGates, corev1.PodSchedulingGate{Name: keys.MovingGate}) {
			return fmt.Errorf("pod %s waits at the gate", apps.Items[i].Name)
		}
		if apps.Items[i].Status.Phase == corev1.PodRunning {
			running++
		}
	}
	if running != 1 {
		return fmt.Errorf("%d pods of the application run", running)
	}
	return nil
}
