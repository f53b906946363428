package rules

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// prefix is what the names of derived Services begin with: so DNS finds them by the name of the import.
const prefix = "mcs-"

// maxName is how long the name of a Service may be so that the derived one's is still a label.
const maxName = validation.DNS1035LabelMaxLength - len(prefix)

// DerivedName is the name of the Service that stands for an import.
func DerivedName(name string) string { return prefix + name }

// Ours reports whether an object of a cluster is one that this package has made for the home cluster with the given ID.
func Ours(object metav1.Object, homeID string) bool {
	labels := object.GetLabels()
	return labels[keys.ServiceImport] != "" && labels[keys.HomeID] == homeID
}

func (d Destination) meta(name, service string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: d.Namespace, Name: name, Labels: map[string]string{keys.HomeID: d.HomeID, keys.ServiceImport: service}}
}

// Import returns the ServiceImport for exports, without addresses.
func (d Destination) Import(name string, merged Merged) *mcs.ServiceImport {
	made := &mcs.ServiceImport{ObjectMeta: d.meta(name, name), Spec: *merged.Spec.DeepCopy()}
	made.Annotations = maps.Clone(merged.Annotations)
	for key, value := range merged.Labels {
		made.Labels[key] = value
	}
	return made
}

// MergeImport returns what an existing import should become, with the addresses of the derived Service, nil while there is none. A headless
// one has no address, and the family that its cluster has by default.
func MergeImport(have, want *mcs.ServiceImport, derived *corev1.Service) (next *mcs.ServiceImport, changed bool) {
	next = have.DeepCopy()
	next.Labels, next.Annotations, next.Spec = want.Labels, want.Annotations, *want.Spec.DeepCopy()
	if derived != nil && want.Spec.Type == kind(derived) {
		next.Spec.IPFamilies = derived.Spec.IPFamilies
		if want.Spec.Type == mcs.ClusterSetIP {
			next.Spec.IPs = derived.Spec.ClusterIPs
		}
	}
	return next, !equality.Semantic.DeepEqual(have, next)
}

// Service returns the Service that stands for an import, which owns it.
func (d Destination) Service(of *mcs.ServiceImport) *corev1.Service {
	made := &corev1.Service{ObjectMeta: d.meta(DerivedName(of.Name), of.Name), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, InternalTrafficPolicy: of.Spec.InternalTrafficPolicy,
		// Headless ones without a selector would else get both families where the cluster has but one.
		IPFamilyPolicy:      ptr.To(corev1.IPFamilyPolicySingleStack),
		TrafficDistribution: of.Spec.TrafficDistribution,
		SessionAffinity:     cmp.Or(of.Spec.SessionAffinity, corev1.ServiceAffinityNone), SessionAffinityConfig: of.Spec.SessionAffinityConfig,
	}}
	made.OwnerReferences = Owners(of)
	for _, port := range of.Spec.Ports {
		made.Spec.Ports = append(made.Spec.Ports, corev1.ServicePort{Name: port.Name, Protocol: port.Protocol, AppProtocol: port.AppProtocol,
			Port: port.Port})
	}
	if of.Spec.Type == mcs.Headless {
		made.Spec.ClusterIP = corev1.ClusterIPNone
	}
	return made
}

// Owners makes an import the owner of what is there for it, so that it goes with the import.
func Owners(of *mcs.ServiceImport) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: mcs.GroupVersion.String(), Kind: mcs.ServiceImportKindName, Name: of.Name, UID: of.UID}}
}

func kind(service *corev1.Service) mcs.ServiceImportType {
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		return mcs.Headless
	}
	return mcs.ClusterSetIP
}

// MergeService returns what an existing Service should become. What its cluster chose stays. Replace says that it must be made anew.
func MergeService(have, want *corev1.Service) (next *corev1.Service, changed, replace bool) {
	next = have.DeepCopy()
	next.Labels, next.OwnerReferences = want.Labels, want.OwnerReferences
	spec := &next.Spec
	spec.Type, spec.Selector, spec.ExternalIPs, spec.ExternalName = want.Spec.Type, nil, nil, ""
	spec.SessionAffinity, spec.TrafficDistribution = want.Spec.SessionAffinity, want.Spec.TrafficDistribution
	spec.PublishNotReadyAddresses = false
	spec.IPFamilyPolicy = want.Spec.IPFamilyPolicy // an API server takes the second family away then
	switch {
	case want.Spec.SessionAffinity == corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case want.Spec.SessionAffinityConfig != nil:
		spec.SessionAffinityConfig = want.Spec.SessionAffinityConfig
	}
	spec.InternalTrafficPolicy = ptr.To(ptr.Deref(want.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster))
	if !sameServicePorts(have.Spec.Ports, want.Spec.Ports) {
		spec.Ports = want.Spec.Ports
	}
	return next, !equality.Semantic.DeepEqual(have, next), kind(have) != kind(want) || have.Spec.Type != want.Spec.Type
}

// sameServicePorts compares what is asked for, and not what an API server has added.
func sameServicePorts(have, want []corev1.ServicePort) bool {
	return slices.EqualFunc(have, want, func(a, b corev1.ServicePort) bool {
		return a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port && a.NodePort == 0 &&
			ptr.Equal(a.AppProtocol, b.AppProtocol)
	})
}

// MergeSlice returns what an existing EndpointSlice should become. Replace says that it must be made anew.
func MergeSlice(have, want *discoveryv1.EndpointSlice) (next *discoveryv1.EndpointSlice, changed, replace bool) {
	next = have.DeepCopy()
	next.Labels, next.OwnerReferences, next.Endpoints, next.Ports = want.Labels, want.OwnerReferences, want.Endpoints, want.Ports
	return next, !equality.Semantic.DeepEqual(have, next), have.AddressType != want.AddressType
}
