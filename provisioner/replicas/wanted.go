package replicas

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// earlierAgain is when a claim whose VolumeReplica is of an earlier one is looked at again.
const earlierAgain = 5 * time.Minute

// runWanted makes the VolumeReplicas that classes and claims ask for, until ctx ends.
func (c *Controller) runWanted(ctx context.Context) error {
	queue := controller.NewQueue[types.NamespacedName](controller.QueueConfig{
		Name: "wanted replicas", FirstRetry: time.Second, LastRetry: time.Minute, Timeout: stepTimeout,
	})
	unwatch, err := controller.Watch(c.Sources.Claims, func(_, now *corev1.PersistentVolumeClaim) {
		if now != nil && now.Status.Phase == corev1.ClaimBound && now.Annotations[keys.Replicated] == "" {
			queue.Add(types.NamespacedName{Namespace: now.Namespace, Name: now.Name})
		}
	})
	if err != nil {
		queue.ShutDown()
		return fmt.Errorf("watch claims: %w", err)
	}
	queue.Run(ctx, 1, c.want)
	return unwatch()
}

// want makes the VolumeReplica of a claim that is to have one, once.
func (c *Controller) want(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	claim := controller.Get[corev1.PersistentVolumeClaim](c.Sources.Claims, key.String())
	if claim == nil {
		return 0, nil
	}
	class := controller.Get[storagev1.StorageClass](c.Sources.Classes, ptr.Deref(claim.Spec.StorageClassName, ""))
	if !virtualclass.Is(class) {
		return 0, nil
	}
	virtual, err := virtualclass.Parse(class)
	if err != nil {
		return 0, nil //nolint:nilerr // claims of the class say so
	}
	if to, _, err := virtual.Replication(claim.Annotations); err == nil && len(to) == 0 {
		return 0, nil
	}
	volume := controller.Get[corev1.PersistentVolume](c.Sources.Volumes, claim.Spec.VolumeName)
	if volume == nil {
		return retryAfter, nil
	}
	wanted, why := decide.Wanted(claim, virtual, volume)
	if wanted == nil {
		if why != "" {
			c.Recorder.Event(claim, corev1.EventTypeWarning, "NotReplicated", why)
		}
		return 0, nil
	}
	replicas := c.Replicas.Replicas(claim.Namespace)
	_, err = replicas.Create(ctx, wanted, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		have, err := replicas.Get(ctx, wanted.Name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("get VolumeReplica %s/%s: %w", wanted.Namespace, wanted.Name, err)
		}
		if !slices.Equal(have.Spec.Claims, wanted.Spec.Claims) || len(have.Spec.Standbys) != 1 ||
			have.Spec.Standbys[0].Cluster != wanted.Spec.Standbys[0].Cluster {
			c.Recorder.Eventf(claim, corev1.EventTypeWarning, "NotReplicated", "no second copy is kept: there is another VolumeReplica %q: make "+
				"one of another name by kubectl lodestone replicate", wanted.Name)
			return 0, nil
		}
		if known := c.Records.Of(have.UID); known != nil && known.ClaimUID != claim.UID {
			c.Recorder.Eventf(claim, corev1.EventTypeWarning, "NotReplicated", "no second copy is kept: VolumeReplica %q is of an earlier claim of "+
				"this name: delete it once nothing that it has sealed is needed, and one for this claim is made", wanted.Name)
			return earlierAgain, nil
		}
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
		c.Recorder.Eventf(claim, corev1.EventTypeWarning, "NotReplicated", "no second copy is kept: %v", err)
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("make VolumeReplica %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	// Once it was made its user decides: one that is deleted is not made again.
	_, err = c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, claim.UID, keys.Replicated, wanted.Name), metav1.PatchOptions{})
	if err := site.IgnoreGone(err, "annotate claim "+key.String()); err != nil {
		return 0, err
	}
	c.Recorder.Eventf(claim, corev1.EventTypeNormal, "Replicated", "VolumeReplica %s keeps a second copy in cluster %s", wanted.Name,
		wanted.Spec.Standbys[0].Cluster)
	return 0, nil
}
