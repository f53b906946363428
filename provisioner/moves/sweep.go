package moves

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// sweepEvery is how often it is looked for what late requests made.
const sweepEvery = 10 * time.Minute

// sweepAlways sweeps until ctx ends.
func (c *Controller) sweepAlways(ctx context.Context) {
	for {
		if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Will be swept later", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepEvery):
		}
	}
}

// sweep removes the movers, the snapshots and the real claims of moves that are over: a request of a
// provisioner that was replaced may have arrived after that. Of claims only those that
// no virtual volume ever stood for. A cluster that cannot be asked now is left for later.
func (c *Controller) sweep(ctx context.Context) error {
	errs := []error{c.sweepMovers(ctx), c.sweepClaims(ctx, c.here(), c.Place.StorageNamespace), c.sweepSnapshots(ctx, c.here(), c.Place.StorageNamespace)}
	for _, id := range c.Clusters.IDs() {
		at, why := c.reach(id)
		object := c.Clusters.Object(id)
		if why != "" || at.Remote == nil || object == nil {
			continue
		}
		for _, namespace := range object.Status.Namespaces {
			errs = append(errs, c.sweepShadows(ctx, at, namespace), c.sweepClaims(ctx, at, namespace), c.sweepSnapshots(ctx, at, namespace))
		}
	}
	return errors.Join(errs...)
}

// ours selects what moves of this home made.
func (c *Controller) ours() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: keys.MoveOf + "," + keys.HomeID + "=" + c.Place.HomeID}
}

// sweepMovers removes movers at home, and their keys.
func (c *Controller) sweepMovers(ctx context.Context) error {
	core := c.Client.CoreV1()
	pods, err := core.Pods(c.Place.StorageNamespace).List(ctx, c.ours())
	if err != nil {
		return fmt.Errorf("list movers: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		over, err := c.isOver(ctx, types.UID(pod.Labels[keys.MoveOf]))
		if err != nil {
			return err
		}
		if !over || pod.DeletionTimestamp != nil || !moverOf(pod) {
			continue
		}
		if err := ignoreGone(core.Secrets(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}), "delete Secret of mover "+pod.Name); err != nil {
			return err
		}
		if err := ignoreGone(core.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}), "delete mover "+pod.Name); err != nil {
			return err
		}
	}
	return nil
}

// sweepShadows removes the ShadowPods of movers in a namespace of a remote cluster, and
// their keys.
func (c *Controller) sweepShadows(ctx context.Context, at site, namespace string) error {
	shadows, err := at.Remote.ShadowPods(namespace).List(ctx, c.ours())
	if err != nil {
		return fmt.Errorf("list ShadowPods of movers in namespace %s: %w", namespace, err)
	}
	for i := range shadows.Items {
		shadow := &shadows.Items[i]
		over, err := c.isOver(ctx, types.UID(shadow.Labels[keys.MoveOf]))
		if err != nil {
			return err
		}
		if !over || shadow.DeletionTimestamp != nil || !moverOf(shadow) {
			continue
		}
		if err := ignoreGone(at.Client.CoreV1().Secrets(namespace).Delete(ctx, shadow.Name, metav1.DeleteOptions{}), "delete Secret of mover "+shadow.Name); err != nil {
			return err
		}
		if err := ignoreGone(at.Remote.ShadowPods(namespace).Delete(ctx, shadow.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &shadow.UID}}), "delete ShadowPod "+shadow.Name); err != nil {
			return err
		}
	}
	return nil
}

// moverOf says whether an object has the name of a mover of the move that it says it is
// of: its label may be written by users of a remote namespace.
func moverOf(object metav1.Object) bool {
	return strings.HasPrefix(object.GetName(), fmt.Sprintf("move-%s-", object.GetLabels()[keys.MoveOf]))
}

// sweepClaims removes the real claims in a namespace.
func (c *Controller) sweepClaims(ctx context.Context, at site, namespace string) error {
	core := at.Client.CoreV1().PersistentVolumeClaims(namespace)
	claims, err := core.List(ctx, c.ours())
	if err != nil {
		return fmt.Errorf("list real claims of moves in namespace %s: %w", namespace, err)
	}
	for i := range claims.Items {
		b := &claims.Items[i]
		if !backing.Unpublished(b) || b.Labels[keys.HomeID] != c.Place.HomeID {
			continue
		}
		over, err := c.isOver(ctx, types.UID(b.Labels[keys.MoveOf]))
		if err != nil {
			return err
		}
		if over {
			over, err = c.standsForNone(ctx, b.UID)
		}
		if err != nil {
			return err
		}
		if !over {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, b.UID, b.ResourceVersion, keys.BackingFinalizer)
		_, err = core.Patch(ctx, b.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if err := ignoreGone(err, "let real claim "+b.Name+" go"); err != nil {
			return err
		}
		if err := ignoreGone(core.Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &b.UID}}), "delete real claim "+b.Name); err != nil {
			return err
		}
	}
	return nil
}

// standsForNone asks whether no virtual volume is for a real claim, whatever that says of
// itself.
func (c *Controller) standsForNone(ctx context.Context, claim types.UID) (bool, error) {
	volumes, err := c.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{LabelSelector: keys.Cluster})
	if err != nil {
		return false, fmt.Errorf("list virtual volumes: %w", err)
	}
	for i := range volumes.Items {
		if ref, err := backing.RefOf(&volumes.Items[i]); err == nil && ref.UID == claim {
			return false, nil
		}
	}
	return true, nil
}

// isOver asks whether a move is over. Its record was there before anything of it was.
func (c *Controller) isOver(ctx context.Context, move types.UID) (bool, error) {
	known, err := c.read(ctx, move)
	return err == nil && (known == nil || known.record.Over()), err
}
