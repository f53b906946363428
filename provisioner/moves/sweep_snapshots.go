package moves

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// sweepSnapshots removes the snapshots of sources in a namespace whose moves are over. A
// cluster may have no VolumeSnapshots, or not let this one see them.
func (c *Controller) sweepSnapshots(ctx context.Context, at site, namespace string) error {
	if at.Dynamic == nil {
		return nil
	}
	client := at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(namespace)
	list, err := client.List(ctx, c.ours())
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list snapshots of moves in namespace %s: %w", namespace, err)
	}
	for i := range list.Items {
		taken := &list.Items[i]
		over, err := c.isOver(ctx, types.UID(taken.GetLabels()[keys.MoveOf]))
		if err != nil {
			return err
		}
		if !over || taken.GetDeletionTimestamp() != nil || !moverOf(taken) {
			continue
		}
		if err := ignoreGone(client.Delete(ctx, taken.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(taken.GetUID())}}), "delete snapshot "+taken.GetName()); err != nil {
			return err
		}
	}
	return nil
}
