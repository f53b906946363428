package reflector

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/virtualnode/reflect/needs"
)

// needsIndex finds the pods that need an object, and the pods of a namespace
// that need anything, on one node. Its keys are those of indexKey.
const needsIndex = "lodestone.dev/needs"

func indexKey(node string, k key) string {
	return node + "/" + string(k.kind) + "/" + k.namespace + "/" + k.name
}

func indexNeeds(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	var result []string
	for _, k := range keysOf(pod) {
		result = append(result, indexKey(pod.Spec.NodeName, k))
	}
	return result, nil
}

// keysOf returns the objects that a pod needs in a remote cluster, its namespace
// among them, nothing if it runs in none.
func keysOf(pod *corev1.Pod) []key {
	if !needs.Anything(pod) {
		return nil
	}
	set := needs.Of(pod)
	result := []key{{kind: spaceKind, namespace: pod.Namespace}}
	for _, name := range set.ConfigMaps {
		result = append(result, key{configMapKind, pod.Namespace, name})
	}
	for _, name := range set.Secrets {
		result = append(result, key{secretKind, pod.Namespace, name})
	}
	if set.Audience != "" {
		result = append(result, key{secretKind, pod.Namespace, needs.Token(pod.UID)})
	}
	return result
}

// needing returns the pods on the virtual node that need an object, or with the
// key of a namespace those in that namespace.
func (m *mirror) needing(k key) []*corev1.Pod {
	found, err := m.pods.GetIndexer().ByIndex(needsIndex, indexKey(m.session.Node, k))
	if err != nil {
		return nil // there is such an index
	}
	var result []*corev1.Pod
	for _, obj := range found {
		if pod, ok := obj.(*corev1.Pod); ok {
			result = append(result, pod)
		}
	}
	return result
}

// podChanged has everything looked at that a pod needed before or needs now.
// Either may be nil.
func (m *mirror) podChanged(before, now *corev1.Pod) {
	old, current := m.here(before), m.here(now)
	if slices.Equal(old, current) && (before == nil || now == nil || needs.Of(before).Audience == needs.Of(now).Audience) {
		return
	}
	for _, k := range old {
		m.queue.Add(k)
	}
	for _, k := range current {
		m.queue.Add(k)
	}
}

func (m *mirror) here(pod *corev1.Pod) []key {
	if pod == nil || pod.Spec.NodeName != m.session.Node {
		return nil
	}
	return keysOf(pod)
}

// homeConfigMapChanged has a ConfigMap's copy looked at, or the tokens that go
// together with home's certificate authority.
func (m *mirror) homeConfigMapChanged(configMap *corev1.ConfigMap) {
	if configMap.Name != needs.RootCA {
		m.queue.Add(key{configMapKind, configMap.Namespace, configMap.Name})
		return
	}
	for _, pod := range m.needing(key{kind: spaceKind, namespace: configMap.Namespace}) {
		if needs.Of(pod).Audience != "" {
			m.queue.Add(key{secretKind, pod.Namespace, needs.Token(pod.UID)})
		}
	}
}

// handler calls changed with each object that was added, updated or deleted.
func handler[T any](changed func(T)) cache.ResourceEventHandler {
	call := func(obj any) {
		if object, ok := last(obj).(T); ok {
			changed(object)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: call, UpdateFunc: func(_, obj any) { call(obj) }, DeleteFunc: call}
}

// bothHandler calls changed with each object that was added or deleted, and with
// what each that was updated was before and is now.
func bothHandler[T any](changed func(T)) cache.ResourceEventHandler {
	call := func(obj any) {
		if object, ok := last(obj).(T); ok {
			changed(object)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: call, UpdateFunc: func(before, obj any) { call(before); call(obj) }, DeleteFunc: call}
}

func podHandler(changed func(before, now *corev1.Pod)) cache.ResourceEventHandler {
	pod := func(obj any) *corev1.Pod {
		result, _ := last(obj).(*corev1.Pod)
		return result
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { changed(nil, pod(obj)) },
		UpdateFunc: func(before, now any) {
			// One pod may have taken the place of another.
			changed(pod(before), pod(now))
		},
		DeleteFunc: func(obj any) { changed(pod(obj), nil) },
	}
}

// last returns the last known state of an object that an event is about.
func last(obj any) any {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return obj
}
