package reflector

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// lookAtAll has everything looked at that is wanted in a namespace or is there.
func (m *mirror) lookAtAll(s *space) {
	for _, obj := range s.configMaps.GetStore().List() {
		if configMap, ok := obj.(*corev1.ConfigMap); ok && configMap.Name != ledgerName {
			m.queue.Add(key{configMapKind, s.home, configMap.Name})
		}
	}
	for _, pod := range m.needing(key{kind: spaceKind, namespace: s.home}) {
		for _, k := range keysOf(pod) {
			m.queue.Add(k)
		}
	}
	m.lookAtSecrets(s)
	m.lookAtServices(s)
}

// lookAtSecrets has the Secrets looked at that are there.
func (m *mirror) lookAtSecrets(s *space) {
	for _, name := range s.secretNames() {
		m.queue.Add(key{secretKind, s.home, name})
	}
}

// lookAtServices has the Services looked at that are wanted in a namespace or
// are there.
func (m *mirror) lookAtServices(s *space) {
	services, _ := m.serviceLister.Services(s.home).List(labels.Everything())
	for _, service := range services {
		m.queue.Add(key{serviceKind, s.home, service.Name})
	}
	for _, obj := range s.services.GetStore().List() {
		if service, ok := obj.(*corev1.Service); ok {
			m.queue.Add(key{serviceKind, s.home, service.Name})
		}
	}
	for _, obj := range s.slices.GetStore().List() {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
			m.queue.Add(key{serviceKind, s.home, slice.Labels[discoveryv1.LabelServiceName]})
		}
	}
}

// copyHandler brings ConfigMaps of the remote cluster to the workers, and the
// ledger to its reader.
func (m *mirror) copyHandler(s *space) cache.ResourceEventHandler {
	changed := func(obj any, exists bool) {
		configMap, ok := last(obj).(*corev1.ConfigMap)
		switch {
		case !ok:
		case configMap.Name != ledgerName:
			m.queue.Add(key{configMapKind, s.home, configMap.Name})
		case s.ledger.see(configMap, exists):
			m.lookAtSecrets(s)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(obj, true) },
		UpdateFunc: func(_, obj any) { changed(obj, true) },
		DeleteFunc: func(obj any) { changed(obj, false) },
	}
}
