package clusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// shadows watches our backing claims in one namespace.
type shadows struct {
	cache.SharedIndexInformer
	stop context.CancelFunc
	// failed is true once a request failed before all was known, or was forbidden later, as
	// while the namespace is made anew: the next one may be a minute away.
	failed atomic.Bool
}

// watch starts to watch our backing claims in a namespace, if that is not done.
func (c *connection) watch(namespace string) *shadows {
	c.mu.Lock()
	defer c.mu.Unlock()
	watched, ok := c.shadows[namespace]
	if !ok {
		watched = c.startWatch(namespace)
		c.shadows[namespace] = watched
	}
	return watched
}

// watchAgain watches a namespace anew if that failed before.
func (c *connection) watchAgain(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if watched, ok := c.shadows[namespace]; ok && watched.failed.Load() {
		watched.stop()
		c.shadows[namespace] = c.startWatch(namespace)
	}
}

func (c *connection) startWatch(namespace string) *shadows {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(namespace), informers.WithTransform(cached),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = c.selector() }))
	watched := &shadows{SharedIndexInformer: factory.Core().V1().PersistentVolumeClaims().Informer()}
	_, _ = watched.AddEventHandler(handler(func(obj any) {
		if shadow, ok := obj.(*corev1.PersistentVolumeClaim); ok {
			c.hooks.Shadow(shadow)
		}
	}))
	_ = watched.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !watched.HasSynced() || apierrors.IsForbidden(err) {
			watched.failed.Store(true)
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	ctx, stop := context.WithCancel(c.ctx)
	watched.stop = stop
	factory.StartWithContext(ctx)
	go func() {
		select {
		case <-watched.HasSyncedChecker().Done():
			c.hooks.Seen(c.id, namespace)
		case <-ctx.Done():
		}
	}()
	return watched
}

func (c *connection) selector() string { return keys.HomeID + "=" + c.homeID }

func (c *connection) shadow(key types.NamespacedName) *corev1.PersistentVolumeClaim {
	c.mu.Lock()
	watched := c.shadows[key.Namespace]
	c.mu.Unlock()
	if watched == nil {
		return nil
	}
	obj, ok, err := watched.GetStore().GetByKey(key.String())
	if err != nil || !ok {
		return nil
	}
	shadow, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok || shadow.Namespace != key.Namespace || shadow.Name != key.Name {
		return nil
	}
	return shadow
}

// unpublished asks the API server how many backing claims are left that hold no
// data and are to be removed. Namespaces that may not be read count as empty:
// nothing could be removed there either.
func (c *connection) unpublished(ctx context.Context) (int, error) {
	n := 0
	var errs []error
	for _, namespace := range c.namespaces() {
		found, err := c.unpublishedIn(ctx, namespace)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("list backing claims in namespace %s: %w", namespace, err))
		}
		n += found
	}
	return n, errors.Join(errs...)
}

// namespaces returns the namespaces that are watched, in order.
func (c *connection) namespaces() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	result := make([]string, 0, len(c.shadows))
	for namespace := range c.shadows {
		result = append(result, namespace)
	}
	slices.Sort(result)
	return result
}
