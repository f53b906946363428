package replicas

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// This file finds what points that home does not know have left, and removes what of it is at the source of a replica: home was restored
// from a backup of before they began, or a request came late. Nothing of it is of use, and it takes the room of a whole volume. It is
// looked for once in the life of a process, when the first point of a replica is over: the record was just written, so no other process
// makes one.

// clearSource does that after a point that is over. What fails is tried after the next one.
func (c *Controller) clearSource(ctx context.Context, w *activeReplica, over *record.Record) {
	at, err := c.sites.At(over.Point.Source.Cluster)
	if err == nil {
		ctx, cancel := at.WithTimeout(ctx)
		defer cancel()
		err = c.dropLeftovers(ctx, at, over)
	}
	if w.cleared = err == nil; err != nil {
		klog.FromContext(ctx).V(2).Info("What earlier points have left is looked for later", "err", err)
	}
}

// dropLeftovers deletes the movers that read, the claims that were made of snapshots, and the snapshots of all points.
func (c *Controller) dropLeftovers(ctx context.Context, at site.Site, r *record.Record) error {
	source := r.Point.Source
	readers, err := c.moversIn(ctx, at, r, source.Namespace)
	if err != nil {
		return err
	}
	for _, reader := range readers {
		if err := c.copier.Drop(ctx, movers.Mover{Ref: source, Name: reader.Name, Role: moverapi.Sender}); err != nil {
			return err
		}
	}
	of := metav1.ListOptions{LabelSelector: fmt.Sprintf("%s=%s,%s=%s", keys.ReplicaOf, r.UID, keys.HomeID, c.Place.HomeID)}
	var clones []corev1.PersistentVolumeClaim
	claims := at.Client.CoreV1().PersistentVolumeClaims(source.Namespace)
	err = site.EachPage(ctx, of, claims.List, func(page *corev1.PersistentVolumeClaimList) {
		for i := range page.Items {
			if isOfAPoint(&page.Items[i], r) && backing.Unpublished(&page.Items[i]) {
				clones = append(clones, page.Items[i])
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list claims made of snapshots: %w", err)
	}
	for i := range clones {
		ref := source
		ref.Name = clones[i].Name
		if err := c.dropClaim(ctx, ref, clones[i].UID); err != nil {
			return err
		}
	}
	if at.Dynamic == nil {
		return nil
	}
	resources := []schema.GroupVersionResource{volumesnapshot.Snapshots}
	for _, version := range volumesnapshot.GroupVersions {
		if r.Len() > 1 {
			resources = append(resources, volumesnapshot.GroupSnapshots(version))
		}
	}
	for _, resource := range resources {
		client := at.Dynamic.Resource(resource).Namespace(source.Namespace)
		var left []unstructured.Unstructured
		err := site.EachPage(ctx, of, client.List, func(page *unstructured.UnstructuredList) {
			for i := range page.Items {
				if isOfAPoint(&page.Items[i], r) {
					left = append(left, page.Items[i])
				}
			}
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("list snapshots of points: %w", err)
		}
		for i := range left {
			if err := site.IgnoreGone(client.Delete(ctx, left[i].GetName(), only(left[i].GetUID())), "delete snapshot of a point"); err != nil {
				return err
			}
		}
	}
	return nil
}

// isOfAPoint says whether an object has a name that a point gives at its source, and is not going: versions have other names.
func isOfAPoint(object metav1.Object, r *record.Record) bool {
	number, ok := strings.CutPrefix(object.GetName(), fmt.Sprintf("replica-%s-", r.UID))
	return ok && number != "" && number[0] >= '0' && number[0] <= '9' && object.GetDeletionTimestamp() == nil
}

// mostStrays is how many movers are returned that no point has: those that are left are found when these have gone.
const mostStrays = 16

// moversIn returns the movers of a replica in a namespace; while it makes no point none should be there.
func (c *Controller) moversIn(ctx context.Context, at site.Site, r *record.Record, namespace string) (found []decide.Stray, err error) {
	note := func(mover metav1.Object) {
		// Users of a remote namespace may write labels, too.
		if strings.HasPrefix(mover.GetName(), fmt.Sprintf("replica-%s-", r.UID)) && len(found) < mostStrays {
			found = append(found, decide.Stray{Name: mover.GetName(), Leaving: mover.GetDeletionTimestamp() != nil})
		}
	}
	of := metav1.ListOptions{LabelSelector: fmt.Sprintf("%s=%s,%s=%s", keys.MoveOf, r.UID, keys.HomeID, c.Place.HomeID)}
	switch {
	case at.Home:
		err = site.EachPage(ctx, of, at.Client.CoreV1().Pods(namespace).List, func(page *corev1.PodList) {
			for i := range page.Items {
				note(&page.Items[i])
			}
		})
	case at.Remote != nil:
		err = site.EachPage(ctx, of, at.Remote.ShadowPods(namespace).List, func(page *remotev1alpha1.ShadowPodList) {
			for i := range page.Items {
				note(&page.Items[i])
			}
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list movers in namespace %s: %w", namespace, err)
	}
	return found, nil
}
