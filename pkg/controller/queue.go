// Package controller has the parts that every controller of the project needs: a work queue of keys
// with retries (Queue), typed access to informers (Watch, OnChange, Get, All), their objects in a
// fraction of the memory (PackedObject), and a record of the last message on each key, so that none
// is repeated (LastMessage). Read queue.go first: a
// controller implements Sync, adds keys to its Queue in the handlers of informers, and calls Run.
package controller

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// QueueConfig configures a Queue.
type QueueConfig struct {
	// Name identifies the queue in metrics and logs.
	Name string
	// FirstRetry and LastRetry are the shortest and the longest pause after an error; the pause
	// doubles with each error in a row.
	FirstRetry, LastRetry time.Duration
	// Timeout limits one call of Sync, and so each of its requests, so that an API server that does
	// not answer blocks no worker for ever. 0 means no limit.
	Timeout time.Duration
	// FinishSteps lets a call of Sync that has begun finish after the context of Run ends.
	// Otherwise its context ends too.
	FinishSteps bool
	// Quiet logs errors only at verbosity 2, for controllers that report repeated failures to users
	// themselves.
	Quiet bool
	// Clock is for tests; nil means real time.
	Clock clock.WithTicker
}

// Sync reconciles one key. It returns after what time to reconcile the key again, 0 for not before
// the next Add. After an error, which Queue logs, it is called again.
type Sync[K comparable] func(ctx context.Context, key K) (time.Duration, error)

// Queue holds the keys that wait to be reconciled. At most one worker has a key at a time; a key
// whose Sync failed is retried with growing pauses. It is safe for concurrent use.
type Queue[K comparable] struct {
	config QueueConfig
	keys   workqueue.TypedRateLimitingInterface[K]
}

// NewQueue returns an empty Queue.
func NewQueue[K comparable](config QueueConfig) *Queue[K] {
	return &Queue[K]{config: config, keys: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](config.FirstRetry, config.LastRetry),
		workqueue.TypedRateLimitingQueueConfig[K]{Name: config.Name, Clock: config.Clock})}
}

// Add queues a key. A key that a worker has now is queued again when the worker is done with it.
func (q *Queue[K]) Add(key K) { q.keys.Add(key) }

// AddAfter queues a key after a time; an earlier Add is not delayed.
func (q *Queue[K]) AddAfter(key K, after time.Duration) { q.keys.AddAfter(key, after) }

// Failures returns how often in a row Sync has failed for a key.
func (q *Queue[K]) Failures(key K) int { return q.keys.NumRequeues(key) }

// ShutDown ends a queue that is never run.
func (q *Queue[K]) ShutDown() { q.keys.ShutDown() }

// Run calls work for the queued keys until ctx ends, and returns when the last worker has ended. It
// can be called once.
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
	if ctx.Err() != nil {
		return true // Keys that still wait are left to the next leader.
	}
	again, err := q.sync(ctx, key, work)
	switch {
	case err != nil && ctx.Err() != nil:
	case apierrors.IsConflict(err):
		klog.FromContext(ctx).V(4).Info("Trying again, since an object has changed", "queue", q.config.Name, "key", key, "err", err)
		q.keys.AddRateLimited(key)
	case err != nil:
		if q.config.Quiet {
			klog.FromContext(ctx).V(2).Info("Trying again later", "queue", q.config.Name, "key", key, "err", err)
		} else {
			klog.FromContext(ctx).Error(err, "Trying again later", "queue", q.config.Name, "key", key)
		}
		q.keys.AddRateLimited(key)
	default:
		q.keys.Forget(key)
		if again > 0 {
			q.keys.AddAfter(key, again)
		}
	}
	return true
}

func (q *Queue[K]) sync(ctx context.Context, key K, work Sync[K]) (time.Duration, error) {
	if q.config.FinishSteps {
		ctx = context.WithoutCancel(ctx)
	}
	if q.config.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.config.Timeout)
		defer cancel()
	}
	return work(ctx, key)
}
