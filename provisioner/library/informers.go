package library

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// nudged is an informer that keeps the library's own handler, so that an object
// can be put into the library's queue without a change of the object.
type nudged struct {
	cache.SharedIndexInformer
	handler cache.ResourceEventHandler
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer. The handler
// gets nothing before feed, and no resync: nothing waits for one.
func (n *nudged) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	n.handler = handler
	return nil, nil //nolint:nilnil // the library does not look at it
}

// feed begins to call the handler, first with all that is known.
func (n *nudged) feed() error {
	if _, err := n.SharedIndexInformer.AddEventHandler(n.handler); err != nil {
		return fmt.Errorf("watch for the library: %w", err)
	}
	return nil
}

func (n *nudged) nudge(obj any) { n.handler.OnUpdate(obj, obj) }

// found is an informer of claims whose index by UID, the only one that the library
// makes, is a function: a set for each claim needs much memory.
type found struct {
	cache.SharedIndexInformer
	find func(uid types.UID) *corev1.PersistentVolumeClaim
}

// AddIndexers implements cache.SharedIndexInformer.
func (f found) AddIndexers(indexers cache.Indexers) error {
	for name := range indexers {
		if name != uidIndex {
			return fmt.Errorf("there is no index %s", name)
		}
	}
	return nil
}

// GetIndexer implements cache.SharedIndexInformer.
func (f found) GetIndexer() cache.Indexer { return finder{f.SharedIndexInformer.GetIndexer(), f.find} }

// uidIndex is what the library calls its index.
const uidIndex = "uid"

type finder struct {
	cache.Indexer
	find func(uid types.UID) *corev1.PersistentVolumeClaim
}

// ByIndex implements cache.Indexer.
func (f finder) ByIndex(index, key string) ([]any, error) {
	if index != uidIndex {
		return f.Indexer.ByIndex(index, key)
	}
	if claim := f.find(types.UID(key)); claim != nil {
		return []any{claim}, nil
	}
	return nil, nil
}

// saved is an informer of volumes. The library puts a volume that it has created
// into the store, so as not to create it twice; by then the store may hold what
// the API server made of it, which must not be lost.
type saved struct{ cache.SharedIndexInformer }

// GetStore implements cache.SharedInformer.
func (s saved) GetStore() cache.Store { return onlyNew{s.SharedIndexInformer.GetStore()} }

// onlyNew is a store that Add leaves as it is where it holds the object already.
type onlyNew struct{ cache.Store }

// Add implements cache.Store.
func (s onlyNew) Add(obj any) error {
	if _, exists, err := s.Get(obj); err != nil || exists {
		return err
	}
	return s.Store.Add(obj)
}
