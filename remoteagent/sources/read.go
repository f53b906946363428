package sources

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// On has f called for every object that is seen, changes or goes. was is nil
// when the object is new or goes.
func On[T any](informer cache.SharedIndexInformer, f func(was, now *T)) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { call(f, nil, obj) },
		UpdateFunc: func(old, obj any) {
			was, _ := old.(*T)
			call(f, was, obj)
		},
		DeleteFunc: func(obj any) { call(f, nil, obj) },
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", *new(T), err)
	}
	return nil
}

// OnAny has f called for every object that is seen, changes or goes.
func OnAny(informer cache.SharedIndexInformer, f func(object metav1.Object)) error {
	do := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if object, ok := obj.(metav1.Object); ok {
			f(object)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    do,
		UpdateFunc: func(_, obj any) { do(obj) },
		DeleteFunc: do,
	})
	if err != nil {
		return fmt.Errorf("watch what was made: %w", err)
	}
	return nil
}

func call[T any](f func(was, now *T), was *T, obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if now, ok := obj.(*T); ok {
		f(was, now)
	}
}

// Get returns the object of a key as last seen, nil if there is none. It must
// not be changed.
func Get[T any](informer cache.SharedIndexInformer, key string) *T {
	obj, ok, err := informer.GetStore().GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	object, _ := obj.(*T)
	return object
}

// All returns all objects as last seen. They must not be changed.
func All[T any](informer cache.SharedIndexInformer) []*T {
	var all []*T
	for _, obj := range informer.GetStore().List() {
		if object, ok := obj.(*T); ok {
			all = append(all, object)
		}
	}
	return all
}

// In returns the objects of a namespace as last seen. They must not be changed.
func In[T any](informer cache.SharedIndexInformer, namespace string) []*T {
	var all []*T
	objects, err := informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil
	}
	for _, obj := range objects {
		if object, ok := obj.(*T); ok {
			all = append(all, object)
		}
	}
	return all
}
