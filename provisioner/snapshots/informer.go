package snapshots

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// Informer returns an informer on objects of the API, in all namespaces if none is
// named, with the labels of a selector if that is not empty. The objects in it are
// of type T, as trim leaves them.
func Informer[T any](client dynamic.Interface, resource schema.GroupVersionResource, namespace, selector string, trim func(*T)) cache.SharedIndexInformer {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, resource, namespace, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
		options.LabelSelector = selector
	}).Informer()
	_ = informer.SetTransform(func(obj any) (any, error) {
		from, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		to, err := volumesnapshot.Read[T](from)
		if err != nil {
			return nil, err
		}
		if object, err := meta.Accessor(to); err == nil {
			object.SetManagedFields(nil)
		}
		trim(to)
		return to, nil
	})
	return informer
}

// Handler calls a function for each change of an object.
func Handler[T any](changed func(*T)) cache.ResourceEventHandler {
	call := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if object, ok := obj.(*T); ok {
			changed(object)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: call, UpdateFunc: func(_, obj any) { call(obj) }, DeleteFunc: call}
}
