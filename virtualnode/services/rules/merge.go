// Package rules says what Services become that several clusters export under one name (Multi-Cluster Services API, KEP-1645): which
// ServiceImport they make together (Merge), which Service and EndpointSlices stand for it in a cluster (objects.go, endpoints.go), and
// what is said of each export. It is pure. What another cluster says is checked before anything is made of it (conditions.go).
package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Export is what one cluster exports under a name, as last seen there.
type Export struct {
	// From is the cluster.
	From *Cluster
	// Object is the ServiceExport, Service the Service of its name, nil if there is none, Slices those of that Service.
	Object  *mcs.ServiceExport
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice
	// TooMany: the cluster exports more from this namespace than are taken.
	TooMany bool
}

// Merged is what all exports of a name are together.
type Merged struct {
	// Exports are those that count, the oldest first; none means that there is nothing to import.
	Exports []Export
	// Spec is that of the ServiceImport, without addresses.
	Spec mcs.ServiceImportSpec
	// Labels and Annotations are those of the ServiceImport.
	Labels, Annotations map[string]string
	// Conditions are Valid and Conflict of each export, by the ID of its cluster.
	Conditions map[string][]metav1.Condition
}

// Clusters are the IDs of the clusters whose exports count, sorted.
func (m Merged) Clusters() (ids []string) {
	for _, export := range m.Exports {
		ids = append(ids, export.From.ID)
	}
	slices.Sort(ids)
	return ids
}

// Merge returns what exports are together. Where they differ, the oldest one counts; of ports, each that no older one contradicts.
func Merge(exports []Export) Merged {
	merged := Merged{Conditions: map[string][]metav1.Condition{}}
	for _, export := range exports {
		valid := Valid(export)
		merged.Conditions[export.From.ID] = append(merged.Conditions[export.From.ID], valid)
		if valid.Status == metav1.ConditionTrue {
			merged.Exports = append(merged.Exports, export)
		}
	}
	slices.SortStableFunc(merged.Exports, compare)
	if len(merged.Exports) == 0 {
		return merged
	}
	oldest := merged.Exports[0]
	merged.Spec = specOf(oldest.Service)
	merged.Labels, merged.Annotations = maps.Clone(oldest.Object.Spec.ExportedLabels), maps.Clone(oldest.Object.Spec.ExportedAnnotations)
	for _, export := range merged.Exports[1:] {
		merged.Spec.Ports = union(merged.Spec.Ports, portsOf(export.Service))
	}
	for i, export := range merged.Exports {
		// An export is compared with the oldest, and the oldest with the first that differs from it.
		others := merged.Exports[:1]
		if i == 0 {
			others = merged.Exports[1:]
		}
		id := export.From.ID
		merged.Conditions[id] = append(merged.Conditions[id], conflict(export, others))
	}
	return merged
}

// compareHome has home before the others, for exports of the same second.
func compareHome(a, b *Cluster) int {
	switch {
	case a.Home() == b.Home():
		return 0
	case a.Home():
		return -1
	default:
		return 1
	}
}

// conflict is the condition Conflict of an export that is compared with others.
func conflict(export Export, others []Export) metav1.Condition {
	for _, other := range others {
		if reasons := differences(export, other); len(reasons) > 0 {
			counts := other.From.ID
			if compare(export, other) < 0 {
				counts = export.From.ID
			}
			return condition(mcs.ServiceExportConditionConflict, true, mcs.ServiceExportConditionReason(strings.Join(reasons, ",")), fmt.Sprintf(
				"what clusters %s and %s export differs: that of %s counts, which is older, and ports of the other that it does not contradict",
				export.From.ID, other.From.ID, counts))
		}
	}
	return condition(mcs.ServiceExportConditionConflict, false, mcs.ServiceExportReasonNoConflicts, "all clusters export the same")
}

// compare is negative where a counts before b.
func compare(a, b Export) int {
	return cmp.Or(a.Object.CreationTimestamp.Compare(b.Object.CreationTimestamp.Time), compareHome(a.From, b.From),
		strings.Compare(a.From.ID, b.From.ID))
}

// differences are the reasons of a conflict between two exports.
func differences(a, b Export) (reasons []string) {
	x, y := specOf(a.Service), specOf(b.Service)
	for _, one := range []struct {
		reason mcs.ServiceExportConditionReason
		same   bool
	}{
		{mcs.ServiceExportReasonPortConflict, samePorts(x.Ports, y.Ports)},
		{mcs.ServiceExportReasonTypeConflict, x.Type == y.Type},
		{mcs.ServiceExportReasonSessionAffinityConflict, x.SessionAffinity == y.SessionAffinity},
		{mcs.ServiceExportReasonSessionAffinityConfigConflict, x.SessionAffinity != y.SessionAffinity ||
			equality.Semantic.DeepEqual(x.SessionAffinityConfig, y.SessionAffinityConfig)},
		{mcs.ServiceExportReasonInternalTrafficPolicyConflict, x.Type != y.Type ||
			equality.Semantic.DeepEqual(x.InternalTrafficPolicy, y.InternalTrafficPolicy)},
		{mcs.ServiceExportReasonTrafficDistributionConflict, equality.Semantic.DeepEqual(x.TrafficDistribution, y.TrafficDistribution)},
		{mcs.ServiceExportReasonLabelsConflict, equality.Semantic.DeepEqual(a.Object.Spec.ExportedLabels, b.Object.Spec.ExportedLabels)},
		{mcs.ServiceExportReasonAnnotationsConflict,
			equality.Semantic.DeepEqual(a.Object.Spec.ExportedAnnotations, b.Object.Spec.ExportedAnnotations)},
	} {
		if !one.same {
			reasons = append(reasons, string(one.reason))
		}
	}
	return reasons
}

// specOf is the ServiceImport of one Service alone, without addresses.
func specOf(service *corev1.Service) mcs.ServiceImportSpec {
	spec := mcs.ServiceImportSpec{Type: mcs.ClusterSetIP, Ports: portsOf(service), TrafficDistribution: distribution(service)}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		spec.Type = mcs.Headless
		return spec
	}
	spec.SessionAffinity = cmp.Or(service.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		spec.SessionAffinityConfig = service.Spec.SessionAffinityConfig
	}
	spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	if policy := service.Spec.InternalTrafficPolicy; policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal {
		spec.InternalTrafficPolicy = policy
	}
	return spec
}

// distribution is the trafficDistribution of a Service, nil if it is one that this program does not know.
func distribution(service *corev1.Service) *string {
	known := []string{corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode}
	if d := service.Spec.TrafficDistribution; d != nil && slices.Contains(known, *d) {
		return d
	}
	return nil
}

// portsOf are the ports of a Service as others see them. Those of nodes and of containers are its cluster's own.
func portsOf(service *corev1.Service) []mcs.ServicePort {
	ports := []mcs.ServicePort{} // an import has a list, even an empty one
	for _, port := range service.Spec.Ports {
		ports = append(ports, mcs.ServicePort{Name: port.Name, Protocol: cmp.Or(port.Protocol, corev1.ProtocolTCP), Port: port.Port,
			AppProtocol: port.AppProtocol})
	}
	return ports
}

// union adds to ports those of a younger export that can stand beside them: no two have one name, or one protocol and number, and where
// there are several, each has a name.
func union(ports, younger []mcs.ServicePort) []mcs.ServicePort {
	for _, port := range younger {
		taken := slices.ContainsFunc(ports, func(older mcs.ServicePort) bool {
			return older.Name == port.Name || older.Name == "" || older.Protocol == port.Protocol && older.Port == port.Port
		})
		if !taken && (port.Name != "" || len(ports) == 0) && len(ports) < maxPorts {
			ports = append(ports, port)
		}
	}
	return ports
}

// samePorts says whether two Services have the same ports, in whatever order.
func samePorts(a, b []mcs.ServicePort) bool {
	sorted := func(ports []mcs.ServicePort) []mcs.ServicePort {
		return slices.SortedFunc(slices.Values(ports), func(a, b mcs.ServicePort) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), strings.Compare(string(a.Protocol), string(b.Protocol)))
		})
	}
	return equality.Semantic.DeepEqual(sorted(a), sorted(b))
}

func condition(kind mcs.ServiceExportConditionType, is bool, reason mcs.ServiceExportConditionReason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: string(kind), Status: status, Reason: string(reason), Message: message}
}
