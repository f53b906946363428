package moves

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// recheckSpace is when a namespace that stays labelled is looked at again.
const recheckSpace = 10 * time.Second

// spaces labels the namespaces in which claims are locked: where the gate is a webhook, it is called for pods of those alone, so that
// a webhook that does not answer stops no others. Whether the gate is there is asked before a pod is stopped, as everywhere.
type spaces struct{ queue *controller.Queue[string] }

func newSpaces() spaces {
	return spaces{queue: controller.NewQueue[string](controller.QueueConfig{
		Name: "namespaces", FirstRetry: 200 * time.Millisecond, LastRetry: recheckSpace, Timeout: stepTimeout,
	})}
}

// runSpaces works until ctx ends.
func (c *Controller) runSpaces(ctx context.Context) error {
	isLocked := func(claim *corev1.PersistentVolumeClaim) bool {
		return claim != nil && claim.Labels[keys.Moving] == keys.MovingNow
	}
	unwatchClaims, err := controller.Watch(c.Claims, func(was, now *corev1.PersistentVolumeClaim) {
		if isLocked(was) != isLocked(now) {
			c.spaces.queue.Add(controller.Either(was, now).Namespace)
		}
	})
	if err != nil {
		return fmt.Errorf("watch claims that are locked: %w", err)
	}
	defer func() { _ = unwatchClaims() }()
	// Also what an earlier run has left, and what somebody else has written.
	unwatchSpaces, err := controller.Watch(c.Namespaces, func(was, now *corev1.Namespace) {
		if now != nil && (now.Labels[keys.Moving] != "" || was != nil && was.Labels[keys.Moving] != "") {
			c.spaces.queue.Add(now.Name)
		}
	})
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	defer func() { _ = unwatchSpaces() }()
	c.spaces.queue.Run(ctx, 1, c.syncSpace)
	return nil
}

// syncSpace labels a namespace while one of its claims is locked, and takes the label off once no move holds any: a move that begins
// meanwhile must not find the label there and lose it before it has locked its claims.
func (c *Controller) syncSpace(ctx context.Context, name string) (after time.Duration, err error) {
	space := c.Space(name)
	if space == nil {
		return 0, nil
	}
	if slices.ContainsFunc(controller.In[corev1.PersistentVolumeClaim](c.Claims, name), func(claim *corev1.PersistentVolumeClaim) bool {
		return claim.Labels[keys.Moving] == keys.MovingNow
	}) {
		if space.Labels[keys.Moving] == keys.MovingNow {
			return 0, nil
		}
		return 0, c.labelSpace(ctx, name, `"`+keys.MovingNow+`"`)
	}
	if space.Labels[keys.Moving] == "" {
		return 0, nil
	}
	c.Records.beginning.Lock()
	defer c.Records.beginning.Unlock()
	if c.Records.holding(func(types.UID) bool { return true })[name] > 0 {
		return recheckSpace, nil
	}
	return 0, c.labelSpace(ctx, name, "null")
}

// labelSpace writes the label of a namespace, as JSON.
func (c *Controller) labelSpace(ctx context.Context, name, value string) error {
	_, err := c.Client.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, keys.Moving, value), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("label namespace %s, so that new pods there wait for moves: %w", name, err)
	}
	return nil
}
