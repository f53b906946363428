// Package queue works on keys: each key by one worker at a time, again after an
// error with growing pauses.
package queue

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// syncTimeout bounds the work on one key, and so every request of it: an API
// server that hangs holds up nothing for ever.
const syncTimeout = 20 * time.Second

// Sync works on a key. It returns after what time to look at the key again,
// 0 for not before something happens. It is called again after an error.
type Sync[K comparable] func(ctx context.Context, key K) (time.Duration, error)

// Queue holds keys that wait for work. It is safe for concurrent use.
type Queue[K comparable] struct {
	keys workqueue.TypedRateLimitingInterface[K]
}

// New returns a Queue that pauses from base up to limit after errors.
func New[K comparable](name string, base, limit time.Duration) *Queue[K] {
	return &Queue[K]{keys: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](base, limit),
		workqueue.TypedRateLimitingQueueConfig[K]{Name: name})}
}

// Add has a key worked on soon.
func (q *Queue[K]) Add(key K) { q.keys.Add(key) }

// AddAfter has a key worked on after a time, or sooner.
func (q *Queue[K]) AddAfter(key K, after time.Duration) { q.keys.AddAfter(key, after) }

// Run works on keys until ctx ends, and returns when the last worker has ended.
// It can be called once.
func (q *Queue[K]) Run(ctx context.Context, workers int, work Sync[K]) {
	defer context.AfterFunc(ctx, q.keys.ShutDown)()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for q.next(ctx, work) {
			}
		})
	}
	running.Wait()
}

func (q *Queue[K]) next(ctx context.Context, work Sync[K]) bool {
	key, shutdown := q.keys.Get()
	if shutdown {
		return false
	}
	defer q.keys.Done(key)
	working, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	again, err := work(working, key)
	switch {
	case ctx.Err() != nil:
	case apierrors.IsConflict(err):
		klog.FromContext(ctx).V(4).Info("Looking again, since an object has changed", "key", key, "err", err)
		q.keys.AddRateLimited(key)
	case err != nil:
		klog.FromContext(ctx).Error(err, "Trying again later", "key", key)
		q.keys.AddRateLimited(key)
	default:
		q.keys.Forget(key)
		if again > 0 {
			q.keys.AddAfter(key, again)
		}
	}
	return true
}
