package replicas

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

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
