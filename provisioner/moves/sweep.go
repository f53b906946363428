package moves

import (
	"context"
	"fmt"
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

// sweep removes at home the movers and the real claims of moves that are over: a request
// of a provisioner that was replaced may have arrived after that. Of claims only those
// that no virtual volume ever stood for.
func (c *Controller) sweep(ctx context.Context) error {
	of, core := metav1.ListOptions{LabelSelector: keys.MoveOf}, c.Client.CoreV1()
	pods, err := core.Pods(c.Place.StorageNamespace).List(ctx, of)
	if err != nil {
		return fmt.Errorf("list movers: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		over, err := c.isOver(ctx, types.UID(pod.Labels[keys.MoveOf]))
		if err != nil {
			return err
		}
		if over && pod.DeletionTimestamp == nil {
			if err := ignoreGone(core.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}), "delete mover "+pod.Name); err != nil {
				return err
			}
		}
	}
	claims, err := core.PersistentVolumeClaims(c.Place.StorageNamespace).List(ctx, of)
	if err != nil {
		return fmt.Errorf("list real claims of moves: %w", err)
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
		if !over {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, b.UID, b.ResourceVersion, keys.BackingFinalizer)
		if _, err := core.PersistentVolumeClaims(b.Namespace).Patch(ctx, b.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); ignoreGone(err, "") != nil {
			return fmt.Errorf("let real claim %s go: %w", b.Name, err)
		}
		if err := ignoreGone(core.PersistentVolumeClaims(b.Namespace).Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &b.UID}}), "delete real claim "+b.Name); err != nil {
			return err
		}
	}
	return nil
}

// isOver asks whether a move is over. Its record was there before anything of it was.
func (c *Controller) isOver(ctx context.Context, move types.UID) (bool, error) {
	known, err := c.read(ctx, move)
	return err == nil && (known == nil || known.record.Over()), err
}
