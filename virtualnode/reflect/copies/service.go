package copies

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TravelsService reports whether a Service of home is copied: not the one of the
// API server, which each cluster has itself, and not a copy.
func TravelsService(home *corev1.Service) bool {
	return (home.Namespace != metav1.NamespaceDefault || home.Name != "kubernetes") && !IsCopy(home)
}

// Service returns the copy of a Service: it has the name, ports and selector, so
// that the remote cluster finds the pods there itself. Addresses, node ports and
// load balancers belong to home.
func (p Place) Service(home *corev1.Service) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: p.meta(home.Name, home.UID),
		Spec: corev1.ServiceSpec{
			Type:                     corev1.ServiceTypeClusterIP,
			Selector:                 home.Spec.Selector,
			SessionAffinity:          home.Spec.SessionAffinity,
			SessionAffinityConfig:    home.Spec.SessionAffinityConfig,
			PublishNotReadyAddresses: home.Spec.PublishNotReadyAddresses,
		},
	}
	for _, port := range home.Spec.Ports {
		port.NodePort = 0
		service.Spec.Ports = append(service.Spec.Ports, port)
	}
	switch {
	case home.Spec.Type == corev1.ServiceTypeExternalName:
		service.Spec.Type, service.Spec.ExternalName = corev1.ServiceTypeExternalName, home.Spec.ExternalName
	case home.Spec.ClusterIP == corev1.ClusterIPNone:
		service.Spec.ClusterIP = corev1.ClusterIPNone
	}
	return service
}

// MergeService returns what a copy that exists should become, and how. What the
// remote cluster chose, such as the address, stays.
func MergeService(have, want *corev1.Service) (*corev1.Service, Change) {
	next := have.DeepCopy()
	adopt(next, want)
	spec := &next.Spec
	spec.Ports = want.Spec.Ports
	spec.Selector = want.Spec.Selector
	spec.PublishNotReadyAddresses = want.Spec.PublishNotReadyAddresses
	spec.ExternalName = want.Spec.ExternalName
	spec.Type = want.Spec.Type
	spec.ExternalIPs, spec.LoadBalancerSourceRanges = nil, nil
	spec.LoadBalancerIP, spec.LoadBalancerClass = "", nil
	if want.Spec.SessionAffinity != "" {
		spec.SessionAffinity, spec.SessionAffinityConfig = want.Spec.SessionAffinity, want.Spec.SessionAffinityConfig
	}
	switch {
	case kind(have) != kind(want) || have.Spec.Type != want.Spec.Type:
		return next, Replace
	case equality.Semantic.DeepEqual(have, next):
		return next, None
	default:
		return next, Update
	}
}

// kind tells apart Services that cannot become one another, for an address once
// given cannot be changed.
func kind(service *corev1.Service) string {
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return "name"
	case service.Spec.ClusterIP == corev1.ClusterIPNone:
		return "headless"
	default:
		return "address"
	}
}
