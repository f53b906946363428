package controller

import (
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Object returns the object of an informer's event or store as a T; false if it is of another type. It
// unwraps the cache.DeletedFinalStateUnknown of an object whose deletion the informer missed, and unpacks
// what is packed, unless a T is asked for that is packed itself.
func Object[T any](obj any) (T, bool) {
	if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	if typed, ok := obj.(T); ok {
		return typed, true
	}
	typed, ok := Unpacked(obj).(T)
	return typed, ok
}

// Unpacked returns the object that a packed one was made of (see PackedObject); anything else as it is.
func Unpacked(obj any) any {
	if packed, ok := obj.(interface{ Unpack() any }); ok {
		return packed.Unpack()
	}
	return obj
}

// DropManagedFields is a transform for informers: it removes metadata.managedFields, which nobody
// reads, to save memory.
func DropManagedFields(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// AddHandler adds a handler to an informer; unwatch removes it. An informer that was stopped, as all
// are when a program ends, has no more changes: to add a handler to it is no error.
func AddHandler(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) (unwatch func() error, err error) {
	registration, err := informer.AddEventHandler(handler)
	switch {
	case err != nil && informer.IsStopped():
		return func() error { return nil }, nil
	case err != nil:
		return nil, err //nolint:wrapcheck // callers say what they watch
	}
	return func() error { return informer.RemoveEventHandler(registration) }, nil
}

// Watch calls changed for each object of an informer that is added, changed or deleted: was is nil
// when it is added, now when it is deleted. unwatch removes the handler.
func Watch[T any](informer cache.SharedIndexInformer, changed func(was, now *T)) (unwatch func() error, err error) {
	unwatch, err = AddHandler(informer, Handler(changed))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", *new(T), err)
	}
	return unwatch, nil
}

// WatchMentioning is Watch for a caller that wants only objects in which a text is: of others it may not be told, which
// spares to unpack them.
func WatchMentioning[T any](informer cache.SharedIndexInformer, text string, changed func(was, now *T)) (unwatch func() error, err error) {
	all := Handler(changed)
	unwatch, err = AddHandler(informer, cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if MayMention(obj, text) {
				all.OnAdd(obj, false)
			}
		},
		UpdateFunc: func(was, now any) {
			if MayMention(was, text) || MayMention(now, text) {
				all.OnUpdate(was, now)
			}
		},
		DeleteFunc: func(obj any) {
			if MayMention(obj, text) {
				all.OnDelete(obj)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", *new(T), err)
	}
	return unwatch, nil
}

// MayMention says whether a text may be in an object of an informer's event or store. It looks into packed objects without
// unpacking them, and says yes of all others.
func MayMention(obj any, text string) bool {
	if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	packed, ok := obj.(interface{ Mentions(text string) bool })
	return !ok || packed.Mentions(text)
}

// OnChange is Watch without a way to remove the handler: it lasts as long as the informer.
func OnChange[T any](informer cache.SharedIndexInformer, changed func(was, now *T)) error {
	_, err := Watch(informer, changed)
	return err
}

// OnEach is OnChange for callers that only need the object: changed gets its present state, or the
// last one before its deletion.
func OnEach[T any](informer cache.SharedIndexInformer, changed func(object *T)) error {
	return OnChange(informer, func(was, now *T) { changed(Either(was, now)) })
}

// Handler is what Watch adds to an informer.
func Handler[T any](changed func(was, now *T)) cache.ResourceEventHandler {
	call := func(was, now any) {
		before, hadBefore := Object[*T](was)
		after, hasAfter := Object[*T](now)
		if hadBefore || hasAfter {
			changed(before, after)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { call(nil, obj) },
		UpdateFunc: call,
		DeleteFunc: func(obj any) { call(obj, nil) },
	}
}

// Either returns now, or was where that is nil: the object that a change is about.
func Either[T any](was, now *T) *T {
	if now != nil {
		return now
	}
	return was
}

// Get returns the object of a key as last seen, nil if there is none. It must
// not be changed.
func Get[T any](informer cache.SharedIndexInformer, key string) *T {
	obj, ok, err := informer.GetStore().GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	object, _ := Object[*T](obj)
	return object
}

// All returns all objects as last seen. They must not be changed.
func All[T any](informer cache.SharedIndexInformer) []*T { return slices.Collect(Each[T](informer)) }

// Each is All, one after the other: of packed objects only one at a time is then unpacked.
func Each[T any](informer cache.SharedIndexInformer) iter.Seq[*T] {
	return typed[T](informer.GetStore().List())
}

// EachMentioning is Each without objects in which a text surely is not.
func EachMentioning[T any](informer cache.SharedIndexInformer, text string) iter.Seq[*T] {
	return typed[T](slices.DeleteFunc(informer.GetStore().List(), func(obj any) bool { return !MayMention(obj, text) }))
}

// Indexed returns the objects that an index has under a key, as last seen; none if there
// is no such index. They must not be changed.
func Indexed[T any](informer cache.SharedIndexInformer, index, key string) []*T {
	return slices.Collect(EachIndexed[T](informer, index, key))
}

// EachIndexed is Indexed, one after the other.
func EachIndexed[T any](informer cache.SharedIndexInformer, index, key string) iter.Seq[*T] {
	objects, err := informer.GetIndexer().ByIndex(index, key)
	if err != nil {
		objects = nil
	}
	return typed[T](objects)
}

// Identities returns of each object that an index has under a key what identifies it: namespace, name, UID and resource
// version. Nothing else may be read of it. Packed objects are not unpacked for that.
func Identities(informer cache.SharedIndexInformer, index, key string) iter.Seq[metav1.Object] {
	objects, err := informer.GetIndexer().ByIndex(index, key)
	if err != nil {
		objects = nil
	}
	return func(yield func(metav1.Object) bool) {
		for _, obj := range objects {
			if object, err := meta.Accessor(obj); err == nil && !yield(object) {
				return
			}
		}
	}
}

// In returns the objects of a namespace as last seen, of an informer that has the index
// cache.NamespaceIndex. They must not be changed.
func In[T any](informer cache.SharedIndexInformer, namespace string) []*T {
	return Indexed[T](informer, cache.NamespaceIndex, namespace)
}

func typed[T any](objects []any) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, obj := range objects {
			if object, ok := Object[*T](obj); ok && !yield(object) {
				return
			}
		}
	}
}
