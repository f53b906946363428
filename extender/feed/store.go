package feed

import (
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// target is where the entries of one kind are kept. One goroutine writes.
type target[V any] interface {
	Set(key string, value V)
	Delete(key string)
	// Replace makes entries the whole content, and does not keep the map.
	Replace(entries map[string]V)
	Len() int
}

// store is where a reflector puts the objects of one kind: it converts each to
// its entry and writes that to a table.
type store[O runtime.Object, V any] struct {
	table target[V]
	// convert returns the entry of an object; false when it has none.
	convert func(O) (V, bool)
	now     func() time.Time
	synced  atomic.Bool
	changed atomic.Pointer[time.Time]
	pulse   pulse
}

// entry is a converted object.
type entry[V any] struct {
	key   string
	value V
	keep  bool
}

var (
	_ cache.TransformingStore      = &store[runtime.Object, int]{}
	_ cache.ResourceVersionUpdater = &store[runtime.Object, int]{}
)

// Transformer converts objects while the first list still streams in, so that
// the whole list is never held in full.
func (s *store[O, V]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.entryOf(obj) }
}

func (s *store[O, V]) entryOf(obj any) (entry[V], error) {
	switch obj := obj.(type) {
	case entry[V]:
		return obj, nil
	case O:
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return entry[V]{}, fmt.Errorf("name object: %w", err)
		}
		value, keep := s.convert(obj)
		return entry[V]{key: key, value: value, keep: keep}, nil
	}
	return entry[V]{}, fmt.Errorf("convert object: unexpected type %T", obj)
}

// Add implements cache.ReflectorStore.
func (s *store[O, V]) Add(obj any) error {
	e, err := s.entryOf(obj)
	if err != nil {
		return err
	}
	if e.keep {
		s.table.Set(e.key, e.value)
	} else {
		s.table.Delete(e.key)
	}
	s.touch()
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store[O, V]) Update(obj any) error {
	return s.Add(obj)
}

// Delete implements cache.ReflectorStore.
func (s *store[O, V]) Delete(obj any) error {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return fmt.Errorf("name deleted object: %w", err)
	}
	s.table.Delete(key)
	s.touch()
	return nil
}

// Replace implements cache.ReflectorStore: list is everything that there is.
func (s *store[O, V]) Replace(list []any, _ string) error {
	entries := make(map[string]V, len(list))
	for _, obj := range list {
		e, err := s.entryOf(obj)
		if err != nil {
			return err
		}
		if e.keep {
			entries[e.key] = e.value
		}
	}
	s.table.Replace(entries)
	s.touch()
	s.pulse.replaced(s.now())
	s.synced.Store(true)
	return nil
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater: the watch brought
// an event or a bookmark.
func (s *store[O, V]) UpdateResourceVersion(string) {
	s.pulse.hear(s.now())
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (s *store[O, V]) Resync() error {
	return nil
}

func (s *store[O, V]) touch() {
	now := s.now()
	s.changed.Store(&now)
}

// lastChange returns when the last change arrived; zero before the first.
func (s *store[O, V]) lastChange() time.Time {
	if at := s.changed.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
