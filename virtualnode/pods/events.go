package pods

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// object returns the object of an event.
func object[T any](obj any) (T, bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	typed, ok := obj.(T)
	return typed, ok
}

// slim drops what is never read from an object before it is cached.
func slim(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// keyOf names a home pod.
func (r *runner) keyOf(pod *corev1.Pod) key {
	return key{uid: pod.UID, namespace: r.session.Namespace(pod.Namespace), name: pod.Name}
}

// watchHome has changes of the home cluster looked at until the returned
// function is called.
func (r *runner) watchHome() (func(), error) {
	var handlers []func()
	remove := func() {
		for _, handler := range handlers {
			handler()
		}
	}
	for _, watched := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandlerFuncs
	}{
		{r.config.Pods, cache.ResourceEventHandlerFuncs{
			AddFunc:    r.homePodChanged,
			UpdateFunc: func(_, obj any) { r.homePodChanged(obj) },
			DeleteFunc: func(obj any) {
				if pod, ok := object[*corev1.Pod](obj); ok {
					r.pods.drop(pod.UID)
				}
				r.homePodChanged(obj)
			},
		}},
		{r.config.Nodes, cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { r.nodeChanged(nil, obj) },
			UpdateFunc: r.nodeChanged,
		}},
		{r.config.Namespaces, cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { r.namespaceChanged(nil, obj) },
			UpdateFunc: r.namespaceChanged,
		}},
	} {
		registration, err := watched.informer.AddEventHandler(watched.handler)
		if err != nil {
			remove()
			return nil, fmt.Errorf("watch the home cluster: %w", err)
		}
		handlers = append(handlers, func() { _ = watched.informer.RemoveEventHandler(registration) })
	}
	return remove, nil
}

func (r *runner) homePodChanged(obj any) {
	if pod, ok := object[*corev1.Pod](obj); ok && pod.Spec.NodeName == r.session.Node {
		r.queue.Add(r.keyOf(pod))
	}
}

// nodeChanged looks at all pods of the virtual node when it becomes ready, for
// what was seen of them meanwhile was not heeded.
func (r *runner) nodeChanged(was, is any) {
	node, ok := object[*corev1.Node](is)
	if !ok || node.Name != r.session.Node {
		return
	}
	before, _ := object[*corev1.Node](was)
	if before != nil && ready(before) == ready(node) && address(before) == address(node) {
		return
	}
	if ready(node) {
		r.places.pokes.poke()
	}
	r.enqueueAll(func(*corev1.Pod) bool { return true })
}

func (r *runner) namespaceChanged(was, is any) {
	namespace, ok := object[*corev1.Namespace](is)
	if !ok {
		return
	}
	before, _ := object[*corev1.Namespace](was)
	if before != nil && maps.Equal(before.Labels, namespace.Labels) && equality.Semantic.DeepEqual(before.Annotations, namespace.Annotations) {
		return
	}
	r.enqueueAll(func(pod *corev1.Pod) bool { return pod.Namespace == namespace.Name })
}

// shadowChanged has the home pod of a ShadowPod looked at, and the one that may
// wait for its name.
func (r *runner) shadowChanged(shadow *shadowPod, gone bool) {
	home := shadow.Spec.Home
	if home.Cluster != r.session.HomeID {
		return
	}
	if gone {
		r.shadows.gone(home.UID, shadow.UID)
		if pod := one[corev1.Pod](r.config.Pods.GetStore(), home.Namespace+"/"+home.Name); pod != nil {
			r.homePodChanged(pod)
		}
	}
	r.queue.Add(key{uid: home.UID, namespace: shadow.Namespace, name: shadow.Name})
}

func (r *runner) remotePodChanged(pod *corev1.Pod) {
	r.queue.Add(key{uid: types.UID(pod.Labels[keys.PodUID]), namespace: pod.Namespace, name: pod.Name})
}

// placeChanged looks at the pods that belong in a namespace of the remote
// cluster.
func (r *runner) placeChanged(namespace string) {
	r.enqueueAll(func(pod *corev1.Pod) bool { return r.session.Namespace(pod.Namespace) == namespace })
}

func (r *runner) enqueueAll(which func(*corev1.Pod) bool) {
	for _, pod := range r.podsOn(r.session.Node) {
		if which(pod) {
			r.queue.Add(r.keyOf(pod))
		}
	}
}

// ready says whether a node is ready.
func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// address returns the internal address of a node, empty if it has none.
func address(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
