package moves

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// sweepEvery is the interval between sweeps for objects that late requests have created.
const sweepEvery = 10 * time.Minute

func (c *Controller) runSweep(ctx context.Context) {
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

// sweep deletes movers, snapshots and real claims of finished moves: a late request of a
// replaced provisioner may have created them after the end. Real claims are deleted only if
// no virtual volume ever used them. Clusters that take no requests now are skipped until
// the next sweep.
func (c *Controller) sweep(ctx context.Context) error {
	errs := []error{c.sweepRecords(ctx), c.sweepMovers(ctx), c.sweepClaims(ctx, c.sites.Home(), c.Place.StorageNamespace),
		c.sweepSnapshots(ctx, c.sites.Home(), c.Place.StorageNamespace)}
	for _, id := range c.Clusters.IDs() {
		at, why := c.sites.Reach(id)
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

// sweepRecords queues moves that are over and of which somebody has written a record since: a
// replaced provisioner wrote the first one, when the last was gone.
func (c *Controller) sweepRecords(ctx context.Context) error {
	secrets := map[types.UID]bool{}
	of := metav1.ListOptions{LabelSelector: keys.MoveOf}
	err := site.EachPage(ctx, of, c.Client.CoreV1().Secrets(c.Namespace).List, func(page *corev1.SecretList) {
		for i := range page.Items {
			if _, ok := page.Items[i].Data[recordKey]; ok {
				secrets[types.UID(page.Items[i].Labels[keys.MoveOf])] = true
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list records of moves: %w", err)
	}
	for _, move := range controller.All[v1alpha1.VolumeMove](c.Objects) {
		if !secrets[move.UID] || c.Records.has(move.UID) || !decide.IsFinished(move) {
			continue
		}
		known, err := c.read(ctx, move.UID)
		if err != nil {
			return err
		}
		if known != nil {
			c.Records.set(move.UID, known.record)
			c.queue.Add(moveKey{types.NamespacedName{Namespace: move.Namespace, Name: move.Name}, move.UID})
		}
	}
	return nil
}

// ownObjects selects the objects that moves of this home created.
func (c *Controller) ownObjects() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: keys.MoveOf + "," + keys.HomeID + "=" + c.Place.HomeID}
}

// sweepMovers deletes movers at home, and their keys.
func (c *Controller) sweepMovers(ctx context.Context) error {
	core := c.Client.CoreV1()
	pods, err := core.Pods(c.Place.StorageNamespace).List(ctx, c.ownObjects())
	if err != nil {
		return fmt.Errorf("list movers: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if left, err := c.isLeft(ctx, pod); err != nil {
			return err
		} else if !left {
			continue
		}
		if err := site.IgnoreGone(core.Secrets(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}), "delete Secret of mover "+
			pod.Name); err != nil {
			return err
		}
		if err := site.IgnoreGone(core.Pods(pod.Namespace).Delete(ctx, pod.Name, only(pod.UID)), "delete mover "+pod.Name); err != nil {
			return err
		}
	}
	return nil
}

// sweepShadows deletes the ShadowPods of movers in a namespace of a remote cluster, and
// their keys.
func (c *Controller) sweepShadows(ctx context.Context, at site.Site, namespace string) error {
	var shadows []remotev1alpha1.ShadowPod
	err := site.EachPage(ctx, c.ownObjects(), at.Remote.ShadowPods(namespace).List, func(page *remotev1alpha1.ShadowPodList) {
		shadows = append(shadows, page.Items...)
	})
	if err != nil {
		return fmt.Errorf("list ShadowPods of movers in namespace %s: %w", namespace, err)
	}
	for i := range shadows {
		shadow := &shadows[i]
		if left, err := c.isLeft(ctx, shadow); err != nil {
			return err
		} else if !left {
			continue
		}
		if err := site.IgnoreGone(at.Client.CoreV1().Secrets(namespace).Delete(ctx, shadow.Name, metav1.DeleteOptions{}),
			"delete Secret of mover "+
				shadow.Name); err != nil {
			return err
		}
		if err := site.IgnoreGone(at.Remote.ShadowPods(namespace).Delete(ctx, shadow.Name, only(shadow.UID)), "delete ShadowPod "+
			shadow.Name); err != nil {
			return err
		}
	}
	return nil
}

// isLeft says whether an object is a leftover of a finished move. It must also have the
// name of a mover's object: users of a remote namespace may write the label of a move.
func (c *Controller) isLeft(ctx context.Context, object metav1.Object) (bool, error) {
	move := object.GetLabels()[keys.MoveOf]
	if object.GetDeletionTimestamp() != nil || !strings.HasPrefix(object.GetName(), fmt.Sprintf("move-%s-", move)) {
		return false, nil
	}
	return c.isOver(ctx, types.UID(move))
}

// sweepClaims deletes the real claims in a namespace.
func (c *Controller) sweepClaims(ctx context.Context, at site.Site, namespace string) error {
	core := at.Client.CoreV1().PersistentVolumeClaims(namespace)
	var claims []corev1.PersistentVolumeClaim
	err := site.EachPage(ctx, c.ownObjects(), core.List, func(page *corev1.PersistentVolumeClaimList) {
		claims = append(claims, page.Items...)
	})
	if err != nil {
		return fmt.Errorf("list real claims of moves in namespace %s: %w", namespace, err)
	}
	for i := range claims {
		b := &claims[i]
		if !backing.Unpublished(b) || b.Labels[keys.HomeID] != c.Place.HomeID {
			continue
		}
		over, err := c.isOver(ctx, types.UID(b.Labels[keys.MoveOf]))
		if err != nil {
			return err
		}
		if over {
			over, err = c.isUnused(ctx, b.UID)
		}
		if err != nil {
			return err
		}
		if !over {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, b.UID,
			b.ResourceVersion, keys.BackingFinalizer)
		_, err = core.Patch(ctx, b.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if err := site.IgnoreGone(err, "let real claim "+b.Name+" go"); err != nil {
			return err
		}
		if err := site.IgnoreGone(core.Delete(ctx, b.Name, only(b.UID)), "delete real claim "+b.Name); err != nil {
			return err
		}
	}
	return nil
}

// sweepSnapshots deletes the snapshots of sources in a namespace whose moves are finished, those of
// one source and of several. The cluster may not serve them, or home may not have the right to read
// them.
func (c *Controller) sweepSnapshots(ctx context.Context, at site.Site, namespace string) error {
	if at.Dynamic == nil {
		return nil
	}
	if err := c.sweepKind(ctx, at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(namespace), namespace); err != nil &&
		!apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return err
	}
	for _, version := range volumesnapshot.GroupVersions {
		err := c.sweepKind(ctx, at.Dynamic.Resource(volumesnapshot.GroupSnapshots(version)).Namespace(namespace), namespace)
		if apierrors.IsNotFound(err) {
			continue
		}
		if apierrors.IsForbidden(err) {
			return nil
		}
		return err
	}
	return nil
}

// sweepKind is sweepSnapshots for one kind of snapshots.
func (c *Controller) sweepKind(ctx context.Context, client dynamic.ResourceInterface, namespace string) error {
	var found []unstructured.Unstructured
	err := site.EachPage(ctx, c.ownObjects(), client.List, func(page *unstructured.UnstructuredList) { found = append(found, page.Items...) })
	if err != nil {
		return fmt.Errorf("list snapshots of moves in namespace %s: %w", namespace, err)
	}
	for i := range found {
		taken := &found[i]
		if left, err := c.isLeft(ctx, taken); err != nil {
			return err
		} else if !left {
			continue
		}
		if err := site.IgnoreGone(client.Delete(ctx, taken.GetName(), only(taken.GetUID())), "delete snapshot "+taken.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// isUnused asks the API server whether no virtual volume refers to a real claim, whatever
// the claim's own labels say.
func (c *Controller) isUnused(ctx context.Context, claim types.UID) (bool, error) {
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

// isOver asks the API server whether a move is finished. Its record was written before any
// other object of it was created.
func (c *Controller) isOver(ctx context.Context, move types.UID) (bool, error) {
	known, err := c.read(ctx, move)
	return err == nil && (known == nil || known.record.Over()), err
}
