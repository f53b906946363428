package copies

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// Manager is who keeps the copies of EndpointSlices, as their label says: the
	// remote cluster's own controller leaves them alone.
	Manager = keys.Driver

	slicePrefix = "lodestone-"
)

// Slice returns the copy of an EndpointSlice with those of its endpoints that are
// elsewhere than on the given virtual node, whose own the remote cluster adds
// itself. It returns nil if none is left.
func (p Place) Slice(home *discoveryv1.EndpointSlice, node string) *discoveryv1.EndpointSlice {
	service := home.Labels[discoveryv1.LabelServiceName]
	if service == "" || IsCopy(home) {
		return nil
	}
	var endpoints []discoveryv1.Endpoint
	for _, endpoint := range home.Endpoints {
		if endpoint.NodeName != nil && *endpoint.NodeName == node {
			continue
		}
		endpoints = append(endpoints, discoveryv1.Endpoint{Addresses: endpoint.Addresses, Conditions: endpoint.Conditions, Hostname: endpoint.Hostname})
	}
	if len(endpoints) == 0 {
		return nil
	}
	slice := &discoveryv1.EndpointSlice{
		// The home object's own name might be one that the remote cluster drew too.
		ObjectMeta:  p.meta(slicePrefix+string(home.UID), home.UID),
		AddressType: home.AddressType,
		Endpoints:   endpoints,
		Ports:       home.Ports,
	}
	slice.Labels[discoveryv1.LabelServiceName] = service
	slice.Labels[discoveryv1.LabelManagedBy] = Manager
	if value, headless := home.Labels[corev1.IsHeadlessService]; headless {
		slice.Labels[corev1.IsHeadlessService] = value
	}
	return slice
}

// MergeSlice returns what a copy that exists should become, and how.
func MergeSlice(have, want *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, Change) {
	next := have.DeepCopy()
	adopt(next, want)
	if _, headless := want.Labels[corev1.IsHeadlessService]; !headless {
		delete(next.Labels, corev1.IsHeadlessService)
	}
	next.AddressType, next.Endpoints, next.Ports = want.AddressType, want.Endpoints, want.Ports
	switch {
	case equality.Semantic.DeepEqual(have, next):
		return next, None
	case have.AddressType != want.AddressType:
		return next, Replace
	default:
		return next, Update
	}
}
